//! Every operation, every conversion, and layouts of all kinds.

use fulgurite_kernels::DType;
use fulgurite_kernels::scalar::ScalarOp;

use super::programs::{Writer, affine, copy, relu};
use super::{Case, Domain, Tolerance};

const UNARY_EXACT: [ScalarOp; 9] = {
    use ScalarOp::*;
    [Abs, Neg, Floor, Sign, IsFinite, Not, Sqrt, Rsqrt, Reciprocal]
};
const UNARY_SMOOTH: [ScalarOp; 4] = [ScalarOp::Exp, ScalarOp::Log, ScalarOp::Tanh, ScalarOp::Erf];
const BINARY_EXACT: [ScalarOp; 15] = {
    use ScalarOp::*;
    [Add, Sub, Mul, Div, Maximum, Minimum, Remainder, Eq, Ne, Lt, Le, Gt, Ge, And, Or]
};

/// The type that the result of `op` on operands of `dtype` is stored as.
fn result_dtype(op: ScalarOp, dtype: DType) -> DType {
    use ScalarOp::*;
    match op {
        _ if op.is_predicate() => DType::Bool,
        Abs | Neg | Floor | Sign | Add | Sub | Mul | Div | Maximum | Minimum | Remainder | Pow
            if dtype == DType::Bool =>
        {
            DType::I64
        }
        Abs | Neg | Floor | Sign | Add | Sub | Mul | Div | Maximum | Minimum | Remainder | Pow | Select => dtype,
        _ if dtype.is_floating() => dtype,
        _ => DType::F32,
    }
}

/// Both the host's and the device's functions are within 2 units of the true value in f32 (4 for the device's powers),
/// and so within one another's rounding in the narrow types.
pub(super) fn smooth(dtype: DType) -> Tolerance {
    Tolerance::Ulps(match dtype {
        DType::F16 | DType::BF16 => 1,
        _ => 5,
    })
}

/// Every operation in every element type.
pub fn operations() -> Vec<Case> {
    let shape = [3 * 1024 + 5];
    let mut cases = Vec::new();
    for dtype in DType::REAL {
        let mut add = |name: &str, operations: &[ScalarOp], exact: bool, domain: Domain| {
            let arity = operations[0].arity();
            let mut inputs = vec![dtype; arity];
            if operations == [ScalarOp::Select] {
                inputs[0] = DType::Bool;
            }
            let mut writer = Writer::new(&inputs);
            let operands: Vec<u32> = (0..arity as u32).collect();
            let outputs: Vec<(u32, DType)> =
                operations.iter().map(|&op| (writer.apply(op, &operands), result_dtype(op, dtype))).collect();
            let tolerances: Vec<Tolerance> =
                outputs.iter().map(|&(_, stored)| if exact { Tolerance::Exact } else { smooth(stored) }).collect();
            let mut case =
                Case::contiguous(format!("{name}_{dtype}"), writer.finish(&outputs), &shape, Tolerance::Exact);
            for (index, tolerance) in tolerances.into_iter().enumerate() {
                case = case.tolerance(index, tolerance);
            }
            cases.push(case.domain(domain));
        };
        add("unary", &UNARY_EXACT, true, Domain::Extreme);
        add("smooth", &UNARY_SMOOTH, false, Domain::Extreme);
        add("circular", &[ScalarOp::Sin, ScalarOp::Cos], false, Domain::Plain);
        add("binary", &BINARY_EXACT, true, Domain::Extreme);
        add("power", &[ScalarOp::Pow], !dtype.is_floating(), Domain::Positive);
        add("select", &[ScalarOp::Select], true, Domain::Extreme);
    }
    // Powers that are written as products, and huge arguments of sine and cosine.
    for dtype in [DType::F32, DType::BF16, DType::F64] {
        let mut writer = Writer::new(&[dtype]);
        let outputs = [2.0, 3.0, -1.0].map(|exponent| {
            let exponent = writer.constant(exponent);
            (writer.apply(ScalarOp::Pow, &[0, exponent]), dtype)
        });
        let program = writer.finish(&outputs);
        let case = Case::contiguous(format!("fixed_powers_{dtype}"), program, &shape, Tolerance::Exact);
        cases.push(case.domain(Domain::Extreme));
        let mut writer = Writer::new(&[dtype]);
        let outputs = [ScalarOp::Sin, ScalarOp::Cos].map(|op| (writer.apply(op, &[0]), dtype));
        let case = Case::contiguous(format!("huge_circular_{dtype}"), writer.finish(&outputs), &shape, smooth(dtype));
        cases.push(case.domain(Domain::Extreme));
    }
    cases
}

