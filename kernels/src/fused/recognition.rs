//! Values that the tiles have one instruction for: GELU and its gradient. Their other operations are left without
//! users.

use super::values::{Kind, Space, Value};
use crate::scalar::ScalarOp;
use crate::tile::Class;
use crate::tile::gelu::{Gelu, GeluBackward, Sigmoid};

/// Makes each value that is GELU, or its gradient, of values per element in f32 one of [`Kind::Gelu`] or
/// [`Kind::GeluBackward`]; bits stay as they are. A sigmoid that others read as well is computed once, for all.
pub(super) fn recognize(list: &mut [Value], outputs: &[u32]) {
    let found: Vec<(usize, Kind)> = {
        let found = Recognition { list };
        let of_value = |value| Some((value, found.gelu(value).or_else(|| found.gelu_backward(value))?));
        let full =
            (0..list.len()).filter(|value| list[*value].space == Space::Full && list[*value].class == Class::F32);
        full.filter_map(|value| of_value(value as u32))
            .filter(|(value, (_, sigmoid))| found.is_private(*sigmoid, *value, outputs))
            .map(|(value, (kind, _))| (value as usize, kind))
            .collect()
    };
    for (value, kind) in found {
        list[value].kind = kind;
    }
}

struct Recognition<'a> {
    list: &'a [Value],
}

/// A sigmoid, and the number it is of.
type Found = (Sigmoid, u32);

