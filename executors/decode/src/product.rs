use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::device::Properties;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::rules::{DeviceTensor, Failure, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{DType, TensorMeta, refuse_unless, source_files};

use super::{AT_ONCE, decode, overlapping, readable, takes};
use fulgurite_executor_cuda::support::type_of;
use fulgurite_ops::nn::linear;

/// The most rows: columns of two results of the tensor cores.
const MOST_ROWS: usize = 16;
/// Outputs of a block: rows of a result of the tensor cores.
const OUTPUTS: usize = 16;
/// Inputs that are multiplied at a time: as many as four threads read at once. Of quantized weights they are more.
const STEP: usize = 32;
/// The smallest weight, in elements, whose time is that of reading it.
const LEAST_WEIGHT: usize = 1 << 18;
/// Steps whose weights are on their way to a thread: of blocks with several tiles, of blocks with one, which leave room
/// for those of the next kernel, and of two blocks on a multiprocessor. Measured on an H200, as is the number of steps
/// that warps have.
const DEPTHS: [usize; 3] = [8, 6, 4];
const STEPS_OF_WARP: usize = 4;
const MOST_WARPS: usize = 16;
/// The most warps where a block of more than eight rows has two quantized weights, or shares its multiprocessor with
/// another block: a thread needs more registers for what it multiplies 16 bytes of integers by.
const FEWER_WARPS: usize = 12;
/// The same of weights of 4 bits where two blocks share a multiprocessor.
const WARPS_OF_PAIRS: usize = 8;
/// The most bytes of the scales of one output, and of its offsets: tables of them are in shared memory beside a ring.
const MOST_OF_OUTPUT: usize = 1024;

/// Whether the kernel is written for `input` [..., in] times `weight` [out, in].
pub(crate) fn product_fits(input: &TensorMeta, weight: &TensorMeta) -> Claim {
    takes("input", input)?;
    refuse_unless!(weight.rank() == 2, "multiplies by matrices, weight is {weight}");
    let [outputs, inputs] = [0, 1].map(|dim| weight.shape()[dim]);
    refuse_unless!(
        inputs > 0 && inputs.is_multiple_of(STEP) && outputs > 0,
        "takes multiples of {STEP} inputs, weight is {weight}"
    );
    let rows = input.len() / inputs;
    refuse_unless!((1..=MOST_ROWS).contains(&rows), "takes 1 to {MOST_ROWS} rows, input is {input}");
    refuse_unless!(outputs <= i32::MAX as usize / inputs, "counts elements by an int, weight is {weight}");
    Ok(())
}

/// Whether the kernel is written for `input` [..., in] times a quantized weight of these scales.
pub(crate) fn quantized_fits(
    input: &TensorMeta,
    weight: &TensorMeta,
    scales: &TensorMeta,
    group_size: usize,
    bits: usize,
) -> Claim {
    takes("input", input)?;
    refuse_unless!(matches!(bits, 4 | 8) && weight.rank() == 2, "takes matrices of 8 and 4 bits, weight is {weight}");
    let (outputs, inputs) = (weight.shape()[0], weight.shape()[1] * (8 / bits));
    let step = STEP * 16 / bits;
    refuse_unless!(
        inputs > 0 && inputs.is_multiple_of(step) && outputs > 0,
        "takes multiples of {step} inputs of {bits} bits, weight is {weight}"
    );
    let rows = input.len() / inputs;
    refuse_unless!((1..=MOST_ROWS).contains(&rows), "takes 1 to {MOST_ROWS} rows, input is {input}");
    // What a thread reads at once has one scale.
    let neighbours = AT_ONCE * 8 / bits;
    refuse_unless!(
        group_size.is_multiple_of(neighbours),
        "takes groups of multiples of {neighbours} inputs of {bits} bits, group_size is {group_size}"
    );
    refuse_unless!(
        matches!(scales.dtype(), DType::BF16 | DType::F16 | DType::F32),
        "scales is {}, takes bf16, f16 and f32",
        scales.dtype()
    );
    // They are read by four bytes at least.
    refuse_unless!(scales.bytes().is_multiple_of(4), "takes an even number of scales, scales is {scales}");
    let of_output = inputs / group_size * scales.dtype().size();
    refuse_unless!(
        of_output <= MOST_OF_OUTPUT,
        "takes at most {MOST_OF_OUTPUT} bytes of scales of an output, scales is {scales}"
    );
    refuse_unless!(outputs <= i32::MAX as usize / inputs, "counts elements by an int, weight is {weight}");
    Ok(())
}

/// Whether the weight is so large that its product is worth a kernel of its own.
pub(crate) fn is_large(weight: &TensorMeta) -> Claim {
    refuse_unless!(weight.len() >= LEAST_WEIGHT, "leaves products with less than {LEAST_WEIGHT} weights to libraries");
    Ok(())
}

/// As [`is_large`], for conditions of rewrites: samples are small, and both sides are compared on the host.
pub(crate) fn is_worth_it(weight: &TensorMeta) -> Claim {
    refuse_unless!(weight.rank() == 2, "multiplies by matrices, weight is {weight}");
    if weight.device().is_cpu() { Ok(()) } else { is_large(weight) }
}

/// `input · weightᵀ`, or of two weights `swiglu(input · firstᵀ, input · secondᵀ)`, and what is done before and after.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    pub input: &'a DeviceTensor,
    pub weights: &'a [&'a DeviceTensor],
    /// The weight of the input's normalization, what is added to it, and the norm's `eps`.
    pub norm: Option<(&'a DeviceTensor, f64, f64)>,
    pub bias: Option<&'a DeviceTensor>,
    /// What is added to the rounded result.
    pub residual: Option<&'a DeviceTensor>,
    /// How the weights are quantized, if they are.
    pub quantized: Option<Quantized<'a>>,
}

