//! Models whose layers are divided among ranks: which parameters, along which dimension, by a table of their names.

use fulgurite_kernels::scratch::{try_room, try_zeroed};
use fulgurite_ops::collectives::all_gather_one;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::mesh::Axis;
use fulgurite_runtime::transforms::tensor_parallel::{Divided, Division};
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, Device, Result, Tensor, jit};

use crate::argument_error::wrong;
use crate::config::Parameter;
use crate::model::Model;
use crate::parameter_list::Parameters;
use crate::parameters::copied;

/// The axis of the ranks that have parts of each layer.
pub const TENSOR: &str = "tensor";

/// How a parameter is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Rows of queries, then of keys, then of values, each of whole heads.
    Heads,
    /// Rows: outputs of a layer.
    Rows,
    /// Columns: inputs of a layer, whose results are terms of a sum over the ranks.
    Columns,
    /// Rows of the vocabulary: of an embedding, and of the layer that makes logits. Where their number cannot be
    /// divided, each rank has all of them.
    Vocabulary,
}

/// The rules, by what the name of a parameter without `h.N.` begins with. A rank has all of every other parameter: of
/// norms, of position embeddings, of biases that are added to sums, of experts.
const RULES: [(&str, Rule); 12] = [
    ("attn.c_attn.", Rule::Heads),
    ("attn.qkv.", Rule::Heads),
    ("attn.c_proj.weight", Rule::Columns),
    ("attn.proj.weight", Rule::Columns),
    ("mlp.c_fc.", Rule::Rows),
    ("mlp.fc.", Rule::Rows),
    ("mlp.fc_1.", Rule::Rows),
    ("mlp.fc_2.", Rule::Rows),
    ("mlp.c_proj.weight", Rule::Columns),
    ("mlp.proj.weight", Rule::Columns),
    ("wte.weight", Rule::Vocabulary),
    ("lm_head.", Rule::Vocabulary),
];

fn rule(name: &str) -> Option<Rule> {
    let block = name.strip_prefix("h.").and_then(|rest| rest.split_once('.')).map(|(_, own)| own);
    let own = block.unwrap_or(name);
    RULES.into_iter().find(|(begins, _)| own.starts_with(begins)).map(|(_, rule)| rule)
}

/// How a parameter of `model` is divided among so many ranks; none if each has all of it.
///
/// # Errors
/// If heads or features cannot be divided.
pub fn divided(model: &dyn Model, parameter: &Parameter, ranks: usize) -> Result<Option<Divided>> {
    let Some(rule) = rule(&parameter.name) else { return Ok(None) };
    let shape = &parameter.shape;
    let by = match rule {
        Rule::Heads => {
            let ([_, heads, _], [groups, width]) = (model.sizes(), model.cached_heads());
            for (what, count) in [("attention heads", heads), ("heads of keys and values", groups)] {
                if !count.is_multiple_of(ranks) {
                    let message = format!(
                        "has {count} {what}, which tensor_parallel divides among {ranks} ranks, expected a multiple \
                         of {ranks}"
                    );
                    return Err(wrong(&parameter.name, message));
                }
            }
            Divided { dim: 0, sections: vec![heads * width, groups * width, groups * width] }
        }
        Rule::Rows | Rule::Vocabulary => Divided::whole_extent(0, shape[0]),
        Rule::Columns => Divided::whole_extent(1, shape[1]),
    };
    if by.fits(shape, ranks) {
        return Ok(Some(by));
    }
    if rule == Rule::Vocabulary {
        return Ok(None);
    }
    let message = format!(
        "has shape {shape:?}, whose dimension {} tensor_parallel divides among {ranks} ranks, expected a multiple of \
         {ranks}",
        by.dim
    );
    Err(wrong(&parameter.name, message))
}

