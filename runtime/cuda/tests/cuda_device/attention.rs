//! Attention by cuDNN, compared with attention in f64 on the host.

use fulgurite_cuda::cudnn::{AttentionOperands, AttentionPlan, Cudnn, Pass, Problem, Strides};
use fulgurite_cuda::{CaptureMode, CudaError, DeviceMemory, Version, probe};
use fulgurite_kernels::DType;
use fulgurite_kernels::launch::DeviceAddress;
use half::{bf16, f16};

use crate::fixture::{Device, device, numbers, random};

/// The library; `None` if the test is skipped.
fn library(device: &Device) -> Option<Cudnn> {
    if !probe().cudnn.is_found() {
        assert!(std::env::var_os("FULGURITE_REQUIRE_CUDNN").is_none(), "{}", probe().cudnn);
        println!("skipped: {}", probe().cudnn);
        return None;
    }
    Some(Cudnn::new(&device.context).unwrap())
}

/// Where the heads of a tensor are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Heads {
    /// [batch, heads, rows, width]
    Apart,
    /// [batch, rows, heads, width]
    Adjacent,
    /// As adjacent, in rows of three such tensors, with room behind.
    Packed,
}

fn strides(layout: Heads, [_, heads, rows, width]: [usize; 4]) -> Strides {
    match layout {
        Heads::Apart => [heads * rows * width, rows * width, width],
        Heads::Adjacent => [rows * heads * width, width, heads * width],
        Heads::Packed => [rows * (3 * heads * width + 8), width, 3 * heads * width + 8],
    }
}

/// A case of both passes.
#[derive(Debug, Clone, Copy)]
struct Case {
    dtype: DType,
    batch: usize,
    heads: [usize; 2],
    rows: [usize; 2],
    width: usize,
    is_causal: bool,
    layout: Heads,
}

impl Case {
    fn extents(&self, of_keys: bool) -> [usize; 4] {
        let which = usize::from(of_keys);
        [self.batch, self.heads[which], self.rows[which], self.width]
    }

    fn problem(&self, pass: Pass) -> Problem {
        // Query, key, value, out and then d_out, d_query, d_key, d_value.
        let of_keys = [false, true, true, false, false, false, true, true];
        Problem {
            pass,
            dtype: self.dtype,
            batch: self.batch,
            heads: self.heads[0],
            shared_heads: self.heads[1],
            queries: self.rows[0],
            keys: self.rows[1],
            width: self.width,
            is_causal: self.is_causal,
            strides: of_keys[..pass.tensors()].iter().map(|of| strides(self.layout, self.extents(*of))).collect(),
        }
    }

    fn scale(&self) -> f64 {
        1.0 / (self.width as f64).sqrt()
    }

    /// What weights, gradients of scores and results are rounded by at most, as a part of each, twice.
    fn rounding(&self) -> f64 {
        if self.dtype == DType::BF16 { 1.0 / 256.0 } else { 1.0 / 2048.0 }
    }
}

/// A tensor of heads on both sides.
struct Tensor {
    dtype: DType,
    extents: [usize; 4],
    strides: Strides,
    /// [batch, heads, rows, width], as the device has them.
    values: Vec<f64>,
    memory: DeviceMemory,
}

fn encode(dtype: DType, value: f64) -> [u8; 2] {
    if dtype == DType::BF16 {
        bf16::from_f32(value as f32).to_le_bytes()
    } else {
        f16::from_f32(value as f32).to_le_bytes()
    }
}

fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    if dtype == DType::BF16 {
        numbers::<bf16>(bytes).into_iter().map(f64::from).collect()
    } else {
        numbers::<f16>(bytes).into_iter().map(f64::from).collect()
    }
}

impl Tensor {
    /// Of `values`, or of NaN without.
    fn new(device: &Device, case: &Case, of_keys: bool, values: Option<Vec<f64>>) -> Tensor {
        let extents = case.extents(of_keys);
        let strides = strides(case.layout, extents);
        let mut bytes = vec![0xFF; extents[0] * strides[0] * 2];
        let dtype = case.dtype;
        let values = values.map(|values| {
            for (i, value) in values.iter().enumerate() {
                let at = place(extents, strides, i) * 2;
                bytes[at..at + 2].copy_from_slice(&encode(dtype, *value));
            }
            let rounded: Vec<u8> = values.iter().flat_map(|value| encode(dtype, *value)).collect();
            decode(dtype, &rounded)
        });
        let memory = device.upload(&bytes);
        Tensor { dtype, extents, strides, values: values.unwrap_or_default(), memory }
    }

