//! Two steps of a pass that are carried out as one.

use super::plan::{Operation, Place, Step, Storage};
use super::values::Space;
use crate::tile::{Class, arithmetic, chain};

/// The step that does what `first` and `second`, which follows it, do. `is_last_use` says whether nothing but `second`
/// reads what is in a place.
pub(super) fn merged(first: &Step, second: &Step, places: &[Place], is_last_use: impl Fn(u16) -> bool) -> Option<Step> {
    rounded_at_once(first, second, places).or_else(|| chained(first, second, places, is_last_use))
}

/// If the second rounds what the first gives, in whose place its own result is.
fn rounded_at_once(first: &Step, second: &Step, places: &[Place]) -> Option<Step> {
    let same = |a: u16, b: u16| places[a as usize].storage == places[b as usize].storage;
    match (first.operation, second.operation) {
        (Operation::Binary(op, _), Operation::Round(dtype))
            if second.operands[0] == first.out
                && same(first.out, second.out)
                && arithmetic::is_rounded_at_once(op, dtype) =>
        {
            Some(Step { operation: Operation::Rounded(op, dtype), out: second.out, ..*first })
        }
        _ => None,
    }
}

/// If the first is a product with a number, or a sum with one, and the second a sum or product with its result, which
/// nobody else reads.
fn chained(first: &Step, second: &Step, places: &[Place], is_last_use: impl Fn(u16) -> bool) -> Option<Step> {
    let (Operation::Binary(op, Class::F32), Operation::Binary(next, Class::F32)) = (first.operation, second.operation)
    else {
        return None;
    };
    let space = |place: u16| places[place as usize].space;
    let storage = |place: u16| places[place as usize].storage;
    let [x, y, _] = first.operands;
    let (a, b) = match (space(x), space(y)) {
        (Space::Full, Space::Uniform) => (x, y),
        (Space::Uniform, Space::Full) => (y, x),
        _ => return None,
    };
    let [x, y, _] = second.operands;
    let c = if x == first.out { y } else { x };
    let passed_on = [x, y].contains(&first.out) && c != first.out && is_last_use(first.out);
    // The second's result may be where the first has its operand, which is then read after parts of it are written.
    let apart = storage(a) != storage(second.out);
    (chain::is_chained(op, next)
        && passed_on
        && apart
        && matches!(storage(first.out), Storage::Slot(_))
        && second.space == Space::Full
        && space(c) != Space::Row)
        .then_some(Step { operation: Operation::Chain(op), operands: [a, b, c], ..*second })
}

#[cfg(test)]
mod tests {
    use super::super::{FusedKernel, FusedNode, FusedProgram, OutputLayout};
    use crate::dtype::DType;
    use crate::scalar::ScalarOp::{Add, Mul, Sub};
    use crate::view::{TensorMut, TensorRef};

    const ROWS: usize = 5;
    const COLUMNS: usize = 700;

    /// Runs a program of `x` and `y` [5, 700], a value per row `r`, and the number 1.7; gives the result and the number
    /// of steps.
    fn run(rest: &[FusedNode]) -> (Vec<f32>, usize) {
        let mut nodes: Vec<FusedNode> = (0..3).map(FusedNode::Input).collect();
        nodes.push(FusedNode::Constant(1.7));
        nodes.extend(rest);
        let last = nodes.len() as u32 - 1;
        let program = FusedProgram { input_dtypes: vec![DType::F32; 3], nodes, outputs: vec![(last, DType::F32)] };
        let (shape, strides, row) = ([ROWS, COLUMNS], [COLUMNS as isize, 1], [1, 0]);
        let values = |seed: usize, count: usize| -> Vec<f32> {
            (0..count).map(|i| ((i * 2_654_435_761 + seed) % 4093) as f32 / 512.0 - 4.0).collect()
        };
        let (x, y, r) = (values(1, ROWS * COLUMNS), values(2, ROWS * COLUMNS), values(3, ROWS));
        let mut out = vec![f32::NAN; ROWS * COLUMNS];
        let layout = OutputLayout { shape: &shape, strides: &strides };
        let kernel = FusedKernel::new(&program, &shape, &[&strides, &strides, &row], &[layout]);
        // SAFETY: a value for each row, repeated by a stride of zero.
        let rows = unsafe { TensorRef::new(DType::F32, &shape, &row, r.as_ptr().cast()) };
        let inputs = [TensorRef::from_slice(&x, &shape, &strides), TensorRef::from_slice(&y, &shape, &strides), rows];
        kernel.run(&inputs, &mut [TensorMut::from_slice(&mut out, &shape, &strides)]).unwrap();
        let computed = kernel.plan.stages[0].body.iter();
        let computed =
            computed.filter(|step| matches!(step.operation, super::Operation::Binary(..) | super::Operation::Chain(_)));
        (out, computed.count())
    }