/// How weights are quantized.
#[derive(Clone, Copy)]
pub(crate) struct Quantized<'a> {
    /// The scales of each weight.
    pub scales: &'a [&'a DeviceTensor],
    /// What is added to each number of a single weight.
    pub offsets: Option<&'a DeviceTensor>,
    pub group_size: usize,
    pub bits: usize,
}

impl Product<'_> {
    pub(crate) fn plan(&self, plan: &mut Plan, out: &DeviceTensor) -> Result<()> {
        let bits = self.quantized.map_or(16, |quantized| quantized.bits);
        let (outputs, inputs) = (out.shape()[out.rank() - 1], self.input.shape()[self.input.rank() - 1]);
        let (scales, offsets) = self.quantized.map_or((&[][..], None), |own| (own.scales, own.offsets));
        let gain = self.norm.map(|(gain, ..)| gain);
        let mut operands = Vec::new();
        let weights = self.weights.iter().chain(scales).copied();
        for tensor in [self.input].into_iter().chain(weights).chain(offsets).chain(gain).chain(self.bias) {
            operands.push(readable(plan, tensor)?);
        }
        // Over its own result it is read element by element, before that is written.
        if let Some(tensor) = self.residual {
            operands.push(if plan.lies_over(out, tensor) { tensor.clone() } else { readable(plan, tensor)? });
        }
        let rows = self.input.len() / inputs;
        let properties = plan.properties();
        let (tiles, multiprocessors) = (outputs.div_ceil(OUTPUTS), properties.multiprocessors);
        // Bytes of the scales and offsets of one output of each weight.
        let of_output = self.quantized.map_or(0, |Quantized { scales, offsets, group_size, .. }| {
            (scales.len() + usize::from(offsets.is_some())) * (inputs / group_size) * scales[0].dtype().size()
        });
        let Form { shared, in_pairs, warps, depth } =
            Form::of([rows, inputs, outputs], [self.weights.len(), bits, of_output], properties)?;
        let matrices = self.weights.len().max(if shared { 2 } else { 1 });
        let blocks_of_tile = if shared { 2 } else { 1 };
        let tiles = tiles.next_multiple_of(blocks_of_tile);
        let most = multiprocessors * if in_pairs { 2 } else { 1 };
        let blocks = tiles.min(most / blocks_of_tile * blocks_of_tile);
        let bytes = ring_bytes([inputs, bits, of_output], [matrices, blocks_of_tile, warps, depth]);
        plan.source(match self.quantized {
            None => source_files!["overlap.cuh", "product.cu"],
            Some(_) => source_files!["overlap.cuh", "quantized.cuh", "product.cu"],
        });
        plan.define("ELEMENT", type_of(out.dtype()));
        plan.define("ROWS", rows);
        plan.define("INPUTS", inputs);
        plan.define("OUTPUTS", outputs);
        plan.define("WARPS", warps);
        plan.define("DEPTH", depth / matrices);
        let (weights, rest) = operands[1..].split_at(self.weights.len());
        let figures = &rest[..scales.len() + usize::from(offsets.is_some())];
        // Each of them is asked of: those that are settled are read where the caller has them.
        let mut all_settled = |tensors: &[DeviceTensor]| {
            let unsettled = tensors.iter().filter(|tensor| !plan.is_settled(tensor)).count();
            unsettled == 0
        };
        let settled = all_settled(weights);
        let figures_settled = settled && all_settled(figures);
        plan.define("SETTLED", u8::from(settled));
        // Small inputs of a program may be copied by it: their weights are asked for before.
        plan.define("LATE_FIGURES", u8::from(settled && !figures_settled));
        plan.define("BITS", bits);
        plan.define("OFFSETS", u8::from(offsets.is_some()));
        if let Some(Quantized { scales, group_size, .. }) = self.quantized {
            plan.define("GROUP_SIZE", group_size);
            plan.define("SCALE", type_of(scales[0].dtype()));
        }
        plan.define("SHARED", u8::from(shared));
        plan.define("PAIRED", u8::from(in_pairs && rows <= 8 && self.quantized.is_some()));
        plan.define("GATED", u8::from(self.weights.len() == 2));
        plan.define("NORM", u8::from(self.norm.is_some()));
        plan.define("BIAS", u8::from(self.bias.is_some()));
        plan.define("RESIDUAL", u8::from(self.residual.is_some()));
        let (_, offset, eps) = self.norm.unwrap_or((out, 0.0, 0.0));
        plan.define("OFFSET", format_args!("{:?}f", offset as f32));
        plan.define("EPS", format_args!("{:?}f", eps as f32));
        let parameters = operands.iter().chain([out]).map(Parameter::from).collect();
        let shape = LaunchShape::linear(blocks as u32, 32 * warps as u32).shared(bytes as u32);
        let shape = if shared { shape.cluster([2, 1, 1]) } else { shape };
        let shape = overlapping(plan, shape);
        plan.launch("product", shape, parameters)
    }
}