    fn random(device: &Device, case: &Case, of_keys: bool, seed: u64) -> Tensor {
        let mut next = random(seed);
        let count = case.extents(of_keys).iter().product();
        Tensor::new(device, case, of_keys, Some((0..count).map(|_| 2.0 * next()).collect()))
    }

    /// [batch, heads, rows, width] of what the device has now; what is between rows must be NaN as before.
    fn read(&self, device: &Device) -> Vec<f64> {
        let all = decode(self.dtype, &device.download(&self.memory));
        let count = self.extents.iter().product();
        let values: Vec<f64> = (0..count).map(|i| all[place(self.extents, self.strides, i)]).collect();
        let untouched = all.iter().filter(|value| value.is_nan()).count();
        let missing = values.iter().filter(|value| value.is_nan()).count();
        assert_eq!(untouched - missing, all.len() - count, "what is between rows was written");
        values
    }
}

/// Where element `index` of a contiguous tensor is.
fn place([_, heads, rows, width]: [usize; 4], strides: Strides, index: usize) -> usize {
    let (row, column) = (index / width, index % width);
    let (head, row) = (row / rows, row % rows);
    let (batch, head) = (head / heads, head % heads);
    batch * strides[0] + head * strides[1] + row * strides[2] + column
}

/// The definition, in f64.
struct Definition {
    out: Vec<f64>,
    log_sums: Vec<f64>,
    d_query: Vec<f64>,
    d_key: Vec<f64>,
    d_value: Vec<f64>,
}

