//! Type inference: from the nodes of a program to values that have a class and a space.

use super::program::{FusedNode, FusedProgram};
use crate::dtype::DType;
use crate::scalar::ScalarOp;
use crate::tile::gelu::{Gelu, GeluBackward};
use crate::tile::reduction::Reduction;
use crate::tile::{Class, Operand, arithmetic};

/// Where a value varies. The order is that of broadcasting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    /// One value for the whole iteration.
    Uniform,
    /// One value for each row.
    Row,
    /// One value for each element.
    Full,
}

/// How a value comes about; operands are indices of earlier values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// An element of an input.
    Input(usize),
    /// A number.
    Constant(f64),
    /// A function of one value.
    Unary(ScalarOp, u32),
    /// A function of two values.
    Binary(ScalarOp, u32, u32),
    /// The second where the first is not 0, otherwise the third.
    Select(u32, u32, u32),
    /// The same number in the value's class and space.
    Cast(u32),
    /// The nearest element of a type (or the wrapped integer), still in the value's class.
    Round(DType, u32),
    /// The reduction of each row.
    Reduce(Reduction, u32),
    /// Found by the plan of the host (see [`super::recognition`]).
    Gelu(Gelu, u32),
    /// As [`Kind::Gelu`], of the cotangent and the number.
    GeluBackward(GeluBackward, u32, u32),
}

/// One typed value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Value {
    /// The operation and its operands.
    pub kind: Kind,
    /// The arithmetic that it is computed in.
    pub class: Class,
    /// Whether there is one for all elements, one a row or one an element.
    pub space: Space,
    /// How many reductions one after another it depends on.
    pub level: usize,
}

impl Value {
    /// Operands, as indices of values.
    pub fn operands(&self) -> impl Iterator<Item = usize> + use<> {
        let (list, count) = match self.kind {
            Kind::Input(_) | Kind::Constant(_) => ([0; 3], 0),
            Kind::Unary(_, a) | Kind::Cast(a) | Kind::Round(_, a) | Kind::Reduce(_, a) | Kind::Gelu(_, a) => {
                ([a, 0, 0], 1)
            }
            Kind::Binary(_, a, b) | Kind::GeluBackward(_, a, b) => ([a, b, 0], 2),
            Kind::Select(a, b, c) => ([a, b, c], 3),
        };
        list.into_iter().take(count).map(|operand| operand as usize)
    }

    /// Whether computing it again costs much more than reading it.
    pub fn is_expensive(&self) -> bool {
        use ScalarOp::*;
        matches!(
            self.kind,
            Kind::Unary(Exp | Expm1 | Log | Log1p | Log2 | Log10 | Tanh | Erf | Erfc | Sin | Cos, _)
                | Kind::Binary(Pow | Remainder | Atan2, ..)
                | Kind::Gelu(..)
                | Kind::GeluBackward(..)
        )
    }
}

/// What a node of the program has become.
#[derive(Debug, Clone, Copy)]
pub enum Lowered {
    /// A number that takes the type of what it is combined with.
    Number(f64),
    /// An index of the list of values.
    Value(u32),
}

/// The values of a program, operands before users.
#[derive(Debug)]
pub struct Values {
    /// The values; operands are indices of this list.
    pub list: Vec<Value>,
    /// The lowered form of each node.
    pub nodes: Vec<Lowered>,
    /// For each output, in the class and (if it varies at all) the space that it is stored in.
    pub outputs: Vec<u32>,
    fallback: Class,
}

impl Values {
    /// The values of `program`, whose inputs vary as `spaces` say.
    pub fn new(program: &FusedProgram, spaces: &[Space]) -> Values {
        let fallback = program
            .input_dtypes
            .iter()
            .chain(program.outputs.iter().map(|(_, dtype)| dtype))
            .map(|&dtype| Class::of(dtype))
            .max()
            .unwrap_or(Class::F32);
        let mut values = Values { list: Vec::new(), nodes: Vec::new(), outputs: Vec::new(), fallback };
        for node in &program.nodes {
            let lowered = values.lower(*node, program, spaces);
            values.nodes.push(lowered);
        }
        for &(node, dtype) in &program.outputs {
            let value = values.typed(values.nodes[node as usize], Class::of(dtype));
            let value = match values.list[value as usize].kind {
                // Storing rounds (or wraps) by itself, whichever of two is stored.
                Kind::Round(rounded, operand) if rounded == dtype => operand,
                Kind::Select(condition, x, y) => {
                    let unrounded = |value: u32| match values.list[value as usize].kind {
                        Kind::Round(rounded, operand) if rounded == dtype => operand,
                        _ => value,
                    };
                    let (x, y) = (unrounded(x), unrounded(y));
                    let class = values.class(x);
                    let value = values.push(Kind::Select(condition, x, y), class);
                    values.cast(value, Class::of(dtype))
                }
                _ => values.cast(value, Class::of(dtype)),
            };
            values.outputs.push(value);
        }
        values
    }

