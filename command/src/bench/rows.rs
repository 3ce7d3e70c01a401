//! What `bench` measures: a row for each training step, operator, attention and product.

use serde::Serialize;

use super::work::{Form, Mask, Work};

/// Parts of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Training steps.
    Steps,
    /// Training steps on several GPUs.
    ManyGpus,
    /// Attention.
    Attention,
    /// Operators that are bound by memory.
    Operators,
    /// Products.
    Products,
    /// Convolutions.
    Convolutions,
    /// All that runs on the host.
    Host,
}

impl Group {
    /// All of them, in the order of the table.
    pub const ALL: [Group; 7] = [
        Group::Steps,
        Group::ManyGpus,
        Group::Attention,
        Group::Operators,
        Group::Products,
        Group::Convolutions,
        Group::Host,
    ];

    /// The heading of its rows.
    pub const fn heading(self) -> &'static str {
        match self {
            Group::Steps => "Training steps",
            Group::ManyGpus => "Many GPUs",
            Group::Attention => "Attention",
            Group::Operators => "Operators bound by memory",
            Group::Products => "Products",
            Group::Convolutions => "Convolutions",
            Group::Host => "On the host",
        }
    }
}

/// One row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// What `--only` selects it by.
    pub name: String,
    /// Its part of the table.
    pub group: Group,
    /// Whether `--quick` has it.
    #[serde(skip)]
    pub quick: bool,
    /// The work that it measures.
    #[serde(flatten)]
    pub work: Work,
}

/// What the names of rows of many GPUs begin with.
pub const MANY_GPUS: &str = "many-gpus";

fn row(group: Group, name: impl Into<String>, quick: bool, work: Work) -> Row {
    Row { name: name.into(), group, quick, work }
}

fn steps() -> Vec<Row> {
    let step = |name: &str, size, [batch, context, steps]: [usize; 3], precision, checkpointing, quick| {
        let work = Work::Step { size, batch, context, precision, checkpointing, steps };
        row(Group::Steps, format!("gpt2-{name}"), quick, work)
    };
    let first = Work::FirstStep { size: "124M", batch: 16, context: 1024, precision: "bf16-mixed" };
    vec![
        step("b16-t1024-bf16", "124M", [16, 1024, 40], "bf16-mixed", false, false),
        step("b64-t1024-bf16", "124M", [64, 1024, 15], "bf16-mixed", false, false),
        step("b4-t1024-bf16", "124M", [4, 1024, 60], "bf16-mixed", false, false),
        step("b4-t1024-tf32", "124M", [4, 1024, 40], "tf32", false, false),
        step("b4-t64-bf16", "124M", [4, 64, 100], "bf16-mixed", false, true),
        step("b4-t64-tf32", "124M", [4, 64, 100], "tf32", false, false),
        step("1558M-bf16", "1558M", [4, 1024, 8], "bf16-mixed", false, false),
        step("1558M-checkpointed-bf16", "1558M", [4, 1024, 6], "bf16-mixed", true, false),
        row(Group::Steps, "gpt2-first-step", false, first),
    ]
}

/// The numbers of GPUs that a step is divided over.
const MANY: [usize; 3] = [2, 4, 8];

/// The same batch on each GPU: the time on one of them is what that on several is compared with.
fn many_gpus() -> Vec<Row> {
    let strategies = ["ddp", "zero2", "zero3"];
    let rows_of = |(name, model, size, [batch, context, steps], quick): (&str, _, _, [usize; 3], bool)| {
        let on = |devices, strategy: Option<&'static str>| {
            let how = strategy.map_or_else(String::new, |strategy| format!("-{strategy}"));
            let precision = "bf16-mixed";
            let work = Work::RanksStep { model, size, batch, context, precision, devices, strategy, steps };
            let quick = quick && devices <= 2 && strategy.is_none_or(|strategy| strategy == "ddp");
            row(Group::ManyGpus, format!("{MANY_GPUS}-{name}-b{batch}{how}-x{devices}"), quick, work)
        };
        let several = MANY.into_iter().flat_map(|devices| strategies.map(|strategy| on(devices, Some(strategy))));
        [on(1, None)].into_iter().chain(several).collect::<Vec<_>>()
    };
    let models = [
        ("gpt2", "gpt2", "124M", [16, 1024, 40], false),
        ("gpt2", "gpt2", "124M", [4, 1024, 60], true),
        ("tinyllama", "llama", "TinyLlama-1.1B", [4, 2048, 20], false),
    ];
    models.into_iter().flat_map(rows_of).collect()
}