impl Recognition<'_> {
    /// Operands of a sum or product in both orders.
    fn both(&self, op: ScalarOp, value: u32) -> [Option<[u32; 2]>; 2] {
        match self.list[value as usize].kind {
            Kind::Binary(found, a, b) if found == op => [Some([a, b]), Some([b, a])],
            _ => [None; 2],
        }
    }

    fn constant(&self, value: u32) -> Option<f32> {
        match self.list[value as usize] {
            Value { kind: Kind::Constant(number), class: Class::F32, .. } => Some(number as f32),
            _ => None,
        }
    }

    /// Of a sum or product with a number, the other operand and the number.
    fn with_number(&self, op: ScalarOp, value: u32) -> Option<(u32, f32)> {
        let mut orders = self.both(op, value).into_iter().flatten();
        orders.find_map(|[other, number]| Some((other, self.constant(number)?)))
    }

    fn of_unary(&self, op: ScalarOp, value: u32) -> Option<u32> {
        match self.list[value as usize].kind {
            Kind::Unary(found, operand) if found == op => Some(operand),
            _ => None,
        }
    }

    fn is_square(&self, value: u32, of: u32) -> bool {
        self.list[value as usize].kind == Kind::Binary(ScalarOp::Mul, of, of)
    }

    fn sigmoid(&self, value: u32) -> Option<Found> {
        if let Some(inner) = self.of_unary(ScalarOp::Erf, value) {
            let (x, scale) = self.with_number(ScalarOp::Mul, inner)?;
            return Some((Sigmoid::Erf { scale }, x));
        }
        let (inner, scale) = self.with_number(ScalarOp::Mul, self.of_unary(ScalarOp::Tanh, value)?)?;
        self.both(ScalarOp::Add, inner).into_iter().flatten().find_map(|[x, weighted]| {
            let (cubed, cube) = self.with_number(ScalarOp::Mul, weighted)?;
            let mut orders = self.both(ScalarOp::Mul, cubed).into_iter().flatten();
            let is_cube = orders.any(|[square, other]| other == x && self.is_square(square, x));
            is_cube.then_some((Sigmoid::Tanh { cube, scale }, x))
        })
    }

    /// GELU as an instruction, and the value of its sigmoid.
    fn gelu(&self, value: u32) -> Option<(Kind, u32)> {
        self.both(ScalarOp::Mul, value).into_iter().flatten().find_map(|[halved, raised]| {
            let (x, half) = self.with_number(ScalarOp::Mul, halved)?;
            let (s, one) = self.with_number(ScalarOp::Add, raised)?;
            let (sigmoid, of) = self.sigmoid(s)?;
            (of == x && self.is_full(x)).then_some((Kind::Gelu(Gelu { sigmoid, half, one }, x), s))
        })
    }

    /// The gradient of GELU as an instruction, and the value of its sigmoid.
    fn gelu_backward(&self, value: u32) -> Option<(Kind, u32)> {
        self.both(ScalarOp::Mul, value).into_iter().flatten().find_map(|[d, sum]| {
            self.both(ScalarOp::Add, sum).into_iter().flatten().find_map(|[weight, slope]| {
                let (raised, half) = self.with_number(ScalarOp::Mul, weight)?;
                let (s, one) = self.with_number(ScalarOp::Add, raised)?;
                let (sigmoid, x) = self.sigmoid(s)?;
                let slope = match sigmoid {
                    Sigmoid::Erf { .. } => self.slope_of_erf(slope, x)?,
                    Sigmoid::Tanh { .. } => self.slope_of_tanh(slope, x, s)?,
                };
                let kind = Kind::GeluBackward(GeluBackward { sigmoid, half, one, slope }, d, x);
                (self.is_full(x) && self.is_full(d)).then_some((kind, s))
            })
        })
    }

    fn slope_of_erf(&self, slope: u32, x: u32) -> Option<[f32; 4]> {
        let (product, scale) = self.with_number(ScalarOp::Mul, slope)?;
        self.both(ScalarOp::Mul, product).into_iter().flatten().find_map(|[other, density]| {
            let (square, exponent) = self.with_number(ScalarOp::Mul, self.of_unary(ScalarOp::Exp, density)?)?;
            (other == x && self.is_square(square, x)).then_some([exponent, scale, 0.0, 0.0])
        })
    }

    fn slope_of_tanh(&self, slope: u32, x: u32, s: u32) -> Option<[f32; 4]> {
        self.both(ScalarOp::Mul, slope).into_iter().flatten().find_map(|[product, inner]| {
            let (weighted, constant) = self.with_number(ScalarOp::Add, inner)?;
            let (square, weight) = self.with_number(ScalarOp::Mul, weighted)?;
            self.both(ScalarOp::Mul, product).into_iter().flatten().find_map(|[halved, outer]| {
                let (other, half) = self.with_number(ScalarOp::Mul, halved)?;
                let Kind::Binary(ScalarOp::Sub, one, squared) = self.list[outer as usize].kind else { return None };
                let fits = other == x && self.is_square(square, x) && self.is_square(squared, s);
                fits.then_some([half, self.constant(one)?, weight, constant])
            })
        })
    }

    fn is_full(&self, value: u32) -> bool {
        self.list[value as usize].space == Space::Full && self.list[value as usize].class == Class::F32
    }

    /// Whether all that reads `inner`, directly or not, is read on the way to `root` alone.
    fn is_private(&self, inner: u32, root: u32, outputs: &[u32]) -> bool {
        let mut reads = vec![false; self.list.len()];
        reads[inner as usize] = true;
        for value in inner as usize + 1..self.list.len() {
            let read = self.list[value].operands().any(|operand| reads[operand]);
            if read && value > root as usize {
                return false;
            }
            reads[value] = read && value != root as usize;
        }
        reads.iter().zip(0..).all(|(read, value)| !read || !outputs.contains(&value) || value == root)
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Operation;
    use super::super::{FusedKernel, FusedNode, FusedProgram, OutputLayout};
    use crate::dtype::DType;
    use crate::scalar::ScalarOp::{self, Add, Erf, Exp, Mul, Sub, Tanh};
    use crate::view::{TensorMut, TensorRef};

    const LENGTH: usize = 5003;

    /// Nodes of a program of `d` and `x`, the values of which are computed at once besides, operation by operation.
    struct Both {
        nodes: Vec<FusedNode>,
        values: Vec<Vec<f32>>,
    }

    impl Both {
        fn new() -> Both {
            let of = |scale: f32| move |i: usize| ((i * 2_654_435_761) % 4093) as f32 * scale - 2046.5 * scale;
            let x = (0..LENGTH - 3).map(of(0.003)).chain([f32::INFINITY, f32::NEG_INFINITY, -0.0]).collect();
            let d = (0..LENGTH).map(of(0.001)).collect();
            Both { nodes: vec![FusedNode::Input(0), FusedNode::Input(1)], values: vec![d, x] }
        }

        fn number(&mut self, number: f64) -> u32 {
            self.nodes.push(FusedNode::Constant(number));
            self.values.push(vec![number as f32; LENGTH]);
            self.nodes.len() as u32 - 1
        }

        fn apply(&mut self, op: ScalarOp, a: u32, b: u32) -> u32 {
            let (x, y) = (&self.values[a as usize], &self.values[b as usize]);
            let each = |of: fn(f32, f32) -> f32| x.iter().zip(y).map(|(x, y)| of(*x, *y)).collect();
            let slice = |function: fn(&[f32], &mut [f32])| {
                let mut out = vec![0.0; LENGTH];
                function(x, &mut out);
                out
            };
            let value = match op {
                Add => each(|x, y| x + y),
                Sub => each(|x, y| x - y),
                Mul => each(|x, y| x * y),
                Erf => slice(crate::vector::erf),
                Tanh => slice(crate::vector::tanh),
                Exp => slice(crate::vector::exp),
                _ => unreachable!("{op:?} is in no form of GELU"),
            };
            self.values.push(value);
            self.nodes.push(FusedNode::Apply(op, [a, b, 0]));
            self.nodes.len() as u32 - 1
        }

        fn of_number(&mut self, op: ScalarOp, a: u32, number: f64) -> u32 {
            let number = self.number(number);
            self.apply(op, number, a)
        }

        fn sigmoid(&mut self, tanh: bool) -> u32 {
            if !tanh {
                let inner = self.of_number(Mul, 1, 0.7);
                return self.apply(Erf, inner, 0);
            }
            let square = self.apply(Mul, 1, 1);
            let cube = self.apply(Mul, square, 1);
            let cube = self.of_number(Mul, cube, 0.0447);
            let inner = self.apply(Add, 1, cube);
            let inner = self.of_number(Mul, inner, 0.8);
            self.apply(Tanh, inner, 0)
        }

        fn gelu(&mut self, tanh: bool) -> u32 {
            let half = self.of_number(Mul, 1, 0.5);
            let s = self.sigmoid(tanh);
            let raised = self.of_number(Add, s, 1.0);
            self.apply(Mul, half, raised)
        }

        fn gelu_backward(&mut self, tanh: bool) -> u32 {
            let s = self.sigmoid(tanh);
            let square = self.apply(Mul, 1, 1);
            let slope = if tanh {
                let inner = self.of_number(Mul, square, 0.107);
                let inner = self.of_number(Add, inner, 0.8);
                let one = self.number(1.0);
                let squared = self.apply(Mul, s, s);
                let outer = self.apply(Sub, one, squared);
                let half = self.of_number(Mul, 1, 0.5);
                let product = self.apply(Mul, half, outer);
                self.apply(Mul, product, inner)
            } else {
                let exponent = self.of_number(Mul, square, -0.5);
                let density = self.apply(Exp, exponent, 0);
                let product = self.apply(Mul, 1, density);
                self.of_number(Mul, product, 0.4)
            };
            let raised = self.of_number(Add, s, 1.0);
            let weight = self.of_number(Mul, raised, 0.5);
            let sum = self.apply(Add, weight, slope);
            self.apply(Mul, 0, sum)
        }

        /// Runs the program, whose bits are those of the operations, and gives the number of GELUs among its steps.
        fn gelus(&self, outputs: &[u32]) -> usize {
            let outputs_of = outputs.iter().map(|output| (*output, DType::F32)).collect();
            let (nodes, input_dtypes) = (self.nodes.clone(), vec![DType::F32; 2]);
            let program = FusedProgram { input_dtypes, nodes, outputs: outputs_of };
            let (shape, strides) = ([LENGTH], [1]);
            let layout = OutputLayout { shape: &shape, strides: &strides };
            let kernel = FusedKernel::new(&program, &shape, &[&strides, &strides], &vec![layout; outputs.len()]);
            let mut results = vec![vec![0.0f32; LENGTH]; outputs.len()];
            let inputs = [0, 1].map(|input| TensorRef::from_slice(&self.values[input], &shape, &strides));
            let mut targets: Vec<_> =
                results.iter_mut().map(|result| TensorMut::from_slice(result, &shape, &strides)).collect();
            kernel.run(&inputs, &mut targets).unwrap();
            for (output, result) in outputs.iter().zip(&results) {
                for (i, (got, expected)) in result.iter().zip(&self.values[*output as usize]).enumerate() {
                    let same = got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan());
                    assert!(same, "element {i} is {got:e}, operation by operation {expected:e}");
                }
            }
            let steps = kernel.plan.stages[0].body.iter();
            steps.filter(|step| matches!(step.operation, Operation::Gelu(_) | Operation::GeluBackward(_))).count()
        }
    }

    #[test]
    fn gelu_and_its_gradient_are_one_instruction_with_the_same_bits() {
        for tanh in [false, true] {
            let mut both = Both::new();
            let out = both.gelu(tanh);
            assert_eq!(both.gelus(&[out]), 1, "forward, {tanh}");
            let mut both = Both::new();
            let out = both.gelu_backward(tanh);
            assert_eq!(both.gelus(&[out]), 1, "backward, {tanh}");
        }
    }

    #[test]
    fn what_others_read_is_computed_for_all() {
        for tanh in [false, true] {
            // The sigmoid is shared by both directions.
            let mut both = Both::new();
            let (forward, backward) = (both.gelu(tanh), both.gelu_backward(tanh));
            assert_eq!(both.gelus(&[forward, backward]), 0);
            // It is a result itself.
            let mut both = Both::new();
            let (s, out) = (both.sigmoid(tanh), both.gelu(tanh));
            assert_eq!(both.gelus(&[s, out]), 0);
        }
    }

    #[test]
    fn what_is_nearly_gelu_is_not() {
        // The number that is weighted is another one.
        let mut both = Both::new();
        let half = both.of_number(Mul, 0, 0.5);
        let s = both.sigmoid(true);
        let raised = both.of_number(Add, s, 1.0);
        let out = both.apply(Mul, half, raised);
        assert_eq!(both.gelus(&[out]), 0);
        // The cube is a product with the other operand.
        let mut both = Both::new();
        let square = both.apply(Mul, 1, 1);
        let cube = both.apply(Mul, square, 0);
        let cube = both.of_number(Mul, cube, 0.0447);
        let inner = both.apply(Add, 1, cube);
        let inner = both.of_number(Mul, inner, 0.8);
        let s = both.apply(Tanh, inner, 0);
        let half = both.of_number(Mul, 1, 0.5);
        let raised = both.of_number(Add, s, 1.0);
        let out = both.apply(Mul, half, raised);
        assert_eq!(both.gelus(&[out]), 0);
    }
}
