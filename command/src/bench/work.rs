//! The work of a row: a training step, an operator, attention or a product, with its sizes.

use std::fmt;

use serde::Serialize;

/// What a row measures, as its peers are told it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    /// A training step of GPT-2 by `train --bench`: clipping, vocabulary 50257, the command's own data.
    Step {
        /// The model's size.
        size: &'static str,
        /// Sequences.
        batch: usize,
        /// Tokens of a sequence.
        context: usize,
        /// As `train --precision` has it.
        precision: &'static str,
        /// Whether the backward pass computes blocks again.
        checkpointing: bool,
        /// Steps that are timed.
        steps: usize,
    },
    /// A training step on several GPUs by `train --devices N --bench`, or its like on one of them.
    RanksStep {
        /// The family, by the name that `train` has for it.
        model: &'static str,
        /// The model's size.
        size: &'static str,
        /// Sequences of each GPU.
        batch: usize,
        /// Tokens of a sequence.
        context: usize,
        /// As `train --precision` has it.
        precision: &'static str,
        /// GPUs, each with a rank.
        devices: usize,
        /// As `train --strategy` has it; one GPU has none.
        strategy: Option<&'static str>,
        /// Steps that are timed.
        steps: usize,
    },
    /// How long a training run needs until the end of its first step, with all caches warm.
    FirstStep {
        /// The model's size.
        size: &'static str,
        /// Sequences.
        batch: usize,
        /// Tokens of a sequence.
        context: usize,
        /// As `train --precision` has it.
        precision: &'static str,
    },
    /// An operator that is bound by memory, forward and backward.
    Operator {
        /// Its name.
        operator: &'static str,
        /// Rows and columns of its first operand.
        shape: [usize; 2],
        /// The element type.
        dtype: &'static str,
    },
    /// Attention, forward and backward.
    Attention {
        /// Sequences.
        batch: usize,
        /// Heads of queries.
        heads: usize,
        /// Heads of keys and values.
        groups: usize,
        /// Tokens of a sequence.
        length: usize,
        /// Width of a head.
        width: usize,
        /// What a query sees.
        mask: Mask,
        /// The element type.
        dtype: &'static str,
    },
    /// A product `m × k` by `k × n`.
    Product {
        /// Rows of the result.
        m: usize,
        /// Columns of the result.
        n: usize,
        /// Length of its sums.
        k: usize,
        /// Which of the operands are transposed in memory.
        form: Form,
        /// The element type.
        dtype: &'static str,
    },
    /// A convolution of two dimensions, forward and backward: the gradients of its input and of its weight.
    Convolution {
        /// Images, channels, rows and columns.
        images: [usize; 4],
        /// Channels of the result.
        outputs: usize,
        /// Rows and columns of the weights.
        kernel: usize,
        /// Elements from one window to the next.
        stride: usize,
        /// Groups of channels.
        groups: usize,
        /// The element type.
        dtype: &'static str,
    },
    /// `gelu(x * a + b)` of a large tensor.
    Affine {
        /// Elements of the tensor.
        elements: usize,
        /// The element type.
        dtype: &'static str,
    },
}

impl Work {
    /// On how many devices it runs at once.
    pub fn devices(&self) -> usize {
        if let Work::RanksStep { devices, .. } = self { *devices } else { 1 }
    }

    /// The same step on one GPU, if this is one of several.
    pub fn on_one(&self) -> Option<Work> {
        let mut work = self.clone();
        match &mut work {
            Work::RanksStep { devices, strategy, .. } if *devices > 1 => (*devices, *strategy) = (1, None),
            _ => return None,
        }
        Some(work)
    }
}

/// What a query sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mask {
    /// Every query sees every key.
    Full,
    /// Itself and what is before it.
    Causal,
    /// Of these, so many.
    Window(usize),
    /// Everything, and a matrix of booleans says so.
    Boolean,
}

/// Which of the operands of a product are transposed in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// The second: a linear layer.
    Linear,
    /// Neither: the gradient of a linear layer's input.
    Input,
    /// The first: the gradient of its weight.
    Weight,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Step { size, batch, context, precision, checkpointing, .. } => {
                let again = if *checkpointing { ", blocks computed again" } else { "" };
                write!(f, "GPT-2 {size}, B{batch} T{context}, {precision}{again}")
            }
            Work::RanksStep { model, size, batch, context, precision, devices, strategy, .. } => {
                // A size of GPT-2 is a number.
                let model = if *model == "gpt2" { "GPT-2 " } else { "" };
                let gpus = match strategy {
                    Some(strategy) => format!("{strategy} on {devices} GPUs"),
                    None => "one GPU".to_owned(),
                };
                write!(f, "{model}{size}, B{batch} T{context} a GPU, {precision}, {gpus}")
            }
            Work::FirstStep { size, batch, context, precision } => {
                write!(f, "first step of GPT-2 {size}, B{batch} T{context}, {precision}, caches warm")
            }
            Work::Operator { operator, shape: [rows, columns], dtype } => {
                write!(f, "{operator}, {rows} x {columns}, {dtype}")
            }
            Work::Attention { batch, heads, groups, length, width, mask, dtype } => {
                let shared = if groups == heads { String::new() } else { format!(" ({groups} of keys)") };
                let mask = match mask {
                    Mask::Full => "full".to_owned(),
                    Mask::Causal => "causal".to_owned(),
                    Mask::Window(window) => format!("window {window}"),
                    Mask::Boolean => "boolean mask".to_owned(),
                };
                write!(f, "attention, B{batch} H{heads}{shared} T{length} D{width}, {mask}, {dtype}")
            }
            Work::Product { m, n, k, form, dtype } => {
                let form = match form {
                    Form::Linear => "linear layer",
                    Form::Input => "gradient of an input",
                    Form::Weight => "gradient of a weight",
                };
                write!(f, "{m} x {n} x {k}, {form}, {dtype}")
            }
            Work::Convolution { images: [batch, channels, rows, columns], outputs, kernel, stride, groups, dtype } => {
                let stride = if *stride == 1 { String::new() } else { format!(", stride {stride}") };
                let groups = if *groups == 1 { String::new() } else { format!(", {groups} groups") };
                write!(
                    f,
                    "conv2d, B{batch} {channels} x {rows} x {columns} to {outputs}, {kernel} x {kernel}\
                     {stride}{groups}, {dtype}"
                )
            }
            Work::Affine { elements, dtype } => write!(f, "gelu(x * a + b), {elements} elements, {dtype}"),
        }
    }
}
