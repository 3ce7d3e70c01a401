//! Few long rows, which several threads work on.

use super::plan::{Operation, Step};
use super::tests::{numbers, softmax};
use super::*;
use crate::dtype::DType;
use crate::scalar::ScalarOp;
use crate::tile::reduction::Reduction;
use crate::tile::stream::streaming_threshold;
use crate::view::{TensorMut, TensorRef, contiguous_strides};

/// Few long rows are cut into chunks for several threads: with rows kept between passes (100,000 columns) and without,
/// in place, and with a value per row.
#[test]
fn long_rows_have_the_same_bits_on_any_number_of_threads() {
    let sizes: &[(usize, usize)] = if cfg!(miri) {
        &[(1, 66_000)]
    } else {
        &[(1, 65_537), (1, 100_000), (2, 131_072), (3, 300_001), (5, 600_000), (1, 3_000_001)]
    };
    for &(rows, width) in sizes {
        let x: Vec<f32> = numbers(rows * width).iter().map(|x| x * 1.1).collect();
        let (shape, reduced) = ([rows, width], [rows, 1]);
        let (strides, reduced_strides) = (contiguous_strides(&shape), contiguous_strides(&reduced));
        let run = |threads: usize, in_place: bool| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut out = if in_place { x.clone() } else { vec![f32::NAN; rows * width] };
            let mut log_sum = vec![f64::NAN; rows];
            let source = if in_place { out.as_mut_ptr() } else { x.as_ptr().cast_mut() };
            // SAFETY: one and the same view of a live slice, as an input and as an output of one kernel; or two slices.
            let (input, output) = unsafe {
                (
                    TensorRef::overlapped(DType::F32, &shape, &strides, source.cast()),
                    TensorMut::overlapped(DType::F32, &shape, &strides, out.as_mut_ptr().cast()),
                )
            };
            let per_row = TensorMut::from_slice(&mut log_sum, &reduced, &reduced_strides);
            pool.install(|| softmax().run(&shape, &[input], &mut [output, per_row]).unwrap());
            (out, log_sum)
        };
        let alone = run(1, false);
        let exact: Vec<f64> =
            x.chunks(width).map(|row| row.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln()).collect();
        for (got, exact) in alone.1.iter().zip(exact) {
            assert!((got - exact).abs() < 1e-6 * exact.abs().max(1.0), "{rows}x{width}: {got} for {exact}");
        }
        assert!(alone.0.iter().all(|value| value.is_finite()));
        for threads in if cfg!(miri) { 2..3 } else { 1..5 } {
            for in_place in [false, true] {
                assert!(run(threads, in_place) == alone, "{rows}x{width} on {threads} threads, in place: {in_place}");
            }
        }
    }
}