fn attention() -> Vec<Row> {
    let of = |name: &str, [batch, heads, groups, length, width]: [usize; 5], mask, dtype, quick| {
        let work = Work::Attention { batch, heads, groups, length, width, mask, dtype };
        row(Group::Attention, format!("attention-{name}"), quick, work)
    };
    vec![
        of("gpt2", [16, 12, 12, 1024, 64], Mask::Causal, "bf16", true),
        of("t4096-d128", [4, 32, 32, 4096, 128], Mask::Causal, "bf16", false),
        of("grouped-t8192", [2, 32, 8, 8192, 128], Mask::Causal, "bf16", false),
        of("window-1024", [2, 32, 8, 8192, 128], Mask::Window(1024), "bf16", false),
        of("full", [4, 32, 32, 2048, 128], Mask::Full, "bf16", false),
        of("boolean-mask", [4, 32, 32, 2048, 128], Mask::Boolean, "bf16", false),
        of("d256", [4, 16, 16, 4096, 256], Mask::Causal, "bf16", false),
        of("f32", [4, 12, 12, 1024, 64], Mask::Causal, "f32", false),
    ]
}

fn operators() -> Vec<Row> {
    let mut rows = Vec::new();
    for (dtype, times) in [("f32", 1), ("bf16", 2)] {
        // As many bytes in every type: the second-level cache, which keeps a part of what the kernel before wrote, has
        // as much of each.
        let shapes = [
            ("layer_norm", [32_768 * times, 768]),
            ("rms_norm", [8_192 * times, 4096]),
            ("softmax", [8_192 * times, 4096]),
            ("gelu", [32_768 * times, 768]),
            ("cross_entropy", [4_096 * times, 50_257]),
        ];
        for (operator, shape) in shapes {
            let quick = dtype == "bf16" && operator == "layer_norm";
            let work = Work::Operator { operator, shape, dtype };
            rows.push(row(Group::Operators, format!("{operator}-{dtype}"), quick, work));
        }
        // As the rows of logits of a training step: padded, so that all of them begin alike.
        let work = Work::Operator { operator: "cross_entropy", shape: [4_096 * times, 50_304], dtype };
        rows.push(row(Group::Operators, format!("cross_entropy-padded-{dtype}"), false, work));
    }
    for (operator, shape) in [
        ("fused_add_rms_norm", [16_384, 4096]),
        ("rope", [16_384, 40 * 128]),
        ("group_norm", [32 * 1024, 512]),
        ("poly_norm", [16_384, 4096]),
        ("dyt", [16_384, 4096]),
        ("sparsemax", [4096, 32_000]),
        ("kl_div", [4096, 32_000]),
        ("jsd", [4096, 32_000]),
    ] {
        let work = Work::Operator { operator, shape, dtype: "bf16" };
        rows.push(row(Group::Operators, format!("{operator}-bf16"), false, work));
    }
    // Moments are f32 in every precision but bf16-true.
    for dtype in ["f32", "bf16"] {
        let work = Work::Operator { operator: "adamw", shape: [124_475_904 / 768, 768], dtype };
        rows.push(row(Group::Operators, format!("adamw-{dtype}"), false, work));
    }
    rows
}

fn products() -> Vec<Row> {
    let rows_of = |(name, [m, n, k]): (&str, [usize; 3])| {
        // The product of a linear layer with `n` outputs and `k` inputs for `m` tokens, and those of its gradients.
        let forms = [
            ("forward", [m, n, k], Form::Linear),
            ("input", [m, k, n], Form::Input),
            ("weight", [n, k, m], Form::Weight),
        ];
        let one = |(form_name, [m, n, k], form): (&str, [usize; 3], Form)| {
            let work = Work::Product { m, n, k, form, dtype: "bf16" };
            let quick = name == "mlp" && form == Form::Linear;
            row(Group::Products, format!("product-{name}-{form_name}"), quick, work)
        };
        forms.map(one)
    };
    let tokens = 16 * 1024;
    let layers = [
        ("qkv", [tokens, 3 * 768, 768]),
        ("attention", [tokens, 768, 768]),
        ("mlp", [tokens, 4 * 768, 768]),
        ("mlp-out", [tokens, 768, 4 * 768]),
        ("head", [tokens, 50_257, 768]),
    ];
    layers.into_iter().flat_map(rows_of).collect()
}

/// The convolutions of ResNet-50 at 224 x 224, one of each kind, and a depthwise one.
fn convolutions() -> Vec<Row> {
    let of = |name: &str, [channels, extent, outputs, kernel]: [usize; 4], stride, groups, dtype, quick| {
        let images = [64, channels, extent, extent];
        let work = Work::Convolution { images, outputs, kernel, stride, groups, dtype };
        row(Group::Convolutions, format!("conv2d-{name}"), quick, work)
    };
    vec![
        of("stem-bf16", [3, 224, 64, 7], 2, 1, "bf16", false),
        of("56-1x1-bf16", [64, 56, 256, 1], 1, 1, "bf16", false),
        of("56-3x3-bf16", [64, 56, 64, 3], 1, 1, "bf16", true),
        of("28-3x3-bf16", [128, 28, 128, 3], 1, 1, "bf16", false),
        of("28-3x3-stride-bf16", [128, 56, 128, 3], 2, 1, "bf16", false),
        of("14-3x3-bf16", [256, 14, 256, 3], 1, 1, "bf16", false),
        of("14-1x1-bf16", [1024, 14, 256, 1], 1, 1, "bf16", false),
        of("7-3x3-bf16", [512, 7, 512, 3], 1, 1, "bf16", false),
        of("depthwise-bf16", [128, 56, 128, 3], 1, 128, "bf16", false),
        of("56-3x3-f16", [64, 56, 64, 3], 1, 1, "f16", false),
        of("56-3x3-f32", [64, 56, 64, 3], 1, 1, "f32", false),
        of("14-3x3-f32", [256, 14, 256, 3], 1, 1, "f32", false),
    ]
}

