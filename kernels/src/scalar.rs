//! Scalar programs: the arithmetic of an elementwise operator, written once.
//!
//! A `scalar` rule is a Rust function over [`Expr`] handles. Calling it records a straight-line [`ScalarProgram`],
//! from which the CPU's loops, the fused tiles and generated device source are made. Equal expressions are recorded
//! once.

use std::cell::RefCell;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

/// What a scalar instruction computes. Comparisons and predicates give a boolean; arithmetic keeps its operands' type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are those of the mathematics
pub enum ScalarOp {
    // one operand
    Abs,
    Neg,
    Exp,
    Expm1,
    Log,
    Log1p,
    Log2,
    Log10,
    Sqrt,
    Rsqrt,
    Reciprocal,
    Sin,
    Cos,
    Tanh,
    Erf,
    Erfc,
    Floor,
    Round,
    Sign,
    IsNegative,
    IsFinite,
    Not,
    // two operands
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    Maximum,
    Minimum,
    Remainder,
    Atan2,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
    Gcd,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
    /// `if a { b } else { c }`, with a boolean `a`.
    Select,
}

impl ScalarOp {
    /// Number of operands.
    pub const fn arity(self) -> usize {
        use ScalarOp::*;
        match self {
            Abs | Neg | Exp | Expm1 | Log | Log1p | Log2 | Log10 | Sqrt | Rsqrt | Reciprocal | Sin | Cos | Tanh
            | Erf | Erfc | Floor | Round | Sign | IsNegative | IsFinite | Not => 1,
            Select => 3,
            _ => 2,
        }
    }

    /// Whether it divides: integers cannot be divided by zero.
    pub const fn divides(self) -> bool {
        matches!(self, ScalarOp::Div | ScalarOp::Remainder)
    }

    /// Whether it rounds nothing: it chooses, compares, or changes a sign.
    pub const fn is_exact(self) -> bool {
        use ScalarOp::*;
        matches!(self, Abs | Neg | Floor | Round | Sign | Maximum | Minimum | Select)
            || self.is_of_integers()
            || self.is_predicate()
    }

    /// Whether it has a meaning for integers alone.
    pub const fn is_of_integers(self) -> bool {
        use ScalarOp::*;
        matches!(self, BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight | Gcd)
    }

    /// Whether the result is a boolean whatever the operands are.
    pub const fn is_predicate(self) -> bool {
        use ScalarOp::*;
        matches!(self, IsNegative | IsFinite | Not | Eq | Ne | Lt | Le | Gt | Ge | And | Or)
    }
}

/// One node of a scalar program; operands are indices of earlier nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScalarNode {
    /// The value of the n-th input tensor at this element.
    Input(u32),
    /// The n-th run-time number (an attribute of the operator, a kernel parameter: never baked into source).
    Number(u32),
    /// A constant of the formula.
    Constant(f64),
    /// An operation on earlier nodes; unused operands are 0.
    Apply(ScalarOp, [u32; 3]),
}

/// A recorded scalar rule.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScalarProgram {
    /// Nodes in evaluation order.
    pub nodes: Vec<ScalarNode>,
    /// Indices of the results.
    pub results: Vec<u32>,
}

thread_local! {
    static RECORDING: RefCell<Vec<ScalarNode>> = const { RefCell::new(Vec::new()) };
    static NUMBERS: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}

fn record(node: ScalarNode) -> Expr {
    RECORDING.with_borrow_mut(|nodes| {
        // Constants compare by bits, so that -0.0 and 0.0 stay apart and NaN equals itself.
        let same = |other: &ScalarNode| match (*other, node) {
            (ScalarNode::Constant(a), ScalarNode::Constant(b)) => a.to_bits() == b.to_bits(),
            (a, b) => a == b,
        };
        let index = nodes.iter().position(same).unwrap_or_else(|| {
            nodes.push(node);
            nodes.len() - 1
        });
        Expr(index as u32)
    })
}

impl ScalarProgram {
    /// Whether no node rounds what it computes.
    pub fn is_exact(&self) -> bool {
        self.nodes.iter().all(|node| !matches!(node, ScalarNode::Apply(op, _) if !op.is_exact()))
    }

    /// Records `rule`, which gets one handle for each of `inputs` tensors and `numbers` run-time numbers.
    pub fn record(inputs: usize, numbers: usize, rule: impl FnOnce(&[Expr], &[Expr]) -> Vec<Expr>) -> ScalarProgram {
        let outer = RECORDING.with_borrow_mut(std::mem::take);
        let input_handles: Vec<Expr> = (0..inputs).map(|i| record(ScalarNode::Input(i as u32))).collect();
        let number_handles: Vec<Expr> = (0..numbers).map(|i| record(ScalarNode::Number(i as u32))).collect();
        let results = rule(&input_handles, &number_handles).into_iter().map(|expr| expr.0).collect();
        let nodes = RECORDING.with_borrow_mut(|nodes| std::mem::replace(nodes, outer));
        ScalarProgram { nodes, results }
    }
}

impl ScalarProgram {
    /// Records `rule`, which gets one handle for each of `inputs` tensors. Numbers that it takes by [`Expr::number`]
    /// come back in order beside the program.
    pub fn record_with_numbers(inputs: usize, rule: impl FnOnce(&[Expr]) -> Vec<Expr>) -> (ScalarProgram, Vec<f64>) {
        let outer = NUMBERS.with_borrow_mut(std::mem::take);
        let program = ScalarProgram::record(inputs, 0, |handles, _| rule(handles));
        let numbers = NUMBERS.with_borrow_mut(|numbers| std::mem::replace(numbers, outer));
        (program, numbers)
    }
}

/// A scalar being computed by a `scalar` rule: a handle on a node of the program being recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expr(u32);