/// How a product is divided.
struct Form {
    /// Two blocks share a part of the rows, and two tiles.
    shared: bool,
    /// Two blocks are on a multiprocessor.
    in_pairs: bool,
    /// Number of warps of a block.
    warps: usize,
    /// Steps of the ring, of all matrices together.
    depth: usize,
}

/// Bytes of a block's ring and tables of scales.
fn ring_bytes([inputs, bits, of_output]: [usize; 3], [matrices, blocks, warps, depth]: [usize; 4]) -> usize {
    let steps = (inputs / (STEP * 16 / bits)).div_ceil(blocks);
    // Tiles whose scales are in use, or whose weights are on their way.
    let tables = (depth / matrices).div_ceil(2 * steps.div_ceil(2 * warps)) + 1;
    depth * 2 * AT_ONCE * 32 * warps + tables * blocks * OUTPUTS * of_output
}

/// The most bytes that a block has beside that: for parts of sums and of squares, its own and of another block.
fn parts_bytes(matrices: usize, warps: usize) -> usize {
    (2 * matrices * 8 * 17 + 16) * size_of::<f32>() * warps + (16 * 17 + 16) * size_of::<f32>()
}

impl Form {
    /// The first form that fits: what is wanted, with a shorter ring, with one block on a multiprocessor, with blocks
    /// that share nothing, with fewer warps. A weight that is not quantized has the first one on all devices with the
    /// instructions that it needs.
    fn of(
        [rows, inputs, outputs]: [usize; 3],
        [weights, bits, of_output]: [usize; 3],
        properties: &Properties,
    ) -> Result<Form> {
        let (tiles, multiprocessors) = (outputs.div_ceil(OUTPUTS), properties.multiprocessors);
        // Each block reads all rows. Where there are many, and a block or two of every multiprocessor have all tiles,
        // two blocks share a part of the rows, and two tiles.
        let wants_shared = rows > 8
            && properties.clusters
            && weights == 1
            && (multiprocessors / 2..=2 * multiprocessors).contains(&tiles)
            && inputs >= 2 * STEP * STEPS_OF_WARP;
        let ways = [(wants_shared, true, 1), (wants_shared, false, 1), (false, true, 1), (false, false, 1)];
        let fewer = [2, 4, 8].map(|fewer| (false, false, fewer));
        for (shared, pairs, fewer) in ways.into_iter().chain(fewer) {
            let blocks = if shared { 2 } else { 1 };
            let matrices = weights.max(blocks);
            // Blocks go through several tiles; where all have one with two blocks on a multiprocessor, none waits for
            // a second one. Of more rows, which each block reads, fewer blocks are better.
            let in_pairs =
                pairs && (rows <= 8 || shared) && (multiprocessors + 1..=2 * multiprocessors).contains(&tiles);
            // Warps share the inputs of a tile of outputs.
            let warps = match bits {
                16 => (inputs / blocks / STEP / STEPS_OF_WARP).next_power_of_two().clamp(2, MOST_WARPS),
                _ => {
                    let most = match (in_pairs, bits) {
                        (true, 4) if rows <= 8 => WARPS_OF_PAIRS,
                        (true, _) => FEWER_WARPS,
                        (false, _) if rows > 8 && weights == 2 => FEWER_WARPS,
                        (false, _) => MOST_WARPS,
                    };
                    warps_of((inputs / (STEP * 16 / bits)).div_ceil(blocks), most / fewer)
                }
            };
            let room = |depth: usize| {
                let bytes = ring_bytes([inputs, bits, of_output], [matrices, blocks, warps, depth]);
                properties.shared_bytes_per_block / (bytes + parts_bytes(matrices, warps))
            };
            let together = if in_pairs { 2 } else { 1 };
            let wanted =
                match ((in_pairs && !shared) || room(DEPTHS[0]) < together, rows <= 8 && tiles <= multiprocessors) {
                    (true, _) => DEPTHS[2],
                    (false, true) => DEPTHS[1],
                    (false, false) => DEPTHS[0],
                };
            let depths = [wanted, DEPTHS[2], 2, matrices].into_iter().filter(|depth| *depth <= wanted);
            let mut fitting = depths.filter(|depth| depth.is_multiple_of(matrices) && room(*depth) >= together);
            match fitting.next() {
                Some(depth) => return Ok(Form { shared, in_pairs, warps, depth }),
                None if bits == 16 => return Ok(Form { shared, in_pairs, warps, depth: wanted }),
                None => {}
            }
        }
        let has = properties.shared_bytes_per_block;
        Err(Failure::new("SharedMemory", format!("scales of {inputs} inputs do not fit into {has} bytes of a block")))
    }
}