    fn push(&mut self, kind: Kind, class: Class) -> u32 {
        let mut value = Value { kind, class, space: Space::Uniform, level: 0 };
        for operand in value.operands() {
            value.space = value.space.max(self.list[operand].space);
            value.level = value.level.max(self.list[operand].level);
        }
        if let Kind::Reduce(..) = kind {
            value.space = Space::Row;
            value.level += 1;
        }
        self.add(value)
    }

    fn add(&mut self, value: Value) -> u32 {
        let same = |other: &Value| match (other.kind, value.kind) {
            (Kind::Constant(a), Kind::Constant(b)) => a.to_bits() == b.to_bits() && other.class == value.class,
            _ => *other == value,
        };
        let index = self.list.iter().position(same).unwrap_or_else(|| {
            self.list.push(value);
            self.list.len() - 1
        });
        index as u32
    }

    fn class(&self, value: u32) -> Class {
        self.list[value as usize].class
    }

    fn cast(&mut self, value: u32, class: Class) -> u32 {
        if self.class(value) == class { value } else { self.push(Kind::Cast(value), class) }
    }

    /// The value once more for every element (`space` full) or row.
    pub fn broadcast(&mut self, value: u32, space: Space) -> u32 {
        let Value { class, space: present, level, .. } = self.list[value as usize];
        if present >= space { value } else { self.add(Value { kind: Kind::Cast(value), class, space, level }) }
    }

    fn typed(&mut self, lowered: Lowered, class: Class) -> u32 {
        match lowered {
            Lowered::Value(value) => value,
            Lowered::Number(number) => self.push(Kind::Constant(number), class),
        }
    }

    fn lower(&mut self, node: FusedNode, program: &FusedProgram, spaces: &[Space]) -> Lowered {
        match node {
            FusedNode::Input(input) => {
                let class = Class::of(program.input_dtypes[input as usize]);
                let space = spaces[input as usize];
                Lowered::Value(self.add(Value { kind: Kind::Input(input as usize), class, space, level: 0 }))
            }
            FusedNode::Constant(number) => Lowered::Number(number),
            FusedNode::Convert(dtype @ (DType::F16 | DType::BF16), operand)
                if let Lowered::Number(number) = self.nodes[operand as usize] =>
            {
                Lowered::Value(self.push(Kind::Constant(dtype.nearest(number)), Class::of(dtype)))
            }
            FusedNode::Convert(dtype, operand) => {
                let value = self.typed(self.nodes[operand as usize], Class::of(dtype));
                let value = self.cast(value, Class::of(dtype));
                let narrow = matches!(dtype, DType::F16 | DType::BF16) || (dtype.is_integer() && dtype != DType::I64);
                Lowered::Value(if narrow && !self.is_exact(value, dtype, program) {
                    self.push(Kind::Round(dtype, value), Class::of(dtype))
                } else {
                    value
                })
            }
            FusedNode::Reduce(reduction, operand) => {
                let value = self.typed(self.nodes[operand as usize], self.fallback);
                let class = self.class(value).max(Class::I64);
                let value = self.cast(value, class);
                let value = self.broadcast(value, Space::Full);
                Lowered::Value(self.push(Kind::Reduce(reduction, value), class))
            }
            FusedNode::Apply(op, operands) => {
                let operands = operands.map(|operand| self.nodes.get(operand as usize).copied());
                match op.arity() {
                    1 => self.unary(op, operands[0]),
                    2 => self.binary(op, operands[0], operands[1]),
                    _ => self.select(operands[0], operands[1], operands[2]),
                }
            }
        }
    }

    /// Whether every element of `value` is certainly one of `dtype`, a type of 16 bits or a narrow integer: rounding or
    /// wrapping it would change nothing.
    fn is_exact(&self, value: u32, dtype: DType, program: &FusedProgram) -> bool {
        use ScalarOp::*;
        let mut exact: Vec<bool> = Vec::with_capacity(value as usize + 1);
        for Value { kind, class, .. } in &self.list[..=value as usize] {
            let operand = |operand: u32| exact[operand as usize];
            // Integers may overflow where floating-point numbers do not: the negative of the least one, say.
            let floating = dtype.is_floating();
            let holds = match *kind {
                Kind::Input(input) => program.input_dtypes[input] == dtype,
                Kind::Constant(number) => floating && dtype.nearest(number).to_bits() == number.to_bits(),
                Kind::Round(other, _) => other == dtype,
                Kind::Unary(Sign, _) => floating,
                Kind::Unary(Neg | Abs | Floor | Round, x) => floating && operand(x),
                Kind::Binary(Maximum | Minimum, x, y) | Kind::Select(_, x, y) => operand(x) && operand(y),
                Kind::Reduce(Reduction::Max | Reduction::Min, x) => operand(x),
                // The same once more for each element, or the 0 and 1 of a boolean.
                Kind::Cast(x) => {
                    let from = self.class(x);
                    from == Class::Bool || (from == *class && operand(x))
                }
                Kind::Unary(..)
                | Kind::Binary(..)
                | Kind::Reduce(Reduction::Sum | Reduction::Product, _)
                | Kind::Gelu(..)
                | Kind::GeluBackward(..) => false,
            };
            exact.push(holds);
        }
        exact[value as usize]
    }

