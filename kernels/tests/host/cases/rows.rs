//! Rows: reduced, normalized, combined with values of a row or of a column, and few long ones in stages.

use fulgurite_kernels::scalar::ScalarOp;
use fulgurite_kernels::{DType, Reduction};

use super::elementwise::smooth;
use super::programs::{Writer, affine, cross_entropy, layer_norm, layer_norm_backward, row_sum, softmax};
use super::{Case, Domain, Tolerance};

/// Lengths of rows: lanes, warps and blocks with nothing left and with something.
const LENGTHS: [usize; 14] = [1, 2, 3, 31, 32, 33, 100, 768, 1024, 1025, 4096, 8192, 50_257, 50_304];

/// Rows reduced, normalized, and combined with values of a row or of a column.
pub fn rows() -> Vec<Case> {
    let mut cases = Vec::new();
    for width in LENGTHS {
        let rows = (60_000 / width).clamp(3, 67);
        let shape = [rows, width];
        for dtype in [DType::F32, DType::BF16] {
            // A probability's error is that of the exponential and of the sum; in bf16 one rounding more.
            let near = Tolerance::Near(if dtype == DType::F32 { 2e-6 } else { 8e-3 }, 1e-30);
            let case = Case::contiguous(format!("softmax_{dtype}_{width}"), softmax(dtype, true), &shape, near);
            cases.push(case.row_output(1).tolerance(1, Tolerance::Near(1e-6, 1.0)));
            // Numbers of magnitude 4, divided by the deviation.
            let near = Tolerance::Near(if dtype == DType::F32 { 4e-6 } else { 8e-3 }, 8.0);
            let program = layer_norm(dtype, width, true);
            let case = Case::contiguous(format!("layer_norm_{dtype}_{width}"), program, &shape, near);
            let case = case.column_input(1).column_input(2).row_output(1).row_output(2);
            // A row of one element has the deviation sqrt(1e-5).
            cases.push(case.tolerance(1, Tolerance::Near(1e-6, 4.0)).tolerance(2, Tolerance::Near(1e-5, 1.0)));
        }
        for dtype in [DType::I32, DType::F64, DType::F16, DType::Bool, DType::F32] {
            let total = if dtype.is_floating() { dtype.accumulator() } else { DType::I64 };
            let mut writer = Writer::new(&[dtype]);
            let outputs = [Reduction::Sum, Reduction::Max, Reduction::Min].map(|reduction| {
                let reduced = writer.reduce(reduction, 0);
                (reduced, total)
            });
            let program = writer.finish(&outputs);
            // Multiples of 1/64 whose sums are exact.
            let case = Case::contiguous(format!("totals_{dtype}_{width}"), program, &shape, Tolerance::Exact);
            cases.push(case.row_output(0).row_output(1).row_output(2));
        }
        let mut writer = Writer::new(&[DType::F32]);
        let outputs = [Reduction::Max, Reduction::Min].map(|reduction| (writer.reduce(reduction, 0), DType::F32));
        let case = Case::contiguous(format!("extreme_{width}"), writer.finish(&outputs), &shape, Tolerance::Exact);
        cases.push(case.row_output(0).row_output(1).domain(Domain::Extreme));
    }
    // Masks that end within a vector, before it and nowhere; in the logits' place.
    for (width, classes) in [(40, 33), (768, 760), (4096, 9), (50_304, 50_257), (50_304, 50_304), (131_072, 130_000)] {
        for dtype in [DType::F32, DType::BF16] {
            let near = Tolerance::Near(if dtype == DType::F32 { 4e-6 } else { 8e-3 }, 1e-6);
            let name = format!("cross_entropy_{dtype}_{classes}_of_{width}");
            let case = Case::contiguous(name, cross_entropy(dtype, classes), &[5, width], near).counted_input(1);
            let case = case.row_input(2).row_input(3).row_output(0).row_output(1).over(2, 0);
            cases.push(case.tolerance(1, Tolerance::Near(2e-6, 1.0)));
        }
    }
    // Rows that are seen through strides, in place, and next to values of a row.
    for width in [24, 520, 3000, 50_257] {
        let shape = [2, 5, width];
        let w = width as isize;
        let near = Tolerance::Near(2e-6, 1e-30);
        let of =
            |what: &str| Case::contiguous(format!("softmax_{what}_{width}"), softmax(DType::F32, false), &shape, near);
        cases.push(of("in_place").over(0, 0));
        cases.push(of("swapped").input(0, &[w, 2 * w, 1], 0));
        cases.push(of("misaligned").input(0, &[5 * w, w, 1], 1));
        cases.push(of("padded").input(0, &[5 * (w + 4), w + 4, 1], 4).output(0, &shape, &[5 * (w + 8), w + 8, 1], 8));
        cases.push(of("strided").input(0, &[1, 2, 10], 0).output(0, &shape, &[15 * w, 3 * w, 3], 1));
        cases.push(of("backwards").input(0, &[5 * w, w, -1], width - 1));
        cases.push(of("one_row").input(0, &[0, 0, 1], 0));

        // (x - a) * b + sum(x), with `a` a value a row and `b` one number; and a result a row from values a row alone,
        // written over one of them.
        let mut writer = Writer::new(&[DType::F32; 3]);
        let shifted = writer.apply(ScalarOp::Sub, &[0, 1]);
        let scaled = writer.apply(ScalarOp::Mul, &[shifted, 2]);
        let sum = writer.reduce(Reduction::Sum, 0);
        let result = writer.apply(ScalarOp::Add, &[scaled, sum]);
        let row = writer.apply(ScalarOp::Sub, &[1, 2]);
        let program = writer.finish(&[(result, DType::F32), (row, DType::F32), (sum, DType::F64)]);
        let case = Case::contiguous(format!("with_rows_{width}"), program, &shape, Tolerance::Exact);
        cases.push(case.row_input(1).input(2, &[0, 0, 0], 0).row_output(1).row_output(2).over(1, 1));

        // No reduction, but an output of one value a row.
        let mut writer = Writer::new(&[DType::BF16, DType::F32]);
        let row = writer.apply(ScalarOp::Exp, &[1]);
        let full = writer.apply(ScalarOp::Mul, &[0, row]);
        let program = writer.finish(&[(full, DType::BF16), (row, DType::F32)]);
        let case = Case::contiguous(format!("row_result_{width}"), program, &shape, Tolerance::Ulps(1));
        cases.push(case.row_input(1).row_output(1).tolerance(1, smooth(DType::F32)).over(1, 1));
    }
    cases.extend(one_row_over_its_value());
    let case =
        Case::contiguous("few_long_rows", softmax(DType::F32, true), &[2, 1_000_003], Tolerance::Near(4e-6, 1e-30));
    cases.push(case.row_output(1).tolerance(1, Tolerance::Near(1e-6, 1.0)));
    let many =
        Case::contiguous("many_short_rows", softmax(DType::F32, false), &[100_003, 5], Tolerance::Near(2e-6, 1e-30));
    cases.push(many);
    cases
}