/// `division` with the parameters of `model` that are below `path` among the arguments of a program; of `parameters`
/// alone.
///
/// # Errors
/// As [`divided`].
pub fn with_divided(
    division: Division,
    path: &str,
    (model, parameters): (&dyn Model, Vec<Parameter>),
    ranks: usize,
) -> Result<Division> {
    parameters.into_iter().try_fold(division, |division, parameter| {
        Ok(match divided(model, &parameter, ranks)? {
            Some(by) => division.with_part(&format!("{path}.{}", parameter.name), by),
            None => division,
        })
    })
}

/// The division of a [`TrainState`](crate::step::TrainState) that is argument `argument` of a program, along an axis:
/// of parameters and both moments, and of the copies, if the state has them.
///
/// # Errors
/// As [`divided`].
pub fn division(argument: &str, axis: &Axis, model: &dyn Model, copies: bool) -> Result<Division> {
    let trees = ["params", "exp_avg", "exp_avg_sq"].map(|tree| (tree, model.parameters()));
    let copies = copies.then(|| ("copies", copied(model)));
    trees.into_iter().chain(copies).try_fold(Division::new(axis.name()), |division, (tree, parameters)| {
        with_divided(division, &format!("{argument}.{tree}"), (model, parameters), axis.extent())
    })
}

/// `options` for a program that takes parameters as its argument `params`, and with `cached` a cache of keys and values
/// as `cache`: divided, if their mesh has the axis for that.
///
/// # Errors
/// As [`divided`].
pub fn generating(model: &dyn Model, options: Options, cached: bool) -> Result<Options> {
    let Some((_, axis)) = options.mesh.axis(TENSOR) else { return Ok(options) };
    let parameters = (model, model.parameters());
    let mut division = with_divided(Division::new(TENSOR), "params", parameters, axis.extent())?;
    let [layers, groups, _] = model.cache_sizes();
    for layer in (0..layers).filter(|_| cached) {
        for tree in ["keys", "values"] {
            division = division.with_part(&format!("cache.{tree}.{layer}"), Divided::whole_extent(1, groups));
        }
    }
    Ok(options.with_tensor_parallel(division))
}

/// The part of an array that a rank at `place` of so many has, on the host.
fn part(array: &Array, by: &Divided, place: usize, ranks: usize) -> Result<Array> {
    let (shape, bytes) = (array.shape().to_vec(), array.to_bytes()?);
    let mut own = try_room(bytes.len() / ranks)?;
    each_run(&shape, by, array.dtype().size(), ranks, &mut |of, range| {
        if of == place {
            own.extend_from_slice(&bytes[range]);
        }
    });
    Array::from_bytes(by.part(&shape, ranks), array.dtype(), &own)
}

/// The whole array of which the ranks' parts are one after another along the dimension, on the host.
fn joined(parts: &Array, by: &Divided, ranks: usize) -> Result<Array> {
    let (shape, bytes) = (parts.shape().to_vec(), parts.to_bytes()?);
    let size = parts.dtype().size();
    // Where each rank's part of each row begins.
    let row: usize = shape[by.dim..].iter().product::<usize>() * size;
    let mut read: Vec<usize> = (0..ranks).map(|place| place * row / ranks).collect();
    let mut left = vec![row / ranks; ranks];
    let mut whole: Vec<u8> = try_zeroed(bytes.len())?;
    each_run(&shape, by, size, ranks, &mut |of, range| {
        let from = read[of];
        whole[range.clone()].copy_from_slice(&bytes[from..from + range.len()]);
        (read[of], left[of]) = (from + range.len(), left[of] - range.len());
        if left[of] == 0 {
            (read[of], left[of]) = (read[of] + row - row / ranks, row / ranks);
        }
    });
    Array::from_bytes(shape, parts.dtype(), &whole)
}

/// Tells of each run of bytes of a whole tensor which rank has it, in their order.
fn each_run(
    shape: &[usize],
    by: &Divided,
    size: usize,
    ranks: usize,
    tell: &mut dyn FnMut(usize, std::ops::Range<usize>),
) {
    let outer: usize = shape[..by.dim].iter().product();
    let inner: usize = shape[by.dim + 1..].iter().product::<usize>() * size;
    let mut at = 0;
    for _ in 0..outer {
        for section in &by.sections {
            for place in 0..ranks {
                let end = at + section / ranks * inner;
                tell(place, at..end);
                at = end;
            }
        }
    }
}