fn define(case: &Case, query: &[f64], key: &[f64], value: &[f64], d_out: &[f64]) -> Definition {
    let [[heads, shared], [queries, keys], width] = [case.heads, case.rows, [case.width; 2]];
    let width = width[0];
    let mut all = Definition {
        out: vec![0.0; query.len()],
        log_sums: vec![0.0; query.len() / width],
        d_query: vec![0.0; query.len()],
        d_key: vec![0.0; key.len()],
        d_value: vec![0.0; key.len()],
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let add = |to: &mut [f64], factor: f64, from: &[f64]| {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
    };
    for line in 0..case.batch * heads * queries {
        let (head, i) = (line / queries, line % queries);
        let group = head / heads * shared + head % heads / (heads / shared);
        let seen = if case.is_causal { keys.min(i + 1) } else { keys };
        let of_query = line * width..(line + 1) * width;
        let of_key = |j: usize| (group * keys + j) * width..(group * keys + j + 1) * width;
        let scores: Vec<f64> =
            (0..seen).map(|j| dot(&query[of_query.clone()], &key[of_key(j)]) * case.scale()).collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let log_sum = top + scores.iter().map(|score| (score - top).exp()).sum::<f64>().ln();
        let weights: Vec<f64> = scores.iter().map(|score| (score - log_sum).exp()).collect();
        all.log_sums[line] = log_sum;
        for (j, weight) in weights.iter().enumerate() {
            add(&mut all.out[of_query.clone()], *weight, &value[of_key(j)]);
        }
        let d_out = &d_out[of_query.clone()];
        let delta = dot(d_out, &all.out[of_query.clone()]);
        for (j, weight) in weights.iter().enumerate() {
            let d_score = weight * (dot(d_out, &value[of_key(j)]) - delta) * case.scale();
            add(&mut all.d_value[of_key(j)], *weight, d_out);
            add(&mut all.d_query[of_query.clone()], d_score, &key[of_key(j)]);
            add(&mut all.d_key[of_key(j)], d_score, &query[of_query.clone()]);
        }
    }
    all
}

/// The largest difference, as a part of what is expected and the root of the mean of its squares: what cancels on the
/// way leaves errors of the latter's size.
fn worst(found: &[f64], expected: &[f64]) -> f64 {
    let usual = (expected.iter().map(|value| value * value).sum::<f64>() / expected.len() as f64).sqrt();
    let differences =
        found.iter().zip(expected).map(|(found, expected)| (found - expected).abs() / (usual + expected.abs()));
    // A NaN is the worst.
    differences.fold(0.0, |worst, next| if next.is_nan() { f64::INFINITY } else { f64::max(worst, next) })
}

struct Run {
    forward: AttentionPlan,
    backward: AttentionPlan,
    /// Forward without sums.
    alone: AttentionPlan,
    inputs: [Tensor; 4],
    /// out, d_query, d_key, d_value, and out without sums.
    results: [Tensor; 5],
    log_sums: DeviceMemory,
    row_sums: DeviceMemory,
    workspace: DeviceMemory,
}

impl Run {
    fn new(device: &Device, library: &Cudnn, case: &Case) -> Result<Run, CudaError> {
        let forward = AttentionPlan::new(library, &case.problem(Pass::Forward))?;
        let backward = AttentionPlan::new(library, &case.problem(Pass::Backward))?;
        let alone = AttentionPlan::new(library, &case.problem(Pass::Alone))?;
        let [query, d_out] = [1, 4].map(|seed| Tensor::random(device, case, false, seed));
        let [key, value] = [2, 3].map(|seed| Tensor::random(device, case, true, seed));
        let lines = case.batch * case.heads[0] * case.rows[0];
        let plans = [&forward, &backward, &alone];
        let needed = plans.map(AttentionPlan::workspace_bytes);
        println!("{case:?}: engines {:?}, workspace {needed:?}", plans.map(AttentionPlan::engine));
        let bytes = needed.into_iter().fold(16, usize::max);
        Ok(Run {
            forward,
            backward,
            alone,
            inputs: [query, key, value, d_out],
            results: [false, false, true, true, false].map(|of_keys| Tensor::new(device, case, of_keys, None)),
            log_sums: device.upload(&vec![0xFF; lines * 4]),
            row_sums: device.upload(&vec![0xFF; lines * 4]),
            workspace: DeviceMemory::new(&device.context, bytes)?,
        })
    }

    fn enqueue(&self, device: &Device, case: &Case) -> Result<(), CudaError> {
        let [query, key, value, d_out] = self.inputs.each_ref().map(|tensor| tensor.memory.address());
        let [out, d_query, d_key, d_value, out_alone] = self.results.each_ref().map(|tensor| tensor.memory.address());
        let of = |heads: &[_]| AttentionOperands {
            heads: heads.to_vec(),
            log_sums: self.log_sums.address(),
            row_sums: self.row_sums.address(),
            workspace: self.workspace.address(),
        };
        let scale = case.scale() as f32;
        // SAFETY: all memory is allocated as the problem says, and used by this stream alone.
        unsafe {
            self.forward.run(&device.stream, &of(&[query, key, value, out]), scale)?;
            let heads = [query, key, value, out, d_out, d_query, d_key, d_value];
            self.backward.run(&device.stream, &of(&heads), scale)?;
            let heads = of(&[query, key, value, out_alone]);
            let without = AttentionOperands { log_sums: DeviceAddress::NULL, row_sums: DeviceAddress::NULL, ..heads };
            self.alone.run(&device.stream, &without, scale)
        }
    }

    fn bytes(&self, device: &Device) -> Vec<Vec<u8>> {
        self.results.iter().map(|tensor| device.download(&tensor.memory)).collect()
    }
}

const CASES: [Case; 11] = {
    let case = Case {
        dtype: DType::BF16,
        batch: 2,
        heads: [4, 4],
        rows: [256, 256],
        width: 64,
        is_causal: true,
        layout: Heads::Apart,
    };
    [
        case,
        Case { is_causal: false, ..case },
        Case { dtype: DType::F16, ..case },
        Case { width: 128, layout: Heads::Adjacent, ..case },
        Case { width: 40, ..case },
        Case { heads: [4, 2], layout: Heads::Packed, ..case },
        Case { heads: [4, 1], is_causal: false, layout: Heads::Adjacent, ..case },
        Case { rows: [200, 384], is_causal: false, ..case },
        Case { rows: [33, 128], layout: Heads::Adjacent, ..case },
        Case { width: 192, rows: [130, 128], ..case },
        Case { width: 256, dtype: DType::F16, heads: [4, 2], layout: Heads::Packed, ..case },
    ]
};

#[test]
fn attention_agrees_with_attention_in_f64_and_gives_equal_bits() {
    let Some(device) = device() else { return };
    let Some(library) = library(&device) else { return };
    let mut failures = Vec::new();
    for case in &CASES {
        let run = match Run::new(&device, &library, case) {
            Ok(run) => run,
            Err(error) => {
                failures.push(format!("{case:?}: {error}"));
                continue;
            }
        };
        run.enqueue(&device, case).unwrap();
        device.stream.synchronize().unwrap();
        let [query, key, value, d_out] = run.inputs.each_ref().map(|tensor| &tensor.values[..]);
        let expected = define(case, query, key, value, d_out);
        let found = run.results.each_ref().map(|tensor| tensor.read(&device));
        let log_sums: Vec<f64> = device.download_of::<f32>(&run.log_sums).into_iter().map(f64::from).collect();
        let pairs = [
            ("out", &found[0], &expected.out, 4.0),
            ("log_sums", &log_sums, &expected.log_sums, 1.0),
            ("d_query", &found[1], &expected.d_query, 8.0),
            ("d_key", &found[2], &expected.d_key, 8.0),
            ("d_value", &found[3], &expected.d_value, 8.0),
            ("out, alone", &found[4], &expected.out, 4.0),
        ];
        for (name, found, expected, times) in pairs {
            let error = worst(found, expected);
            println!("  {name}: {error:.1e}");
            if error > times * case.rounding() {
                failures.push(format!("{case:?}: {name} is off by {error:.2e} of its size"));
            }
        }
        let first = run.bytes(&device);
        for _ in 0..3 {
            run.enqueue(&device, case).unwrap();
            device.stream.synchronize().unwrap();
            if run.bytes(&device) != first {
                failures.push(format!("{case:?}: other bits in another run"));
            }
        }
        // The same from a graph.
        let graph = device.stream.capture(CaptureMode::ThreadLocal, || run.enqueue(&device, case)).unwrap();
        let executable = graph.instantiate().unwrap();
        for result in &run.results {
            let poison = vec![0xFF; result.memory.len()];
            // SAFETY: the memory is alive, and used by this stream alone.
            unsafe { device.stream.fill_u8(result.memory.address(), 0xFF, poison.len()) }.unwrap();
        }
        // SAFETY: the memory that the graph uses is alive.
        unsafe { executable.launch(&device.stream) }.unwrap();
        device.stream.synchronize().unwrap();
        if run.bytes(&device) != first {
            failures.push(format!("{case:?}: other bits from a graph"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn problems_that_the_library_does_not_know_are_refused_with_a_reason() {
    let Some(device) = device() else { return };
    let Some(library) = library(&device) else { return };
    let refuse = |case: Case, change: fn(&mut Problem), part: &str| {
        let mut problem = case.problem(Pass::Backward);
        change(&mut problem);
        let error = AttentionPlan::new(&library, &problem).unwrap_err();
        assert!(matches!(error, CudaError::Attention(_)), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    refuse(CASES[0], |problem| problem.width = 36, "36 wide");
    refuse(CASES[0], |problem| problem.strides[4][2] = 68, "d_out has a stride of 68");
    if library.version() < Some(Version { major: 9, minor: 16, patch: 0 }) {
        refuse(Case { rows: [256, 200], ..CASES[0] }, |_| {}, "200 keys are no multiple of 128");
    }
    let plan = AttentionPlan::new(&library, &CASES[0].problem(Pass::Forward)).unwrap();
    // SAFETY: no operand has an address, which is refused before anything is enqueued.
    let error = unsafe { plan.run(&device.stream, &AttentionOperands::default(), 1.0) }.unwrap_err();
    assert!(error.to_string().contains("0 tensors of heads are given, expected 4"), "{error}");
}
