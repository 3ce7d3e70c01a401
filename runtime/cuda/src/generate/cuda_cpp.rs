//! CUDA C++: calls of functions of the shared headers and which headers a source includes for them, types, and numbers
//! that are read back as exactly the same bits.

use fulgurite_kernels::scalar::ScalarOp;
use fulgurite_kernels::tile::Class;
use fulgurite_kernels::{DType, Reduction};

use super::dialect::Dialect;

const ELEMENTS: &str = "fulgurite/elements.cuh";
const ARITHMETIC: &str = "fulgurite/arithmetic.cuh";
const VECTORS: &str = "fulgurite/vectors.cuh";
const REDUCTIONS: &str = "fulgurite/reductions.cuh";
const CLUSTERS: &str = "fulgurite/clusters.cuh";
const COPIES: &str = "fulgurite/copies.cuh";

/// CUDA C++, and the headers that a source needs, in the order of their first use. Element types are those of one
/// header, which every source includes.
#[derive(Debug)]
pub(super) struct CudaCpp {
    headers: Vec<&'static str>,
}

impl CudaCpp {
    /// The printer of one kernel.
    pub(super) fn make() -> Box<dyn Dialect> {
        Box::new(CudaCpp { headers: vec![ELEMENTS] })
    }

    fn include(&mut self, header: &'static str) {
        if !self.headers.contains(&header) {
            self.headers.push(header);
        }
    }

    /// A call of a function of `fulgurite/arithmetic.cuh`.
    fn arithmetic(&mut self, function: &str, arguments: &[&str]) -> String {
        self.include(ARITHMETIC);
        format!("{function}({})", arguments.join(", "))
    }
}

impl Dialect for CudaCpp {
    fn text(&self) -> String {
        self.headers.iter().map(|name| format!("#include \"{name}\"\n")).collect()
    }

    // === Memory ===

    fn pack(&mut self, element: &str, count: usize) -> String {
        self.include(VECTORS);
        format!("Pack<{element}, {count}>")
    }

    fn load(&mut self, count: usize, from: &str, left: Option<&str>) -> String {
        self.include(VECTORS);
        match left {
            Some(left) => format!("load_some<{count}>({from}, {left})"),
            None => format!("load<{count}>({from})"),
        }
    }

    fn store(&mut self, count: usize, to: &str, pack: &str, left: Option<&str>) -> String {
        self.include(VECTORS);
        match left {
            Some(left) => format!("store_some<{count}>({to}, {pack}, {left})"),
            None => format!("store<{count}>({to}, {pack})"),
        }
    }

    fn fetch(&mut self, bytes: usize, to: &str, from: &str) -> String {
        self.include(COPIES);
        format!("fetch_bytes<{bytes}>({to}, {from})")
    }

    // === Conversions ===

    fn widen(&mut self, dtype: DType, element: &str) -> String {
        match dtype {
            DType::Bool => format!("{element} != 0"),
            DType::BF16 | DType::F16 => format!("to_f32({element})"),
            _ => element.to_owned(),
        }
    }

    fn narrow(&mut self, dtype: DType, value: &str) -> String {
        match dtype {
            DType::U8 => format!("(unsigned char){value}"),
            DType::I8 => format!("(signed char){value}"),
            DType::U16 => format!("(unsigned short){value}"),
            DType::I16 => format!("(short){value}"),
            DType::U32 => format!("(unsigned int){value}"),
            DType::I32 => format!("(int){value}"),
            DType::BF16 => format!("to_bf16({value})"),
            DType::F16 => format!("to_f16({value})"),
            DType::Bool | DType::I64 | DType::F32 | DType::F64 => value.to_owned(),
            DType::C64 | DType::C128 => unreachable!("regions hold the parts of complex numbers"),
        }
    }

    fn cast(&mut self, from: Class, to: Class, value: &str) -> String {
        match (from, to) {
            (_, Class::Bool) => format!("{value} != 0"),
            (Class::F32 | Class::F64, Class::I64) => self.arithmetic("truncated", &[value]),
            _ => format!("({}){value}", class_type(to)),
        }
    }