/// From every element type to every element type, stored and rounded in between.
pub fn conversions() -> Vec<Case> {
    let of = |from: DType| {
        let mut writer = Writer::new(&[from]);
        let mut outputs: Vec<(u32, DType)> = DType::REAL.map(|to| (0, to)).to_vec();
        for to in DType::REAL {
            let converted = writer.convert(to, 0);
            outputs.push((converted, if to.is_floating() { DType::F64 } else { DType::I64 }));
        }
        let program = writer.finish(&outputs);
        Case::contiguous(format!("conversions_{from}"), program, &[2 * 1024 + 3], Tolerance::Exact)
            .domain(Domain::Extreme)
    };
    DType::REAL.into_iter().map(of).collect()
}

/// Elementwise programs over layouts of all kinds.
pub fn layouts() -> Vec<Case> {
    let exact = Tolerance::Exact;
    let mut cases = Vec::new();
    for shape in [&[][..], &[1], &[3], &[4], &[5], &[255], &[1, 1, 1], &[7, 9], &[3, 700_001]] {
        let sizes = shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
        cases.push(Case::contiguous(format!("relu_{sizes}"), relu(DType::F32), shape, exact));
        cases.push(Case::contiguous(format!("relu_bf16_{sizes}"), relu(DType::BF16), shape, exact));
    }
    // Addresses that are not multiples of sixteen bytes.
    for first in 1..4 {
        let (shape, strides) = ([40, 128], [128, 1]);
        let case = Case::contiguous(format!("misaligned_{first}"), affine(DType::F32), &shape, exact);
        cases.push(case.input(1, &strides, first).output(0, &shape, &strides, 0));
        let case = Case::contiguous(format!("misaligned_output_{first}"), affine(DType::BF16), &shape, exact);
        cases.push(case.output(0, &shape, &strides, 2 * first));
    }
    for (a, b, c) in [(3, 5, 8), (2, 70, 33), (16, 1, 768), (1, 300, 6), (4, 64, 64)] {
        let shape = [a, b, c];
        let [x, y, z] = shape.map(|extent| extent as isize);
        let name = |what: &str| format!("{what}_{a}x{b}x{c}");
        let of = |what: &str| Case::contiguous(name(what), affine(DType::F32), &shape, exact);
        cases.push(of("bias").column_input(2).input(1, &[0, 0, 0], 0));
        cases.push(of("row_scale").row_input(1).column_input(2));
        cases.push(of("first_dimension").input(1, &[1, 0, 0], 0));
        cases.push(of("transposed").input(0, &[1, x, x * y], 0));
        cases.push(of("swapped").input(0, &[y * z, 1, y], 0).input(2, &[1, x * z, x], 0));
        cases.push(of("reversed").input(0, &[-y * z, z, 1], ((x - 1) * y * z) as usize).input(
            1,
            &[y * z, z, -1],
            (z - 1) as usize,
        ));
        cases.push(of("padded").input(0, &[y * (z + 3), z + 3, 1], 1).output(0, &shape, &[y * (z + 8), z + 8, 1], 8));
        cases.push(of("every_second").input(0, &[2 * y * z, 2 * z, 2], 1).output(0, &shape, &[3 * y * z, 3 * z, 3], 2));
        cases.push(of("transposed_output").output(0, &shape, &[1, x, x * y], 0));
        cases.push(of("in_place").over(0, 0).column_input(1).row_input(2));
        for dtype in [DType::F32, DType::BF16, DType::U8, DType::F64] {
            let case = Case::contiguous(name(&format!("permuted_{dtype}")), copy(dtype), &shape, exact);
            cases.push(case.input(0, &[z, x * z, 1], 0));
            let case = Case::contiguous(name(&format!("transposed_{dtype}")), copy(dtype), &shape, exact);
            cases.push(case.input(0, &[y * z, 1, y], 0));
        }
    }
    // Several outputs of several types, one of them over an input.
    let mut writer = Writer::new(&[DType::F32, DType::I32, DType::Bool]);
    let sum = writer.apply(ScalarOp::Add, &[0, 1]);
    let chosen = writer.apply(ScalarOp::Select, &[2, sum, 0]);
    let less = writer.apply(ScalarOp::Lt, &[chosen, 1]);
    let program = writer.finish(&[(chosen, DType::F32), (less, DType::Bool), (sum, DType::BF16), (1, DType::I64)]);
    for shape in [vec![10_007], vec![6, 128], vec![9, 5]] {
        let case = Case::contiguous("several", program.clone(), &shape, exact);
        cases.push(case.over(0, 0));
    }
    // Outputs of numbers alone.
    let mut writer = Writer::new(&[]);
    let number = writer.constant(2.5);
    let program = writer.finish(&[(number, DType::F16), (number, DType::I32)]);
    cases.push(Case::contiguous("numbers", program, &[1000], exact));
    cases
}