fn host() -> Vec<Row> {
    let step =
        Work::Step { size: "micro", batch: 8, context: 64, precision: "32-true", checkpointing: false, steps: 15 };
    let attention =
        Work::Attention { batch: 2, heads: 8, groups: 8, length: 1024, width: 64, mask: Mask::Causal, dtype: "f32" };
    // Beyond the last-level cache.
    let elements = (4 * fulgurite_kernels::machine::last_level_cache()).max(256 << 20) / size_of::<f32>();
    vec![
        row(Group::Host, "host-gpt2", true, step),
        row(Group::Host, "host-gelu", true, Work::Affine { elements, dtype: "f32" }),
        row(Group::Host, "host-attention", true, attention),
    ]
}

/// All rows, in the order of the table.
pub fn all() -> Vec<Row> {
    [steps(), many_gpus(), attention(), operators(), products(), convolutions(), host()].concat()
}

/// The rows that were asked for: those whose names begin with one of `only`, or of all those that `quick` has. Rows of
/// many GPUs are in no table that does not ask for them: they keep all GPUs of a machine busy for long.
///
/// # Errors
/// A beginning that no row has.
pub fn selected(only: &[String], quick: bool) -> Result<Vec<Row>, String> {
    let rows = all();
    for asked in only {
        if !rows.iter().any(|row| row.name.starts_with(&**asked)) {
            let names: Vec<&str> = rows.iter().map(|row| &*row.name).collect();
            return Err(format!("no row's name begins with '{asked}', there are: {}", names.join(", ")));
        }
    }
    let wanted = |row: &Row| match only.is_empty() {
        true => row.group != Group::ManyGpus && (!quick || row.quick),
        false => only.iter().any(|asked| row.name.starts_with(&**asked)) && (!quick || row.quick),
    };
    Ok(rows.into_iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_one_row_each() {
        let rows = all();
        for (i, row) in rows.iter().enumerate() {
            assert!(rows[..i].iter().all(|other| other.name != row.name && other.work != row.work), "{}", row.name);
        }
    }

    #[test]
    fn every_row_has_a_program_or_is_a_run() {
        for row in all() {
            let runs = matches!(row.work, Work::Step { .. } | Work::RanksStep { .. } | Work::FirstStep { .. });
            assert!(runs != super::super::cases::case(&row.work).is_some(), "{}", row.name);
        }
    }

    #[test]
    fn rows_are_selected_by_their_beginnings() {
        let names = |only: &[&str], quick| {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            selected(&only, quick).map(|rows| rows.into_iter().map(|row| row.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["host-g"], false).unwrap(), ["host-gpt2", "host-gelu"]);
        assert_eq!(names(&["attention"], true).unwrap(), ["attention-gpt2"]);
        let usual = names(&[], false).unwrap();
        assert_eq!(usual.len(), all().len() - many_gpus().len());
        assert!(usual.iter().all(|name| !name.starts_with(MANY_GPUS)));
        assert_eq!(names(&["many-gpus"], true).unwrap(), ["many-gpus-gpt2-b4-x1", "many-gpus-gpt2-b4-ddp-x2"]);
        assert!(names(&["x"], false).unwrap_err().starts_with("no row's name begins with 'x', there are: gpt2-"));
    }

    #[test]
    fn a_step_on_several_gpus_comes_after_the_same_step_on_one() {
        let rows = many_gpus();
        assert_eq!(rows.len(), 3 * (1 + 3 * 3));
        let mut ones = 0;
        for (i, row) in rows.iter().enumerate() {
            let Some(one) = row.work.on_one() else {
                ones += 1;
                assert_eq!((row.work.devices(), row.name.ends_with("-x1")), (1, true), "{}", row.name);
                continue;
            };
            assert!(rows[..i].iter().any(|before| before.work == one), "{}", row.name);
        }
        assert_eq!(ones, 3);
        let named = |name: &str| rows.iter().find(|row| row.name == name).unwrap().work.to_string();
        assert_eq!(named("many-gpus-gpt2-b16-x1"), "GPT-2 124M, B16 T1024 a GPU, bf16-mixed, one GPU");
        assert_eq!(
            named("many-gpus-tinyllama-b4-zero3-x4"),
            "TinyLlama-1.1B, B4 T2048 a GPU, bf16-mixed, zero3 on 4 GPUs"
        );
    }
}