/// Sums of columns beside results of rows: of fewer rows than blocks, of as many and of more; and of rows that nothing
/// else is computed of.
pub fn column_sums() -> Vec<Case> {
    let mut cases = Vec::new();
    for (rows, width) in [(3, 768), (528, 768), (3000, 768), (700, 256), (1500, 771), (300, 1600), (200, 4096)] {
        for dtype in [DType::F32, DType::BF16] {
            // Two sums of a row are multiplied by the largest of its numbers: on an H200 five of 2,304,000 elements are
            // 1.02e-5 of 8 away.
            let near = Tolerance::Near(if dtype == DType::F32 { 2e-5 } else { 8e-3 }, 8.0);
            let name = format!("layer_norm_backward_{dtype}_{rows}_{width}");
            let case = Case::contiguous(name, layer_norm_backward(dtype, width), &[rows, width], near);
            let case = case.column_input(2).row_input(3).row_input(4).tolerance(0, Tolerance::Near(2e-5, 8.0));
            // Each number may be off by a rounding, and so may the sum by one of each addition.
            let sums = Tolerance::Near(1e-5, 4.0 * rows as f64);
            cases.push(case.over(0, 5).summed(2).summed(3).tolerance(2, sums).tolerance(3, sums));
        }
        let case =
            Case::contiguous(format!("scaled_{rows}_{width}"), affine(DType::BF16), &[rows, width], Tolerance::Exact);
        let mut program = case.program.clone();
        program.outputs[0].1 = DType::F32;
        let case = Case { program, ..case }.tolerance(0, Tolerance::Near(1e-6, 16.0 * rows as f64));
        cases.push(case.column_input(1).row_input(2).summed(0));
    }
    cases
}

/// One row that reads a single number, and a result of the row that is written over this number: in rows of every kind
/// of kernel, with a reduction and without.
pub fn one_row_over_its_value() -> Vec<Case> {
    let mut cases = Vec::new();
    for width in [7, 33, 500, 1025, 4096, 50_257, 300_000] {
        for reduces in [false, true] {
            let mut writer = Writer::new(&[DType::F32; 2]);
            let one = writer.constant(1.0);
            let next = writer.apply(ScalarOp::Add, &[1, one]);
            let scaled = writer.apply(ScalarOp::Mul, &[0, next]);
            let next = if reduces {
                let most = writer.reduce(Reduction::Max, scaled);
                let some = writer.apply(ScalarOp::Minimum, &[most, one]);
                writer.apply(ScalarOp::Add, &[some, 1])
            } else {
                next
            };
            let program = writer.finish(&[(scaled, DType::F32), (next, DType::F32)]);
            let name = format!("one_row_{width}{}", if reduces { "_reduced" } else { "" });
            let case = Case::contiguous(name, program, &[1, width], Tolerance::Exact);
            cases.push(case.input(1, &[0, 0], 0).row_output(1).over(1, 1));
        }
    }
    cases
}