/// What a rank at `place` along an axis has of parameters of `model`, on the host.
///
/// # Errors
/// As [`divided`], or there is not as much memory.
pub fn parts(whole: Parameters<Array>, model: &dyn Model, place: usize, axis: &Axis) -> Result<Parameters<Array>> {
    rebuilt(&whole, model, &mut |parameter| {
        let array = whole.get(&parameter.name).unwrap_or_else(|| unreachable!("one of their names"));
        match divided(model, parameter, axis.extent())? {
            Some(by) => part(array, &by, place, axis.extent()),
            None => Ok(array.clone()),
        }
    })
}

/// The whole tensors of parameters of which each rank along an axis has parts, on the host. All ranks call it.
///
/// # Errors
/// As [`divided`], or a rank does not call it, or there is not as much memory.
pub fn wholes(
    parts: &Parameters<Array>,
    model: &dyn Model,
    axis: &Axis,
    options: &Options,
) -> Result<Parameters<Array>> {
    rebuilt(parts, model, &mut |parameter| {
        let own = parts.get(&parameter.name).unwrap_or_else(|| unreachable!("one of their names"));
        let Some(by) = divided(model, parameter, axis.extent())? else { return own.to_device(Device::CPU) };
        let gather = jit(|(part,): (Tensor,)| all_gather_one(part, &String::from(axis), by.dim));
        let gather = gather.named("whole").arguments(["part"]).results(["whole"]).options(options.clone());
        joined(&gather.call((own.clone(),))?.to_device(Device::CPU)?, &by, axis.extent())
    })
}

/// Parameters of `model` that are among `there`, made anew.
fn rebuilt(
    there: &Parameters<Array>,
    model: &dyn Model,
    make: &mut dyn FnMut(&Parameter) -> Result<Array>,
) -> Result<Parameters<Array>> {
    let names = there.leaves().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let list = model.parameters().into_iter().filter(|parameter| names.contains(&parameter.name));
    Parameters::build(&list.collect::<Vec<_>>(), make)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_the_whole_again() {
        let by = Divided { dim: 1, sections: vec![4, 2, 2] };
        let values: Vec<f32> = (0..48_u8).map(f32::from).collect();
        let whole = Array::new([2, 8, 3], &values).unwrap();
        let first = part(&whole, &by, 0, 2).unwrap();
        assert_eq!((first.shape(), first.to_vec::<f32>().unwrap()[3]), (&[2, 4, 3][..], 3.0));
        assert_eq!(part(&whole, &by, 1, 2).unwrap().to_vec::<f32>().unwrap()[..3], [6.0, 7.0, 8.0]);
        let parts = [0, 1].map(|place| part(&whole, &by, place, 2).unwrap().to_vec::<f32>().unwrap());
        // As `all_gather` gives them.
        let rows: Vec<f32> =
            (0..2).flat_map(|row| parts.iter().flat_map(move |part| part[row * 12..(row + 1) * 12].to_vec())).collect();
        let gathered = Array::new([2, 8, 3], &rows).unwrap();
        assert_eq!(joined(&gathered, &by, 2).unwrap().to_vec::<f32>().unwrap(), values);
    }

    #[test]
    fn names_of_every_model_have_rules() {
        for (name, expected) in [
            ("h.11.attn.c_attn.bias", Some(Rule::Heads)),
            ("h.0.attn.c_proj.bias", None),
            ("h.3.mlp.fc_2.weight", Some(Rule::Rows)),
            ("h.3.mlp.proj.weight", Some(Rule::Columns)),
            ("h.3.mlp.experts.0.fc_1.weight", None),
            ("wte.weight", Some(Rule::Vocabulary)),
            ("wpe.weight", None),
            ("ln_f.weight", None),
        ] {
            assert_eq!(rule(name), expected, "{name}");
        }
    }
}