impl Expr {
    /// A constant of the formula.
    pub fn constant(value: f64) -> Expr {
        record(ScalarNode::Constant(value))
    }
    /// A run-time number: a parameter of the kernel, not a constant of its source.
    pub fn number(value: f64) -> Expr {
        let index = NUMBERS.with_borrow_mut(|numbers| {
            numbers.push(value);
            numbers.len() - 1
        });
        record(ScalarNode::Number(index as u32))
    }
    fn unary(self, op: ScalarOp) -> Expr {
        record(ScalarNode::Apply(op, [self.0, 0, 0]))
    }
    fn binary(self, op: ScalarOp, other: Expr) -> Expr {
        record(ScalarNode::Apply(op, [self.0, other.0, 0]))
    }
    /// `if self { yes } else { no }`; `self` must be a boolean.
    pub fn select(self, yes: impl Into<Expr>, no: impl Into<Expr>) -> Expr {
        record(ScalarNode::Apply(ScalarOp::Select, [self.0, yes.into().0, no.into().0]))
    }
}

impl From<f64> for Expr {
    fn from(value: f64) -> Expr {
        Expr::constant(value)
    }
}

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl Expr {$(
            $(#[$doc])*
            pub fn $name(self) -> Expr { self.unary(ScalarOp::$op) }
        )*}
    };
}
unary_methods! {
    /// Absolute value.
    abs => Abs;
    /// eˣ.
    exp => Exp;
    /// eˣ - 1, also where it is small.
    expm1 => Expm1;
    /// Natural logarithm.
    log => Log;
    /// Natural logarithm of 1 + x, also where x is small.
    log1p => Log1p;
    /// Logarithm to base 2, exact at powers of 2.
    log2 => Log2;
    /// Logarithm to base 10, exact at powers of 10.
    log10 => Log10;
    /// Square root.
    sqrt => Sqrt;
    /// 1/√x.
    rsqrt => Rsqrt;
    /// 1/x.
    reciprocal => Reciprocal;
    /// Sine.
    sin => Sin;
    /// Cosine.
    cos => Cos;
    /// Hyperbolic tangent.
    tanh => Tanh;
    /// Error function.
    erf => Erf;
    /// Complement of the error function, 1 - erf x, also where it is small.
    erfc => Erfc;
    /// Largest integer not above.
    floor => Floor;
    /// Nearest integer; the even one where two are as near.
    round => Round;
    /// -1, 0 or 1; 0 for NaN, as in PyTorch.
    sign => Sign;
    /// Whether the sign is negative, that of zero and NaN as well.
    is_negative => IsNegative;
    /// Whether neither infinite nor NaN.
    is_finite => IsFinite;
}

macro_rules! binary_methods {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl Expr {$(
            $(#[$doc])*
            pub fn $name(self, other: impl Into<Expr>) -> Expr { self.binary(ScalarOp::$op, other.into()) }
        )*}
    };
}
binary_methods! {
    /// `self` to the power `other`.
    pow => Pow;
    /// The larger; NaN if either is NaN.
    maximum => Maximum;
    /// The smaller; NaN if either is NaN.
    minimum => Minimum;
    /// Remainder with the divisor's sign (Python's `%`).
    remainder => Remainder;
    /// The angle of the point (`other`, `self`) with the axis of `other`, from -π to π.
    atan2 => Atan2;
    /// The bits that both integers have.
    bit_and => BitAnd;
    /// The bits that either integer has.
    bit_or => BitOr;
    /// The bits that one of two integers has.
    bit_xor => BitXor;
    /// The integer's bits moved to the left; 0 if by a negative number or by 64 and more.
    shift_left => ShiftLeft;
    /// The integer's bits moved to the right, with copies of its sign; only these are left by a negative number or by
    /// 64 and more.
    shift_right => ShiftRight;
    /// The greatest common divisor of two integers, not negative; of zeros 0.
    gcd => Gcd;
    /// `==`
    eq => Eq;
    /// `!=`
    ne => Ne;
    /// `<`
    lt => Lt;
    /// `<=`
    le => Le;
    /// `>`
    gt => Gt;
    /// `>=`
    ge => Ge;
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)*) => {$(
        impl $trait for Expr {
            type Output = Expr;
            fn $method(self, other: Expr) -> Expr { self.binary(ScalarOp::$op, other) }
        }
        impl $trait<f64> for Expr {
            type Output = Expr;
            fn $method(self, other: f64) -> Expr { self.binary(ScalarOp::$op, Expr::constant(other)) }
        }
        impl $trait<Expr> for f64 {
            type Output = Expr;
            fn $method(self, other: Expr) -> Expr { Expr::constant(self).binary(ScalarOp::$op, other) }
        }
    )*};
}
operators! { Add add Add; Sub sub Sub; Mul mul Mul; Div div Div; }

impl BitAnd for Expr {
    type Output = Expr;
    fn bitand(self, other: Expr) -> Expr {
        self.binary(ScalarOp::And, other)
    }
}
impl BitOr for Expr {
    type Output = Expr;
    fn bitor(self, other: Expr) -> Expr {
        self.binary(ScalarOp::Or, other)
    }
}
impl Neg for Expr {
    type Output = Expr;
    fn neg(self) -> Expr {
        self.unary(ScalarOp::Neg)
    }
}
impl Not for Expr {
    type Output = Expr;
    fn not(self) -> Expr {
        self.unary(ScalarOp::Not)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_expressions_are_recorded_once() {
        let program = ScalarProgram::record(1, 1, |x, n| vec![(x[0] * n[0]).tanh() + (x[0] * n[0]).tanh()]);
        assert_eq!(program.nodes.len(), 5);
        assert_eq!(program.results, [4]);
    }
}