    // === Arithmetic ===

    fn wrapping(&mut self, operator: char, x: &str, y: &str) -> String {
        let name = match operator {
            '+' => "wrapping_add",
            '-' => "wrapping_sub",
            _ => "wrapping_mul",
        };
        self.arithmetic(name, &[x, y])
    }

    fn integer_absolute(&mut self, x: &str) -> String {
        self.arithmetic("absolute", &[x])
    }

    fn integer_quotient(&mut self, x: &str, y: &str) -> String {
        self.arithmetic("quotient", &[x, y])
    }

    fn integer_power(&mut self, x: &str, y: &str) -> String {
        self.arithmetic("power", &[x, y])
    }

    fn opaque(&mut self, x: &str) -> String {
        self.arithmetic("opaque", &[x])
    }

    fn power(&mut self, x: &str, y: &str) -> String {
        self.arithmetic("power_of", &[x, y])
    }

    fn coarse_exponential(&mut self, x: &str) -> String {
        self.include(ARITHMETIC);
        format!("power_of_two({x} * LOG2_E)")
    }

    fn remainder(&mut self, x: &str, y: &str) -> String {
        self.arithmetic("remainder_of", &[x, y])
    }

    fn sign(&mut self, x: &str) -> String {
        self.arithmetic("sign", &[x])
    }

    fn extremum(&mut self, larger: bool, x: &str, y: &str) -> String {
        self.arithmetic(if larger { "maximum" } else { "minimum" }, &[x, y])
    }

    // === Reductions ===

    fn combine(&mut self, reduction: Reduction, class: Class, x: &str, y: &str) -> String {
        match (reduction, class.is_floating()) {
            (Reduction::Sum, true) => format!("{x} + {y}"),
            (Reduction::Sum, false) => self.wrapping('+', x, y),
            _ => {
                self.include(REDUCTIONS);
                format!("{}::combine({x}, {y})", name_of(reduction))
            }
        }
    }

    fn of_lanes(&mut self, reduction: Reduction, lanes: usize, x: &str) -> String {
        self.include(REDUCTIONS);
        format!("lanes_reduce<{}, {lanes}>({x})", name_of(reduction))
    }

    fn of_block(&mut self, reduction: Reduction, warps: usize, x: &str, partial: &str) -> String {
        self.include(REDUCTIONS);
        format!("block_reduce_once<{}, {warps}>({x}, {partial})", name_of(reduction))
    }

    fn of_warp(&mut self, reduction: Reduction, x: &str, partial: &str) -> String {
        self.include(REDUCTIONS);
        format!("write_warp_part<{}>({x}, {partial})", name_of(reduction))
    }

    fn of_warps(&mut self, reduction: Reduction, warps: usize, partial: &str) -> String {
        self.include(REDUCTIONS);
        format!("reduce_warp_parts<{}, {warps}>({partial})", name_of(reduction))
    }

    fn clusters(&mut self) {
        self.include(CLUSTERS);
    }

    fn of_cluster(&mut self, reduction: Reduction, blocks: usize, x: &str, partial: &str) -> String {
        self.include(CLUSTERS);
        format!("cluster_reduce<{}, {blocks}>({x}, {partial})", name_of(reduction))
    }

    // === Words ===