/// The warps of a block that multiplies so many steps of quantized inputs: as few as there are pairs of steps, or as
/// have equally many of them. A pair is a line of the cache.
fn warps_of(steps: usize, most: usize) -> usize {
    let pairs = steps.div_ceil(2);
    pairs.div_ceil(pairs.div_ceil(most)).max(2)
}

/// `input · weightᵀ + bias` of few rows: input [..., in], weight [out, in], bias [out]; out [..., out].
#[operator(name = "decode::product")]
pub mod product {
    fn product(
        input: Tensor<Floating>,
        weight: Tensor<Floating>,
        #[default(None)] bias: Option<Tensor<Floating>>,
    ) -> Tensor;

    fn decomposition(input: Tensor, weight: Tensor, bias: Option<Tensor>) -> Tensor {
        linear::with(input, weight).bias(bias).call()
    }

    fn reference(input: &ArrayD<f64>, weight: &ArrayD<f64>, bias: Option<&ArrayD<f64>>) -> ArrayD<f64> {
        rows_times(input, weight, bias)
    }

    fn samples(s: &mut Samples) {
        // One row, and as many as fit; outputs that end within a block.
        for (rows, inputs, outputs) in [(1, 64, 40), (2, 32, 16), (8, 96, 33), (9, 32, 17), (16, 64, 64)] {
            s.case(with(s.normal([rows, inputs]), s.normal([outputs, inputs])));
        }
        s.case(with(s.normal([2, 3, 64]), s.normal([24, 64])).bias(s.normal([24])));
        // Many steps, for the kernel.
        if s.dtype().size() == 2 {
            s.case(with(s.normal([5, 544]), s.normal([7, 544])));
            s.case(with(s.normal([1, 4096]), s.normal([3, 4096])).bias(s.normal([3])));
            // Outputs of two blocks each, and an odd number of steps.
            s.case(with(s.normal([9, 288]), s.normal([1081, 288])).bias(s.normal([1081])));
        }
        // What the kernel leaves to others.
        s.case(with(s.normal([17, 32]), s.normal([3, 32])));
        s.case(with(s.normal([2, 33]), s.normal([3, 33])));
    }
}

