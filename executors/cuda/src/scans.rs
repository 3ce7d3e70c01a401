//! Scans along any dimension of operands of any strides.
//!
//! A block has a line where elements are adjacent or lines are few, else a thread has one. A long line of few is cut
//! into pieces: their states are computed, then joined in order, and a second pass goes on from them. The pieces follow
//! from the shape alone, so the same numbers give the same bits.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{DType, binds, source_files};

use super::cuda;
use super::order::{ENOUGH_THREADS, Lines, lines_fit};
use super::support::{offset, type_of};

/// The least elements of a piece of a line, and the most pieces of one.
const LEAST_PIECE: usize = 8192;
const MOST_PIECES: usize = 512;

/// A rule of `scan.cu`, and the bytes of its state.
struct Rule {
    name: String,
    state_bytes: usize,
}

/// What a scan reads and writes.
struct Scan<'a> {
    rule: Rule,
    input: &'a DeviceTensor,
    second: Option<&'a DeviceTensor>,
    out: &'a DeviceTensor,
    places: Option<&'a DeviceTensor>,
    dim: usize,
}

/// The type that elements are put together in.
fn wide_of(dtype: DType) -> &'static str {
    if dtype.is_floating() { "double" } else { "i64" }
}

/// The rule `name` of elements of this type, whose state is one number.
fn fold(name: &str, dtype: DType) -> Rule {
    Rule { name: format!("{name}<{}>", wide_of(dtype)), state_bytes: 8 }
}

/// The rule of the largest elements, or of the smallest.
fn best(is_largest: bool, dtype: DType) -> Rule {
    Rule { name: format!("Best<{}, {}>", wide_of(dtype), if is_largest { 1 } else { -1 }), state_bytes: 16 }
}

impl Scan<'_> {
    fn plan(&self, plan: &mut Plan) -> Result<()> {
        let Scan { rule, input, second, out, places, dim } = self;
        if out.meta.is_empty() {
            return Ok(());
        }
        let none = vec![0isize; input.rank()];
        let strides = |tensor: &Option<&DeviceTensor>| tensor.map_or(none.clone(), |tensor| tensor.strides.clone());
        let [second_strides, places_strides] = [strides(second), strides(places)];
        let all = [&input.strides[..], &second_strides, &out.strides, &places_strides];
        let lines = Lines::new(input.shape(), all, *dim);
        let Lines { count, length, along, .. } = lines;
        plan.source(source_files!["scan.cu"]);
        plan.define("IN", type_of(input.meta.dtype()));
        plan.define("OUT", type_of(out.meta.dtype()));
        plan.define("NUMBER", wide_of(input.meta.dtype()));
        plan.define("RULE", &rule.name);
        plan.define("TWO_OPERANDS", usize::from(second.is_some()));
        plan.define("HAS_PLACES", usize::from(places.is_some()));
        for (i, name) in ["FROM(i)", "SECOND(i)", "TO(i)", "PLACE(i)"].into_iter().enumerate() {
            plan.define(name, offset(&lines.starts, i, "i"));
        }
        let or_null = |tensor: &Option<&DeviceTensor>| tensor.map_or(Parameter::from(0u64), Parameter::from);
        let mut tensors = binds![*input, or_null(second), *out, or_null(places)];
        tensors.extend(along.map(Parameter::from));
        // A block a line pays where elements are adjacent, or where there are too few lines for a thread each.
        let by_block = length >= 64 && (along[0] == 1 || count < ENOUGH_THREADS / 32);
        if !by_block {
            tensors.extend(binds![count, length]);
            return plan.launch("scan_columns", LaunchShape::linear(count.div_ceil(128) as u32, 128), tensors);
        }
        let threads = lines.threads(4, 512);
        let pieces = (ENOUGH_THREADS / count).clamp(1, (length / LEAST_PIECE).clamp(1, MOST_PIECES));
        let piece = length.div_ceil(pieces);
        let pieces = length.div_ceil(piece);
        let shape = LaunchShape::new([count as u32, pieces as u32, 1], [threads, 1, 1]);
        let mut states = Parameter::from(0u64);
        if pieces > 1 {
            states = plan.workspace((count * pieces * rule.state_bytes) as u64).into();
            let mut parameters = tensors.clone();
            parameters.extend(binds![states.clone(), length, piece]);
            plan.launch("scan_pieces", shape, parameters)?;
            let by_line = LaunchShape::linear(count.div_ceil(128) as u32, 128);
            plan.launch("scan_states", by_line, binds![states.clone(), count, pieces as u32])?;
        }
        tensors.extend(binds![states, length, piece]);
        plan.launch("scan_rows", shape, tensors)
    }
}

macro_rules! folds {
    ($($module:ident: $of:ident, |$dtype:ident| $rule:expr;)*) => {$(
        #[implementation(of = fulgurite_ops::prims::$of, by = cuda, strided)]
        mod $module {
            fn checker(input: &TensorMeta, dim: usize) -> Claim {
                super::lines_fit(input, dim)
            }

            fn plan(plan: &mut Plan, input: &DeviceTensor, dim: usize, out: &DeviceTensor) -> Result<()> {
                let $dtype = input.meta.dtype();
                super::Scan { rule: $rule, input, second: None, out, places: None, dim }.plan(plan)
            }
        }
    )*};
}

folds! {
    cumsum_by_cuda: cumsum, |dtype| super::fold("Sums", dtype);
    cumprod_by_cuda: cumprod, |dtype| super::fold("Products", dtype);
    logcumsumexp_by_cuda: logcumsumexp, |dtype| super::log_sums(dtype);
}

/// Exponentials are as exact as the elements.
fn log_sums(dtype: DType) -> Rule {
    let exponential = if dtype == DType::F64 { "double" } else { "float" };
    Rule { name: format!("LogSums<{exponential}>"), state_bytes: 16 }
}

macro_rules! choices {
    ($($module:ident: $of:ident, $is_largest:literal;)*) => {$(
        #[implementation(of = fulgurite_ops::prims::$of, by = cuda, strided)]
        mod $module {
            fn checker(input: &TensorMeta, dim: usize) -> Claim {
                super::lines_fit(input, dim)
            }

            fn plan(
                plan: &mut Plan,
                input: &DeviceTensor,
                dim: usize,
                values: &DeviceTensor,
                indices: &DeviceTensor,
            ) -> Result<()> {
                let rule = super::best($is_largest, input.meta.dtype());
                super::Scan { rule, input, second: None, out: values, places: Some(indices), dim }.plan(plan)
            }
        }
    )*};
}

choices! {
    cummax_by_cuda: cummax, true;
    cummin_by_cuda: cummin, false;
}

#[implementation(of = fulgurite_ops::prims::linear_scan, by = cuda, strided)]
mod linear_scan_by_cuda {
    fn checker(input: &TensorMeta, dim: usize) -> Claim {
        super::lines_fit(input, dim)
    }

    fn plan(
        plan: &mut Plan,
        coefficients: &DeviceTensor,
        input: &DeviceTensor,
        dim: usize,
        out: &DeviceTensor,
    ) -> Result<()> {
        let rule = super::Rule { name: "Linear".into(), state_bytes: 16 };
        super::Scan { rule, input: coefficients, second: Some(input), out, places: None, dim }.plan(plan)
    }
}