    fn expected(of: impl Fn(f32, f32, f32) -> f32) -> Vec<f32> {
        let value = |i: usize, seed: usize| ((i * 2_654_435_761 + seed) % 4093) as f32 / 512.0 - 4.0;
        (0..ROWS * COLUMNS).map(|i| of(value(i, 1), value(i, 2), value(i / COLUMNS, 3))).collect()
    }

    fn apply(op: crate::scalar::ScalarOp, a: u32, b: u32) -> FusedNode {
        FusedNode::Apply(op, [a, b, 0])
    }

    const NUMBER: f32 = 1.7;

    #[test]
    fn a_product_and_a_sum_are_one_step_with_the_same_bits() {
        let cases: [(&[FusedNode], fn(f32, f32, f32) -> f32); 5] = [
            (&[apply(Mul, 0, 3), apply(Add, 4, 3)], |x, _, _| x * NUMBER + NUMBER),
            (&[apply(Mul, 3, 0), apply(Add, 1, 4)], |x, y, _| y + NUMBER * x),
            (&[apply(Add, 3, 0), apply(Mul, 4, 1)], |x, y, _| (NUMBER + x) * y),
            (&[apply(Add, 0, 3), apply(Mul, 3, 4)], |x, _, _| NUMBER * (x + NUMBER)),
            // The second operand of the sum is the operand of the product.
            (&[apply(Mul, 0, 3), apply(Add, 4, 0)], |x, _, _| x * NUMBER + x),
        ];
        for (number, (nodes, of)) in cases.into_iter().enumerate() {
            let (got, steps) = run(nodes);
            assert_eq!(steps, 1, "case {number}");
            assert_eq!(got, expected(of), "case {number}");
        }
    }

    #[test]
    fn what_another_step_reads_is_computed_by_itself() {
        // The product is read twice: by the sum, and after it.
        let (got, steps) = run(&[apply(Mul, 0, 3), apply(Add, 4, 1), apply(Sub, 5, 4)]);
        assert_eq!((got, steps), (expected(|x, y, _| (x * NUMBER + y) - x * NUMBER), 3));
        // By the sum, on both sides.
        let (got, steps) = run(&[apply(Mul, 0, 3), apply(Add, 4, 4)]);
        assert_eq!((got, steps), (expected(|x, _, _| x * NUMBER + x * NUMBER), 2));
        // A value per row, on either side.
        let (got, steps) = run(&[apply(Mul, 0, 2), apply(Add, 4, 3)]);
        assert_eq!((got, steps), (expected(|x, _, r| x * r + NUMBER), 2));
        let (got, steps) = run(&[apply(Mul, 0, 3), apply(Add, 4, 2)]);
        assert_eq!((got, steps), (expected(|x, _, r| x * NUMBER + r), 2));
        // The operand of the product is in the scratch, where the result of the sum may go.
        let (got, _) = run(&[apply(Sub, 0, 1), apply(Mul, 4, 3), apply(Add, 5, 1), apply(Sub, 6, 0)]);
        assert_eq!(got, expected(|x, y, _| ((x - y) * NUMBER + y) - x));
    }
}
