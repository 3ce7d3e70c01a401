//! What a problem changes about scores and weights, as kernels take it (`masks.cuh`).

use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{DeviceTensor, Parameter, Plan, Result};
use fulgurite_runtime::{DType, TensorMeta, refuse_unless};

use super::mask_bases::{Bases, Sees};
use super::mask_bits::Bits;
use super::problem::Problem;
use fulgurite_executor_cuda::elementwise::contiguous_copy;
use fulgurite_executor_cuda::support::type_of;
use fulgurite_ops::nn::attention_changes::ChangesMeta;

/// How a problem attends.
#[derive(Clone, Copy)]
pub(super) struct Way<'a> {
    pub is_causal: bool,
    pub scale: f64,
    /// Whether operands of f32 are rounded to TF32.
    pub tf32: bool,
    pub changes: Changes<'a>,
}

/// What there is beside causal attention.
#[derive(Clone, Copy, Default)]
pub(super) struct Changes<'a> {
    /// Booleans, or numbers of the elements' type: [B, H, L, S], where every extent may be 1.
    pub mask: Option<&'a DeviceTensor>,
    /// How many keys of each batch are seen: [B].
    pub lengths: Option<&'a DeviceTensor>,
    pub window: Option<i64>,
    pub cap: Option<f64>,
    /// The generator, and the probability of a weight to be dropped.
    pub dropped: Option<(&'a DeviceTensor, f64)>,
}

/// A mask, and what was computed of it before.
pub(super) enum Marks {
    Booleans,
    Numbers(Bases),
    Bits(Bits),
}

impl Changes<'_> {
    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        self.of_registers() == 0 && self.lengths.is_none() && self.window.is_none()
    }

    /// How many of the changes take registers for each score.
    pub fn of_registers(&self) -> usize {
        [self.mask.is_some(), self.cap.is_some(), self.dropped.is_some()].into_iter().filter(|has| *has).count()
    }

    /// Plans what kernels need of a mask before they begin: of booleans the bits `by_groups`, for kernels of warp
    /// groups, of each query, and `by_key` also of each key; of numbers the bases of rows.
    pub fn marks(
        &self,
        plan: &mut Plan,
        problem: &Problem,
        is_causal: bool,
        [by_groups, by_key]: [bool; 2],
    ) -> Result<Option<Marks>> {
        Ok(match self.mask {
            None => None,
            Some(mask) if mask.dtype() != DType::Bool => {
                let lengths = self.lengths.map(|lengths| contiguous(plan, lengths)).transpose()?;
                let sees = Sees { is_causal, lengths: lengths.as_ref(), window: self.window.map(rows_of) };
                Some(Marks::Numbers(Bases::plan(plan, mask, problem, sees)?))
            }
            Some(mask) if by_groups => Some(Marks::Bits(Bits::plan(plan, mask, problem, by_key)?)),
            Some(_) => Some(Marks::Booleans),
        })
    }

    /// Tells the kernels which changes they are compiled for.
    pub fn define(&self, plan: &mut Plan, marks: Option<&Marks>) {
        if let Some(marks) = marks {
            let form = match marks {
                Marks::Booleans => 1,
                Marks::Numbers(_) => 2,
                Marks::Bits(_) => 3,
            };
            plan.define("MASK", form);
        }
        if let Some(lengths) = self.lengths {
            plan.define("LENGTHS", type_of(lengths.dtype()));
        }
        for (name, has) in [("WINDOW", self.window.is_some()), ("CAPPED", self.cap.is_some())] {
            if has {
                plan.define(name, 1);
            }
        }
        if let Some((generator, _)) = self.dropped {
            plan.define("DROPPED", 1 + u8::from(is_of_part(generator)));
        }
    }

    /// The last parameters of the kernels, in the order of `masks.cuh`, of kernels whose rows are keys with `of_keys`.
    pub fn parameters(
        &self,
        plan: &mut Plan,
        problem: &Problem,
        marks: Option<&Marks>,
        of_keys: bool,
    ) -> Result<Vec<Parameter>> {
        let mut parameters = Vec::new();
        if let Some(Marks::Bits(bits)) = marks {
            parameters.extend(bits.parameters(of_keys));
        } else if let Some(mask) = self.mask {
            let stride =
                |mask: &DeviceTensor, dim: usize| if mask.shape()[dim] == 1 { 0 } else { mask.strides[dim] as i64 };
            let reach = |dim: usize| (mask.shape()[dim] as i64).saturating_mul(stride(mask, dim).abs());
            // Within a head the kernels count in 32 bits.
            let near = reach(2).saturating_add(reach(3)) <= i64::from(i32::MAX);
            let mask = if near { mask.clone() } else { contiguous_copy(plan, mask)? };
            parameters.extend([Parameter::from(&mask), Parameter::from([0, 1, 2, 3].map(|dim| stride(&mask, dim)))]);
        }
        if let Some(Marks::Numbers(bases)) = marks {
            parameters.extend(bases.parameters());
        }
        if let Some(lengths) = self.lengths {
            parameters.push((&contiguous(plan, lengths)?).into());
        }
        parameters.extend(self.window.map(|window| Parameter::from(rows_of(window))));
        parameters.extend(self.cap.map(|cap| Parameter::from(cap as f32)));
        if let Some((generator, probability)) = self.dropped {
            parameters.push((&contiguous(plan, generator)?).into());
            parameters.extend([Parameter::from(threshold(probability)), ((1.0 / (1.0 - probability)) as f32).into()]);
            if is_of_part(generator) {
                parameters.push(Parameter::from(problem.batch * problem.heads * problem.queries));
            }
        }
        Ok(parameters)
    }
}

/// Whether a generator draws a part of a larger batch.
fn is_of_part(generator: &DeviceTensor) -> bool {
    generator.shape() == [3]
}

/// What the upper 24 bits of a word are at least if its weight is kept: `dropout` compares the number of 24 bits that
/// `prims::uniform` makes of them with the probability in f32.
fn threshold(probability: f64) -> u32 {
    (f64::from(probability as f32) * f64::from(1u32 << 24)).ceil() as u32
}

/// A window as kernels take it: rows are fewer than the longest.
fn rows_of(window: i64) -> i32 {
    window.min(1 << 30) as i32
}

fn contiguous(plan: &mut Plan, tensor: &DeviceTensor) -> Result<DeviceTensor> {
    if tensor.is_contiguous() { Ok(tensor.clone()) } else { contiguous_copy(plan, tensor) }
}

/// Whether the kernels take these changes of attention of a query [B, H, L, E] to a key [B, H', S, E].
pub(super) fn changes_fit(changes: &ChangesMeta<'_>, query: &TensorMeta, key: &TensorMeta) -> Claim {
    changes.fit(query, key)?;
    if let Some(mask) = changes.mask {
        let of_head = mask.shape()[2..].iter().product::<usize>();
        refuse_unless!(of_head <= i32::MAX as usize, "mask is {mask}, takes at most {} of a head", i32::MAX);
    }
    let of_registers = [changes.mask.is_some(), changes.cap.is_some(), changes.dropout_p > 0.0];
    let count = of_registers.into_iter().filter(|has| *has).count();
    // More do not fit registers.
    let most = match (query.dtype(), query.shape()[3]) {
        (_, 193..) => 1,
        (DType::F32, 65..) => 2,
        _ => 3,
    };
    refuse_unless!(
        count <= most,
        "heads are {} wide in {}, takes at most {most} of a mask, a cap and dropout there, here are {count}",
        query.shape()[3],
        query.dtype()
    );
    Ok(())
}