/// A sum and a largest of integers and of numbers with NaN, by several threads.
#[test]
fn reductions_of_a_long_row_by_several_threads() {
    let width = if cfg!(miri) { 70_000 } else { 1_000_003 };
    let program = |dtype: DType| FusedProgram {
        input_dtypes: vec![dtype],
        nodes: vec![
            FusedNode::Input(0),
            FusedNode::Apply(ScalarOp::Add, [0, 0, 0]),
            FusedNode::Reduce(Reduction::Sum, 1),
            FusedNode::Reduce(Reduction::Max, 0),
        ],
        outputs: vec![(2, dtype), (3, dtype)],
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    let integers: Vec<i64> = (0..width as i64).map(|i| (i * 7919) % 10_007 - 5000).collect();
    let (mut sum, mut most) = ([0i64], [0i64]);
    let shape = [1, width];
    let strides = contiguous_strides(&shape);
    pool.install(|| {
        let outputs = [&mut sum, &mut most].map(|out| TensorMut::from_slice(out, &[1, 1], &[1, 1]));
        program(DType::I64)
            .run(&shape, &[TensorRef::from_slice(&integers, &shape, &strides)], &mut { outputs })
            .unwrap();
    });
    assert_eq!((sum[0], most[0]), (2 * integers.iter().sum::<i64>(), *integers.iter().max().unwrap()));
    let mut x = numbers(width);
    x[width - 5] = f32::NAN;
    let (mut sum, mut most) = ([0f32], [0f32]);
    pool.install(|| {
        let outputs = [&mut sum, &mut most].map(|out| TensorMut::from_slice(out, &[1, 1], &[1, 1]));
        program(DType::F32).run(&shape, &[TensorRef::from_slice(&x, &shape, &strides)], &mut { outputs }).unwrap();
    });
    assert!(sum[0].is_nan() && most[0].is_nan());
}

/// Inputs larger than the caches, parts of which are fetched ahead, and a result that is written past the caches: one
/// long row, and rows of which several are a tile.
#[test]
#[cfg_attr(miri, ignore = "takes hours")]
fn what_does_not_fit_the_caches() {
    // The last part of the last tile is fetched from behind the inputs' ends.
    let least = streaming_threshold() / 4 + 1;
    for width in [least + 77, 100] {
        let rows = least.div_ceil(width);
        let program = FusedProgram {
            input_dtypes: vec![DType::F32, DType::F32],
            nodes: vec![
                FusedNode::Input(0),
                FusedNode::Input(1),
                FusedNode::Apply(ScalarOp::Add, [0, 1, 0]),
                FusedNode::Reduce(Reduction::Max, 0),
                FusedNode::Apply(ScalarOp::Sub, [2, 3, 0]),
            ],
            outputs: vec![(4, DType::F32), (3, DType::F32)],
        };
        let (shape, reduced) = ([rows, width], [rows, 1]);
        let (strides, reduced_strides) = (contiguous_strides(&shape), contiguous_strides(&reduced));
        let x: Vec<f32> = (0..rows * width).map(|i| (i % 1009) as f32).collect();
        let y: Vec<f32> = (0..rows * width).map(|i| (i % 7) as f32).collect();
        let (mut out, mut most) = (vec![f32::NAN; rows * width], vec![f32::NAN; rows]);
        let inputs = [&x, &y].map(|x| TensorRef::from_slice(x, &shape, &strides));
        let out_view = TensorMut::from_slice(&mut out, &shape, &strides);
        let most_view = TensorMut::from_slice(&mut most, &reduced, &reduced_strides);
        program.run(&shape, &inputs, &mut [out_view, most_view]).unwrap();
        for (row, most) in most.into_iter().enumerate() {
            let range = row * width..(row + 1) * width;
            assert_eq!(most, x[range.clone()].iter().copied().fold(0.0, f32::max), "row {row} of {rows}x{width}");
            let wrong = range.into_iter().find(|&i| out[i] != x[i] + y[i] - most);
            assert_eq!(wrong, None, "{rows}x{width}");
        }
    }
}

#[test]
fn results_of_16_bits_that_do_not_fit_the_caches() {
    use half::bf16;
    let nodes = vec![FusedNode::Input(0), FusedNode::Constant(1.5), FusedNode::Apply(ScalarOp::Mul, [0, 1, 0])];
    let program = FusedProgram { input_dtypes: vec![DType::BF16], nodes, outputs: vec![(2, DType::BF16)] };
    let least = streaming_threshold() / 2 + 1;
    for width in [least + 77, 1000] {
        let rows = least.div_ceil(width);
        let (shape, strides) = ([rows, width], contiguous_strides(&[rows, width]));
        let x: Vec<bf16> = (0..rows * width).map(|i| bf16::from_f32((i % 251) as f32)).collect();
        // Not at the beginning of a line of the caches.
        let mut out = vec![bf16::NAN; rows * width + 5];
        let layout = OutputLayout { shape: &shape, strides: &strides };
        let kernel = FusedKernel::new(&program, &shape, &[&strides], &[layout]);
        assert!(kernel.plan.outputs[0].streaming, "{rows}x{width}");
        let input = TensorRef::from_slice(&x, &shape, &strides);
        kernel.run(&[input], &mut [TensorMut::from_slice(&mut out[5..], &shape, &strides)]).unwrap();
        let wrong = (0..rows * width).find(|&i| out[i + 5] != bf16::from_f32(x[i].to_f32() * 1.5));
        assert_eq!(wrong, None, "{rows}x{width}");
    }
}

/// GELU whose parts are written past the caches as they are computed: one long row; rows of an input with gaps, of
/// which several are a tile; stored twice; over its input; and rounded to 16 bits, which is written when the tile is
/// whole. Outputs do not begin at a line of the caches. All bits are those of results that stay in the caches.
#[test]
#[cfg_attr(miri, ignore = "takes hours")]
fn gelu_that_does_not_fit_the_caches() {
    let apply = |op, a, b| FusedNode::Apply(op, [a, b, 0]);
    let nodes = vec![
        FusedNode::Input(0),
        FusedNode::Constant(0.5),
        FusedNode::Constant(std::f64::consts::FRAC_1_SQRT_2),
        FusedNode::Constant(1.0),
        apply(ScalarOp::Mul, 0, 2),
        apply(ScalarOp::Erf, 4, 0),
        apply(ScalarOp::Add, 5, 3),
        apply(ScalarOp::Mul, 0, 1),
        apply(ScalarOp::Mul, 7, 6),
    ];
    let least = streaming_threshold() / 4 + 1;
    let long = least + 77;
    let cases = [
        (long, long, DType::F32, 1, false),
        (100, 103, DType::F32, 1, false),
        (100, 103, DType::F32, 2, false),
        (100, 100, DType::F32, 1, true),
        (2 * long, 2 * long, DType::BF16, 1, false),
    ];
    for (width, row_stride, dtype, times, in_place) in cases {
        let program =
            FusedProgram { input_dtypes: vec![DType::F32], nodes: nodes.clone(), outputs: vec![(8, dtype); times] };
        let before = 5 * dtype.size();
        // The bytes of the results, and whether they were streamed.
        let run = |x: &[f32], shape: [usize; 2]| {
            let (strides, read_strides) = (contiguous_strides(&shape), [row_stride as isize, 1]);
            let mut results = vec![vec![f32::NAN; shape[0] * shape[1] + 5]; times];
            if in_place {
                results[0][5..].copy_from_slice(x);
            }
            let layouts = vec![OutputLayout { shape: &shape, strides: &strides }; times];
            let kernel = FusedKernel::new(&program, &shape, &[&read_strides], &layouts);
            let body = &kernel.plan.stages[0].body;
            let in_parts = |steps: &[Step]| steps[0].is_long() && matches!(steps[1].operation, Operation::Store(0));
            assert!(body.windows(2).any(in_parts) || dtype != DType::F32, "parts are stored where they are computed");
            assert_eq!(kernel.plan.rows_per_tile > 1, row_stride > width, "rows of a tile");
            let starts: Vec<*mut u8> = results.iter_mut().map(|out| out.as_mut_ptr().cast()).collect();
            let source = if in_place { starts[0].wrapping_add(before).cast_const() } else { x.as_ptr().cast() };
            // SAFETY: live slices; the input is one of them, or the output of the same form.
            let (input, mut targets) = unsafe {
                let target = |start: &*mut u8| TensorMut::overlapped(dtype, &shape, &strides, start.add(before));
                let targets: Vec<_> = starts.iter().map(target).collect();
                (TensorRef::overlapped(DType::F32, &shape, &read_strides, source), targets)
            };
            kernel.run(&[input], &mut targets).unwrap();
            let bytes = |out: &Vec<f32>| out.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>();
            let whole: Vec<Vec<u8>> = results.iter().map(bytes).collect();
            let untouched = bytes(&vec![f32::NAN; 5]);
            assert!(whole.iter().all(|bytes| bytes[..before] == untouched[..before]));
            let written = before..before + shape[0] * shape[1] * dtype.size();
            let streaming = kernel.plan.outputs[0].streaming;
            (whole.into_iter().map(|bytes| bytes[written.clone()].to_vec()).collect::<Vec<_>>(), streaming)
        };
        let rows = least.div_ceil(width);
        let x = numbers(rows * row_stride);
        let (whole, streaming) = run(&x, [rows, width]);
        assert!(streaming, "{rows}x{width}");
        // Elements do not depend on one another: piece by piece, some rows or a part of the only one.
        let (few, columns) = if rows == 1 { (1, 4000) } else { (40, width) };
        for first in (0..rows * width).step_by(few * columns) {
            let count = (few * columns).min(rows * width - first);
            let (row, column) = (first / width, first % width);
            let shape = [count.div_ceil(columns), columns.min(count)];
            let read = (shape[0] - 1) * row_stride + shape[1];
            let (piece, streaming) = run(&x[row * row_stride + column..][..read], shape);
            assert!(!streaming);
            for (whole, piece) in whole.iter().zip(&piece) {
                let range = first * dtype.size()..(first + count) * dtype.size();
                assert!(whole[range] == piece[..], "{rows}x{width} of {dtype}, from row {row}, column {column}");
            }
        }
    }
}

#[test]
fn several_inputs_that_the_machine_fetches_by_itself_are_read_in_short_turns() {
    let length = [streaming_threshold() / 4 + 1];
    let apply = |op, a, b| FusedNode::Apply(op, [a, b, 0]);
    let plan_of = |inputs: u32, nodes: &[FusedNode]| {
        let nodes: Vec<FusedNode> = (0..inputs).map(FusedNode::Input).chain(nodes.iter().copied()).collect();
        let outputs = vec![(nodes.len() as u32 - 1, DType::F32)];
        let program = FusedProgram { input_dtypes: vec![DType::F32; inputs as usize], nodes, outputs };
        let layout = OutputLayout { shape: &length, strides: &[1] };
        let kernel = FusedKernel::new(&program, &length, &vec![&[1isize][..]; inputs as usize], &[layout]);
        (kernel.plan.stages[0].foreseen(), kernel.plan.columns_per_tile)
    };
    let (foreseen, columns) = plan_of(2, &[apply(ScalarOp::Add, 0, 1)]);
    assert!(foreseen && columns == 1024, "{foreseen}, {columns}");
    // Steps enough to spread what is fetched over; and one input.
    let (foreseen, columns) =
        plan_of(2, &[apply(ScalarOp::Sub, 0, 1), apply(ScalarOp::Div, 2, 1), apply(ScalarOp::Sub, 3, 0)]);
    assert!(!foreseen && columns > 1024, "{foreseen}, {columns}");
    let (foreseen, columns) = plan_of(1, &[apply(ScalarOp::Mul, 0, 0)]);
    assert!(!foreseen && columns > 1024, "{foreseen}, {columns}");
}