/// Programs for rows that are computed in stages: reductions that wait for others, values a row read and written over,
/// elements written over.
pub fn staged(width: usize) -> Vec<Case> {
    let near = |magnitude| Tolerance::Near(2e-6, magnitude);
    let mut cases = Vec::new();
    for rows in [&[][..], &[1], &[3], &[2, 2]] {
        let shape = [rows, &[width]].concat();
        for dtype in [DType::F32, DType::BF16] {
            let name = format!("softmax_{dtype}_{rows:?}_{width}");
            let ulp = if dtype == DType::F32 { 4e-6 } else { 8e-3 };
            let case = Case::contiguous(name, softmax(dtype, true), &shape, Tolerance::Near(ulp, 1e-30));
            cases.push(case.row_output(1).tolerance(1, near(1.0)).over(0, 0));
        }
        for dtype in [DType::F32, DType::I32, DType::F64, DType::F16] {
            let total = if dtype.is_floating() { dtype.accumulator() } else { DType::I64 };
            let mut writer = Writer::new(&[dtype]);
            let outputs = [Reduction::Sum, Reduction::Max, Reduction::Min].map(|kind| (writer.reduce(kind, 0), total));
            let name = format!("totals_{dtype}_{rows:?}_{width}");
            let case = Case::contiguous(name, writer.finish(&outputs), &shape, Tolerance::Exact);
            cases.push(case.row_output(0).row_output(1).row_output(2));
        }
        // y = x * (a + 1) - max(x); b = sum(x * a) + c; a' = a + 1 over a, and min(x) once more.
        let mut writer = Writer::new(&[DType::F32; 3]);
        let one = writer.constant(1.0);
        let next = writer.apply(ScalarOp::Add, &[1, one]);
        let scaled = writer.apply(ScalarOp::Mul, &[0, next]);
        let most = writer.reduce(Reduction::Max, 0);
        let result = writer.apply(ScalarOp::Sub, &[scaled, most]);
        let weighted = writer.apply(ScalarOp::Mul, &[0, 1]);
        let sum = writer.reduce(Reduction::Sum, weighted);
        let sum = writer.apply(ScalarOp::Add, &[sum, 2]);
        let list = [(result, DType::F32), (next, DType::F32), (sum, DType::F64)];
        let strides = vec![0; shape.len()];
        for full in [true, false] {
            let program = writer.clone().finish(if full { &list } else { &list[1..] });
            let case = Case::contiguous(format!("mixed_{full}_{rows:?}_{width}"), program, &shape, near(64.0));
            let case = case.row_input(1).input(2, &strides, 0);
            cases.push(match full {
                true => case.row_output(1).row_output(2).over(1, 1).over(0, 0),
                false => case.row_output(0).row_output(1).over(0, 1),
            });
        }
        if let [count] = *rows {
            let w = width as isize;
            let case = Case::contiguous(format!("strided_{rows:?}_{width}"), row_sum(DType::F32), &shape, near(64.0));
            cases.push(case.row_output(0).input(0, &[1, count as isize + 1], 3));
            let case = Case::contiguous(format!("padded_{rows:?}_{width}"), row_sum(DType::BF16), &shape, near(64.0));
            cases.push(case.row_output(0).input(0, &[w + 3, 1], 1).tolerance(0, Tolerance::Near(8e-3, 64.0)));
        }
    }
    cases
}

/// Few rows of so many elements in all that only pieces of them use a whole device: sums of one and of 16 rows, a sum
/// of products, and a softmax; and the bytes that each reads and writes for an element.
pub fn few_long_rows(elements: usize) -> Vec<(Case, usize)> {
    let mut products = Writer::new(&[DType::F32; 2]);
    let product = products.apply(ScalarOp::Mul, &[0, 1]);
    let sum = products.reduce(Reduction::Sum, product);
    let products = products.finish(&[(sum, DType::F32)]);
    let of =
        |name: &str, program, rows: usize| Case::contiguous(name, program, &[rows, elements / rows], Tolerance::Exact);
    vec![
        (of("sum", row_sum(DType::F32), 1).row_output(0), 4),
        (of("sum_bf16", row_sum(DType::BF16), 1).row_output(0), 2),
        (of("sum_of_16_rows", row_sum(DType::F32), 16).row_output(0), 4),
        (of("sum_of_products", products, 1).row_output(0), 8),
        // Read by the maximum, the sum and the result, and written.
        (of("softmax", softmax(DType::F32, false), 1), 16),
    ]
}