/// For references: `input · weightᵀ + bias`, one number after the other.
pub(crate) fn rows_times(
    input: &ndarray::ArrayD<f64>,
    weight: &ndarray::ArrayD<f64>,
    bias: Option<&ndarray::ArrayD<f64>>,
) -> ndarray::ArrayD<f64> {
    let (outputs, inputs) = (weight.shape()[0], weight.shape()[1]);
    let mut shape = input.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = outputs;
    }
    ndarray::ArrayD::from_shape_fn(ndarray::IxDyn(&shape), |index| {
        let mut at = ndarray::Dimension::slice(&index).to_vec();
        let (end, output) = (at.len() - 1, at[at.len() - 1]);
        let products = (0..inputs).map(|i| {
            at[end] = i;
            input[at.as_slice()] * weight[[output, i]]
        });
        products.sum::<f64>() + bias.map_or(0.0, |bias| bias[[output]])
    })
}

#[implementation(of = product, by = decode, strided)]
mod product_by_decode {
    fn checker(input: &TensorMeta, weight: &TensorMeta) -> Claim {
        super::product_fits(input, weight)
    }

    fn plan(plan: &mut Plan, Args { input, weight, bias }: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        super::Product { input, weights: &[weight], norm: None, bias, residual: None, quantized: None }.plan(plan, out)
    }
}

#[implementation(of = linear, by = decode)]
mod linear_by_decode {
    fn checker(input: &TensorMeta, weight: &TensorMeta) -> Claim {
        super::product_fits(input, weight)?;
        super::is_large(weight)
    }

    fn execution(input: Tensor, weight: Tensor, bias: Option<Tensor>) -> Tensor {
        super::product::with(input, weight).bias(bias).call()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_runtime::device::find_kind;

    /// The largest tables of scales, on devices with little and with much shared memory.
    #[test]
    fn every_form_fits_its_block() {
        for architecture in ["sm_80", "sm_86", "sm_90a", "sm_120"] {
            let properties = find_kind("cuda").expect("the kind is linked").typical(Some(architecture));
            for bits in [4, 8] {
                for (rows, weights) in [(1, 1), (1, 2), (8, 2), (9, 1), (16, 1), (16, 2)] {
                    for (inputs, outputs) in [(128, 16), (2048, 2560), (4096, 4096), (14336, 4096), (14336, 1100)] {
                        for of_output in [inputs / 128 * 2, MOST_OF_OUTPUT, 2 * MOST_OF_OUTPUT] {
                            let what = [weights, bits, of_output];
                            let form = Form::of([rows, inputs, outputs], what, &properties).expect("a form fits");
                            let blocks = if form.shared { 2 } else { 1 };
                            let matrices = weights.max(blocks);
                            let sizes = [matrices, blocks, form.warps, form.depth];
                            let bytes =
                                ring_bytes([inputs, bits, of_output], sizes) + parts_bytes(matrices, form.warps);
                            let together = if form.in_pairs { 2 } else { 1 };
                            assert!(
                                together * bytes <= properties.shared_bytes_per_block && form.depth >= matrices,
                                "{architecture}, {bits} bits, {rows} rows, {weights} weights, {inputs} to {outputs}: \
                                 {bytes} bytes, {together} blocks"
                            );
                        }
                    }
                }
            }
        }
    }
}