    fn class_type(&self, class: Class) -> &'static str {
        class_type(class)
    }

    fn stored_type(&self, dtype: DType) -> &'static str {
        stored_type(dtype)
    }

    fn literal(&self, class: Class, number: f64) -> String {
        literal(class, number)
    }

    fn function(&self, op: ScalarOp, class: Class, x: &str) -> String {
        use ScalarOp::*;
        let (suffix, one) = if class == Class::F32 { ("f", "1.0f") } else { ("", "1.0") };
        match op {
            Not => format!("!{x}"),
            IsFinite if class == Class::F32 => format!("fabsf({x}) <= 0x1.fffffep127f"),
            IsFinite => format!("fabs({x}) <= 0x1.fffffffffffffp1023"),
            Abs => format!("fabs{suffix}({x})"),
            Neg => format!("-{x}"),
            Exp => format!("exp{suffix}({x})"),
            Expm1 => format!("expm1{suffix}({x})"),
            Log => format!("log{suffix}({x})"),
            Log1p => format!("log1p{suffix}({x})"),
            Log2 => format!("log2{suffix}({x})"),
            Log10 => format!("log10{suffix}({x})"),
            Sqrt => format!("sqrt{suffix}({x})"),
            Rsqrt => format!("{one} / sqrt{suffix}({x})"),
            Reciprocal => format!("{one} / {x}"),
            Sin => format!("sin{suffix}({x})"),
            Cos => format!("cos{suffix}({x})"),
            Tanh => format!("tanh{suffix}({x})"),
            Erf => format!("erf{suffix}({x})"),
            Erfc => format!("erfc{suffix}({x})"),
            Floor => format!("floor{suffix}({x})"),
            Round => format!("rint{suffix}({x})"),
            IsNegative if class == Class::F32 => format!("(__float_as_uint({x}) >> 31) != 0u"),
            IsNegative => format!("__double_as_longlong({x}) < 0ll"),
            _ => unreachable!("{op:?} is no function of one number"),
        }
    }

    fn binary_function(&mut self, op: ScalarOp, class: Class, x: &str, y: &str) -> String {
        use ScalarOp::*;
        match op {
            Atan2 => format!("atan2{}({x}, {y})", if class == Class::F32 { "f" } else { "" }),
            BitAnd => format!("{x} & {y}"),
            BitOr => format!("{x} | {y}"),
            BitXor => format!("{x} ^ {y}"),
            ShiftLeft => self.arithmetic("shift_left", &[x, y]),
            ShiftRight => self.arithmetic("shift_right", &[x, y]),
            Gcd => self.arithmetic("greatest_common_divisor", &[x, y]),
            _ => unreachable!("{op:?} is no function of two numbers"),
        }
    }

    fn known_power(&self, class: Class, x: &str, y: &str) -> String {
        format!("pow{}({x}, {y})", if class == Class::F32 { "f" } else { "" })
    }

    // === Kernels ===

    fn head(&self, name: &str, parameters: &[String], threads: usize, resident: Option<usize>) -> String {
        let resident = resident.map_or_else(String::new, |resident| format!(", {resident}"));
        let parameters = parameters.join(", ");
        format!("extern \"C\" __global__ void __launch_bounds__({threads}{resident}) {name}({parameters})")
    }

    fn head_of_many(&self, name: &str, members: &[String], tensors: usize, count: &str, threads: usize) -> String {
        format!(
            "struct Pointers {{\n{}}};\nstruct Table {{\n    {count} count[{tensors}];\n    // The first block of each \
             tensor.\n    unsigned first[{tensors}];\n}};\n\nextern \"C\" __global__ void \
             __launch_bounds__({threads}) {name}(\n    const __grid_constant__ Pointers pointers, const \
             __grid_constant__ Table table)",
            members.concat(),
        )
    }

    fn pointer(&self, dtype: DType, name: &str, is_read: bool) -> String {
        format!("{}{}* {name}", if is_read { "const " } else { "" }, stored_type(dtype))
    }

    fn thread(&self) -> &'static str {
        "threadIdx.x"
    }

    fn block(&self) -> &'static str {
        "blockIdx.x"
    }

    fn blocks(&self) -> &'static str {
        "gridDim.x"
    }

    fn shared(&self, variable: &str) -> String {
        format!("__shared__ {variable};")
    }

    fn launched_shared(&self, alignment: usize) -> String {
        format!("extern __shared__ __align__({alignment}) unsigned char shared[];")
    }

    fn place_in_shared(&self, kind: &str, offset: usize) -> String {
        format!("reinterpret_cast<{kind}*>(shared + {offset})")
    }

    fn barrier(&self) -> &'static str {
        "__syncthreads();"
    }

    fn warp_barrier(&self) -> &'static str {
        "__syncwarp();"
    }

    fn cluster_arrive(&self) -> &'static str {
        "cluster_arrive();"
    }

    fn cluster_wait(&self) -> &'static str {
        "cluster_wait();"
    }

    fn await_fetched(&self) -> &'static str {
        "await_fetched();"
    }

    fn unroll(&self, unrolled: bool) -> &'static str {
        if unrolled { "#pragma unroll" } else { "#pragma unroll 1" }
    }
}

