//! What all kinds of kernels are written with: values as expressions, elements read and written, coordinates.

use fulgurite_kernels::fused::values::{Kind, Space};
use fulgurite_kernels::scalar::ScalarOp;
use fulgurite_kernels::tile::Class;

use super::dialect::Dialect;
use super::region::{Operand, Region};
use super::text::Text;

/// A kernel being written.
#[derive(Debug)]
pub(super) struct Emitter<'a> {
    pub(super) region: &'a Region,
    pub(super) text: Text,
    pub(super) functions: Box<dyn Dialect>,
    /// Elements that a thread handles together.
    pub(super) vector: usize,
    /// How many such vectors a thread handles at a time.
    pub(super) unroll: usize,
    /// The type of indices.
    pub(super) index: &'static str,
    /// Whether loads define what they load into, which otherwise is declared before.
    pub(super) defines_loaded: bool,
    /// The number of a block, among those that share the work.
    pub(super) block: &'static str,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(region: &'a Region, vector: usize, unroll: usize, wide: bool) -> Emitter<'a> {
        let functions = (region.dialect)();
        Emitter {
            region,
            text: Text::at_depth(1, functions.unroll(true)),
            block: functions.block(),
            functions,
            vector,
            unroll,
            index: if wide { "long long" } else { "int" },
            defines_loaded: false,
        }
    }

    /// The whole source: what the kernel is, the headers it needs, the kernel.
    pub(super) fn finish(self, description: &str, head: &str) -> String {
        let mut source = format!("// {}: {description}\n//\n", self.region.name);
        self.region.listing.iter().for_each(|line| source.push_str(&format!("//   {line}\n")));
        format!("{source}\n{}\n{head} {{\n{}}}\n", self.functions.text(), self.text.finish())
    }

    // === Values ===

    pub(super) fn name(&self, value: u32) -> &'a str {
        &self.region.names[value as usize]
    }

    /// Writes the definition of a value that is neither an input, a constant nor a reduction.
    pub(super) fn define(&mut self, value: usize) {
        let kind = self.region.values.list[value].kind;
        let expression = match kind {
            Kind::Input(_) | Kind::Constant(_) | Kind::Reduce(..) => return,
            Kind::Cast(operand) if self.region.class(operand as usize) == self.region.class(value) => return,
            Kind::Cast(operand) => {
                self.functions.cast(self.region.class(operand as usize), self.region.class(value), self.name(operand))
            }
            Kind::Round(dtype, operand) => {
                let narrow = self.functions.narrow(dtype, self.name(operand));
                self.functions.widen(dtype, &narrow)
            }
            Kind::Gelu(..) | Kind::GeluBackward(..) => unreachable!("the plan of the host alone has GELU as one value"),
            Kind::Unary(op, operand) => self.unary(op, operand),
            Kind::Binary(op, x, y) => self.binary(op, x, y),
            Kind::Select(condition, x, y) => {
                format!("{} ? {} : {}", self.name(condition), self.name(x), self.name(y))
            }
        };
        let kind = self.functions.class_type(self.region.class(value));
        self.text.line(format!("const {kind} {} = {expression};", self.region.names[value]));
    }

    fn unary(&mut self, op: ScalarOp, operand: u32) -> String {
        use ScalarOp::*;
        let (x, class) = (self.name(operand), self.region.class(operand as usize));
        if class == Class::I64 {
            return match op {
                Abs => self.functions.integer_absolute(x),
                Neg => {
                    let zero = self.functions.literal(class, 0.0);
                    self.functions.wrapping('-', &zero, x)
                }
                Sign => self.functions.sign(x),
                IsNegative => {
                    let zero = self.functions.literal(class, 0.0);
                    format!("{x} < {zero}")
                }
                // The remaining ones are `Floor` and `Round`.
                _ => x.to_owned(),
            };
        }
        let hidden;
        let x = if matches!(op, Exp | Expm1 | Log | Log1p | Log2 | Log10 | Sin | Cos | Tanh | Erf | Erfc)
            && self.region.is_known(operand)
        {
            hidden = self.functions.opaque(x);
            hidden.as_str()
        } else {
            x
        };
        match op {
            Exp if class == Class::F32 && self.region.is_coarse(operand) => self.functions.coarse_exponential(x),
            Sign => self.functions.sign(x),
            _ => self.functions.function(op, class, x),
        }
    }

    fn binary(&mut self, op: ScalarOp, x_value: u32, y_value: u32) -> String {
        use ScalarOp::*;
        let (x, y, class) = (self.name(x_value), self.name(y_value), self.region.class(x_value as usize));
        let symbol = match op {
            Add => "+",
            Sub => "-",
            Mul => "*",
            Div => "/",
            Eq => "==",
            Ne => "!=",
            Lt => "<",
            Le => "<=",
            Gt => ">",
            Ge => ">=",
            And => "&&",
            Or => "||",
            Atan2 if self.region.is_known(x_value) => {
                let x = self.functions.opaque(x);
                return self.functions.binary_function(op, class, &x, y);
            }
            op if op == Atan2 || op.is_of_integers() => return self.functions.binary_function(op, class, x, y),
            Maximum => return self.functions.extremum(true, x, y),
            Minimum => return self.functions.extremum(false, x, y),
            Remainder => return self.functions.remainder(x, y),
            Pow if class == Class::I64 => return self.functions.integer_power(x, y),
            Pow => {
                let exponent = match self.region.values.list[y_value as usize].kind {
                    // As the region computes: an exponent that is 2 in f32 is 2.
                    Kind::Constant(exponent) if class == Class::F32 => f64::from(exponent as f32),
                    Kind::Constant(exponent) => exponent,
                    _ => f64::NAN,
                };
                // As on the host.
                return match exponent {
                    2.0 => format!("{x} * {x}"),
                    3.0 => format!("{x} * {x} * {x}"),
                    -1.0 => self.functions.function(Reciprocal, class, x),
                    _ if exponent.is_nan() => self.functions.power(x, y),
                    _ if self.region.is_known(x_value) => {
                        let x = self.functions.opaque(x);
                        self.functions.known_power(class, &x, y)
                    }
                    _ => self.functions.known_power(class, x, y),
                };
            }
            _ => unreachable!("{op:?} has not two operands"),
        };
        match (class, op) {
            (Class::I64, Add) => self.functions.wrapping('+', x, y),
            (Class::I64, Sub) => self.functions.wrapping('-', x, y),
            (Class::I64, Mul) => self.functions.wrapping('*', x, y),
            (Class::I64, Div) => self.functions.integer_quotient(x, y),
            _ => format!("{x} {symbol} {y}"),
        }
    }

    /// Writes, in order, the definitions of those used values that are wanted.
    pub(super) fn define_all(&mut self, wanted: impl Fn(usize) -> bool) {
        for value in 0..self.region.used.len() {
            if self.region.used[value] && wanted(value) {
                self.define(value);
            }
        }
    }

    /// Writes the definition of an input's value from an element in memory or in a register.
    pub(super) fn define_input(&mut self, input: usize, element: &str) {
        let Some(value) = (0..self.region.used.len()).find(|&value| self.region.input_of(value) == Some(input)) else {
            return;
        };
        let wide = self.functions.widen(self.region.inputs[input].dtype, element);
        let kind = self.functions.class_type(self.region.class(value));
        self.text.line(format!("const {kind} {} = {wide};", self.region.names[value]));
    }

    /// Values that are the same everywhere, at the head of the kernel.
    pub(super) fn define_uniform(&mut self) {
        for input in self.region.used_inputs_in(Space::Uniform) {
            self.define_input(input, &format!("in{input}[0]"));
        }
        self.define_all(|value| {
            self.region.space(value) == Space::Uniform && self.region.values.list[value].level == 0
        });
    }

    // === Elements ===

    /// The type of the elements of an operand that a thread has at a time.
    pub(super) fn held_type(&mut self, operand: &Operand) -> String {
        let element = self.functions.stored_type(operand.dtype);
        if self.vector == 1 {
            return element.into();
        }
        self.functions.pack(element, self.vector)
    }

    /// `[k]` where a thread has several vectors at a time.
    pub(super) fn which(&self) -> &'static str {
        if self.unroll > 1 { "[k]" } else { "" }
    }

    /// One element of what is held as `holder`.
    pub(super) fn held(&self, holder: &str) -> String {
        format!("{holder}{}{}", self.which(), if self.vector > 1 { ".at[j]" } else { "" })
    }

    pub(super) fn declare_held(&mut self, holder: &str, operand: &Operand) {
        let kind = self.held_type(operand);
        let array = if self.unroll > 1 { format!("[{}]", self.unroll) } else { String::new() };
        self.text.line(format!("{kind} {holder}{array};"));
    }

    /// Reads the elements from `at` on into `holder`. `left` is how many there are, if they may be fewer than a vector.
    pub(super) fn load(&mut self, holder: &str, operand: &Operand, at: &str, left: Option<&str>) {
        let (from, which, vector) = (&operand.name, self.which(), self.vector);
        let packed = operand.is_packed(vector) && !operand.counted;
        let one_line = vector == 1 || packed;
        let defined = match self.defines_loaded {
            true if one_line => format!("const {} ", self.held_type(operand)),
            true => {
                self.declare_held(holder, operand);
                String::new()
            }
            false => String::new(),
        };
        match vector {
            1 if operand.counted => self.text.line(format!("{defined}{holder}{which} = (int)({at});")),
            1 => self.text.line(format!("{defined}{holder}{which} = {from}[{at}];")),
            _ if operand.counted => {
                self.text.open_unrolled('j', vector);
                self.text.line(format!("{holder}{which}.at[j] = (int)({at} + j);"));
                self.text.close();
            }
            _ if packed => {
                let call = self.functions.load(vector, &format!("{from} + {at}"), left);
                self.text.line(format!("{defined}{holder}{which} = {call};"));
            }
            _ => {
                self.text.open_unrolled('j', vector);
                let assignment = format!("{holder}{which}.at[j] = {from}[{at} + {}];", times("j", operand.inner));
                self.text.line(match left {
                    Some(left) => format!("if (j < {left}) {assignment}"),
                    None => assignment,
                });
                self.text.close();
            }
        }
    }

    /// Writes the elements held as `holder` from `at` on.
    pub(super) fn store(&mut self, holder: &str, operand: &Operand, at: &str, left: Option<&str>) {
        let (to, vector) = (&operand.name, self.vector);
        match vector {
            1 => self.text.line(format!("{to}[{at}] = {holder};")),
            _ if operand.is_packed(vector) => {
                let call = self.functions.store(vector, &format!("{to} + {at}"), holder, left);
                self.text.line(format!("{call};"));
            }
            _ => {
                self.text.open_unrolled('j', vector);
                let assignment = format!("{to}[{at} + {}] = {holder}.at[j];", times("j", operand.inner));
                self.text.line(match left {
                    Some(left) => format!("if (j < {left}) {assignment}"),
                    None => assignment,
                });
                self.text.close();
            }
        }
    }

    /// The value of an output as it is stored.
    pub(super) fn result(&mut self, output: usize) -> String {
        let value = self.region.values.outputs[output];
        self.functions.narrow(self.region.outputs[output].dtype, self.name(value))
    }

    /// Opens the loop over a vector's elements, or a block where there is only one.
    pub(super) fn open_elements(&mut self) {
        match self.vector {
            1 => {}
            vector => self.text.open_unrolled('j', vector),
        }
    }

    pub(super) fn close_elements(&mut self) {
        if self.vector > 1 {
            self.text.close();
        }
    }

    /// Opens the loop over the vectors of a thread.
    pub(super) fn open_vectors(&mut self) {
        match self.unroll {
            1 => {}
            unroll => self.text.open_unrolled('k', unroll),
        }
    }

    pub(super) fn close_vectors(&mut self) {
        if self.unroll > 1 {
            self.text.close();
        }
    }

    // === Places ===

    /// Definitions of the coordinates `c0`, `c1`, ... along `axes` that the operands' places depend on, from their
    /// number `row` among all combinations of them.
    pub(super) fn coordinates(&self, row: &str, kind: &str, axes: &[usize], operands: &[&Operand]) -> Vec<String> {
        let extents = &self.region.extents;
        let mut lines = Vec::new();
        for (position, &axis) in axes.iter().enumerate() {
            if operands.iter().all(|operand| operand.outer[axis] == 0) {
                continue;
            }
            let below: usize = axes[position + 1..].iter().map(|&axis| extents[axis]).product();
            let mut coordinate = row.to_owned();
            if below > 1 {
                coordinate += &format!(" / {below}u");
            }
            if position > 0 {
                coordinate += &format!(" % {}u", extents[axis]);
            }
            let converted = if coordinate.contains(' ') { format!("({coordinate})") } else { coordinate };
            lines.push(format!("const {kind} c{axis} = ({kind}){converted};"));
        }
        lines
    }
}

/// Where in an operand a row starts, in elements from its first one; `None` for the first.
pub(super) fn row_start(operand: &Operand) -> Option<String> {
    let terms = operand.outer.iter().enumerate().filter(|(_, stride)| **stride != 0);
    let terms: Vec<String> = terms.map(|(axis, &stride)| times(&format!("c{axis}"), stride)).collect();
    (!terms.is_empty()).then(|| terms.join(" + "))
}

/// A product with a stride.
pub(super) fn times(factor: &str, stride: isize) -> String {
    match stride {
        1 => factor.to_owned(),
        _ if stride < 0 => format!("{factor} * ({stride})"),
        _ => format!("{factor} * {stride}"),
    }
}

/// A sum of what there is, or 0.
pub(super) fn sum(terms: impl IntoIterator<Item = Option<String>>) -> String {
    let terms: Vec<String> = terms.into_iter().flatten().collect();
    if terms.is_empty() { "0".into() } else { terms.join(" + ") }
}