    fn unary(&mut self, op: ScalarOp, operand: Option<Lowered>) -> Lowered {
        use ScalarOp::*;
        let operand = operand.unwrap_or(Lowered::Number(0.0));
        if let Lowered::Number(number) = operand
            && !op.is_predicate()
        {
            let mut result = 0f64;
            let (x, out) = ((&raw const number).cast(), (&raw mut result).cast());
            // SAFETY: both are addresses of one f64.
            unsafe { arithmetic::unary(op, Class::F64, x, out, 1) };
            return Lowered::Number(result);
        }
        let value = self.typed(operand, self.fallback);
        let class = self.class(value);
        let (class, result) = match op {
            Not => (Class::Bool, Class::Bool),
            IsFinite => (if class.is_floating() { class } else { Class::F32 }, Class::Bool),
            IsNegative => (class.max(Class::I64), Class::Bool),
            Abs | Neg | Floor | Round | Sign => (class.max(Class::I64), class.max(Class::I64)),
            _ => (class.max(Class::F32), class.max(Class::F32)),
        };
        let value = self.cast(value, class);
        Lowered::Value(self.push(Kind::Unary(op, value), result))
    }

    fn binary(&mut self, op: ScalarOp, a: Option<Lowered>, b: Option<Lowered>) -> Lowered {
        use ScalarOp::*;
        let (a, b) = (a.unwrap_or(Lowered::Number(0.0)), b.unwrap_or(Lowered::Number(0.0)));
        if let (Lowered::Number(x), Lowered::Number(y), false) = (a, b, op.is_predicate()) {
            let mut result = 0f64;
            let (x, y) = ((&raw const x).cast(), (&raw const y).cast());
            // SAFETY: all three are addresses of one f64.
            unsafe {
                arithmetic::binary(op, Class::F64, Operand::Tile(x), Operand::Tile(y), (&raw mut result).cast(), 1, 1);
            }
            return Lowered::Number(result);
        }
        let class = match (a, b) {
            (Lowered::Value(a), Lowered::Value(b)) => self.class(a).max(self.class(b)),
            (Lowered::Value(value), Lowered::Number(number)) | (Lowered::Number(number), Lowered::Value(value)) => {
                // An integer is compared with 0.5 itself; in arithmetic the number is truncated.
                let fractional = op.is_predicate() && number.fract() != 0.0 && !self.class(value).is_floating();
                if fractional { Class::F64 } else { self.class(value) }
            }
            (Lowered::Number(_), Lowered::Number(_)) => Class::F64,
        };
        let class = if matches!(op, And | Or) { Class::Bool } else { class.max(Class::I64) };
        let (a, b) = (self.typed(a, class), self.typed(b, class));
        let (a, b) = (self.cast(a, class), self.cast(b, class));
        Lowered::Value(self.push(Kind::Binary(op, a, b), if op.is_predicate() { Class::Bool } else { class }))
    }

    fn select(&mut self, condition: Option<Lowered>, a: Option<Lowered>, b: Option<Lowered>) -> Lowered {
        let number = Lowered::Number(0.0);
        let (condition, a, b) = (condition.unwrap_or(number), a.unwrap_or(number), b.unwrap_or(number));
        let condition = self.typed(condition, Class::Bool);
        let condition = self.cast(condition, Class::Bool);
        let class = match (a, b) {
            (Lowered::Value(a), Lowered::Value(b)) => self.class(a).max(self.class(b)),
            (Lowered::Value(value), Lowered::Number(number)) | (Lowered::Number(number), Lowered::Value(value)) => {
                let whole = number == 0.0 || number == 1.0;
                if self.class(value) == Class::Bool && !whole { Class::I64 } else { self.class(value) }
            }
            (Lowered::Number(_), Lowered::Number(_)) => self.fallback,
        };
        let (a, b) = (self.typed(a, class), self.typed(b, class));
        let (a, b) = (self.cast(a, class), self.cast(b, class));
        let space = self.list[a as usize].space.max(self.list[b as usize].space);
        // The kernel wants one condition for each element of the result.
        let condition = self.broadcast(condition, space);
        Lowered::Value(self.push(Kind::Select(condition, a, b), class))
    }
}