fn name_of(reduction: Reduction) -> &'static str {
    match reduction {
        Reduction::Sum => "Sum",
        Reduction::Max => "Max",
        Reduction::Min => "Min",
        Reduction::Product => "Product",
    }
}

/// The type that a class is computed in.
fn class_type(class: Class) -> &'static str {
    match class {
        Class::Bool => "bool",
        Class::I64 => "long long",
        Class::F32 => "float",
        Class::F64 => "double",
    }
}

/// The type that elements have in memory.
fn stored_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool | DType::U8 => "unsigned char",
        DType::I8 => "signed char",
        DType::U16 => "unsigned short",
        DType::I16 => "short",
        DType::U32 => "unsigned int",
        DType::I32 => "int",
        DType::I64 => "long long",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F32 => "float",
        DType::F64 => "double",
        DType::C64 | DType::C128 => unreachable!("regions hold the parts of complex numbers"),
    }
}

/// `number` in `class`, as the host's arithmetic has it.
fn literal(class: Class, number: f64) -> String {
    let bits = class.bits(number);
    let text = match class {
        Class::Bool => return (bits != 0).to_string(),
        Class::I64 if bits as i64 == i64::MIN => return "(-9223372036854775807ll - 1)".into(),
        Class::I64 => format!("{}ll", bits as i64),
        Class::F32 => {
            let value = f32::from_bits(bits as u32);
            if !value.is_finite() {
                return format!("__uint_as_float(0x{bits:08x}u)");
            }
            format!("{}f", floating(f64::from(value)))
        }
        Class::F64 => {
            if !number.is_finite() {
                return format!("__longlong_as_double(0x{bits:016x}ll)");
            }
            floating(number)
        }
    };
    if text.starts_with('-') { format!("({text})") } else { text }
}

/// Decimal where that is short and exact, otherwise hexadecimal.
fn floating(value: f64) -> String {
    if value.abs() < 1e6 && (value * 64.0).fract() == 0.0 {
        return format!("{value:?}");
    }
    let bits = value.to_bits();
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i64, bits & ((1 << 52) - 1));
    let (lead, exponent) = if exponent == 0 { (0, -1022) } else { (1, exponent - 1023) };
    let digits = format!("{fraction:013x}");
    let digits = digits.trim_end_matches('0');
    let point = if digits.is_empty() { "" } else { "." };
    format!("{sign}0x{lead}{point}{digits}p{exponent}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_exactly() {
        for (class, number, text) in [
            (Class::F32, 1.0, "1.0f"),
            (Class::F32, -0.0, "(-0.0f)"),
            (Class::F32, 0.1, "0x1.99999ap-4f"),
            (Class::F32, -1e30, "(-0x1.93e594p99f)"),
            (Class::F32, 1e-45, "0x1p-149f"),
            (Class::F32, 1e39, "__uint_as_float(0x7f800000u)"),
            (Class::F32, f64::NAN, "__uint_as_float(0x7fc00000u)"),
            (Class::F64, 0.1, "0x1.999999999999ap-4"),
            (Class::F64, 5e-324, "0x0.0000000000001p-1022"),
            (Class::F64, f64::NEG_INFINITY, "__longlong_as_double(0xfff0000000000000ll)"),
            (Class::I64, -3.7, "(-3ll)"),
            (Class::I64, -1e30, "(-9223372036854775807ll - 1)"),
            (Class::I64, 1e30, "9223372036854775807ll"),
            (Class::Bool, 0.5, "true"),
        ] {
            assert_eq!(literal(class, number), text);
        }
    }
}
