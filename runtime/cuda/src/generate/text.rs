//! Writing C++: indented lines, types, and numbers that are read back as exactly the same bits.

use fulgurite_kernels::DType;
use fulgurite_kernels::tile::Class;

/// Lines at a depth of braces.
#[derive(Debug)]
pub(super) struct Text {
    out: String,
    depth: usize,
}

impl Text {
    /// Nothing yet, at a depth of braces.
    pub(super) fn at_depth(depth: usize) -> Text {
        Text { out: String::new(), depth }
    }

    /// A line; an empty one has no indentation.
    pub(super) fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if !line.is_empty() {
            (0..self.depth).for_each(|_| self.out.push_str("    "));
            self.out.push_str(line);
        }
        self.out.push('\n');
    }

    /// The head of a block, which the lines up to [`Text::close`] are the body of.
    pub(super) fn open(&mut self, head: impl AsRef<str>) {
        let head = head.as_ref();
        self.line(if head.is_empty() { "{".to_owned() } else { format!("{head} {{") });
        self.depth += 1;
    }

    /// Ends a block.
    pub(super) fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    /// A loop whose counter is a compile-time constant in each iteration, so that arrays indexed by it are in
    /// registers.
    pub(super) fn open_unrolled(&mut self, counter: char, count: usize) {
        self.line("#pragma unroll");
        self.open(format!("for (int {counter} = 0; {counter} < {count}; ++{counter})"));
    }

    /// Where the next line starts.
    pub(super) fn mark(&self) -> usize {
        self.out.len()
    }

    /// Takes away the definition of `name` in the line at `mark`, if no line behind it reads it.
    pub(super) fn sweep(&mut self, mark: usize, name: &str) {
        let end = self.out[mark..].find('\n').map_or(self.out.len(), |length| mark + length + 1);
        let part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let reads = |line: &str| {
            let bytes = line.as_bytes();
            line.match_indices(name)
                .any(|(at, _)| !part(bytes.get(at.wrapping_sub(1))) && !part(bytes.get(at + name.len())))
        };
        let is_read = self.out[end..].lines().any(|line| !line.trim_start().starts_with("//") && reads(line));
        if !is_read {
            self.out.replace_range(mark..end, "");
        }
    }

    pub(super) fn finish(self) -> String {
        self.out
    }
}

/// The type that a class is computed in.
pub(super) fn class_type(class: Class) -> &'static str {
    match class {
        Class::Bool => "bool",
        Class::I64 => "long long",
        Class::F32 => "float",
        Class::F64 => "double",
    }
}

/// The type that elements have in memory.
pub(super) fn stored_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool | DType::U8 => "unsigned char",
        DType::I32 => "int",
        DType::I64 => "long long",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}

/// `number` in `class`, as the host's arithmetic has it.
pub(super) fn literal(class: Class, number: f64) -> String {
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

/// `name` as an identifier of C++.
pub(super) fn identifier(name: &str) -> String {
    let clean: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if clean.starts_with(|c: char| c.is_ascii_alphabetic()) { clean } else { format!("region_{clean}") }
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

    #[test]
    fn names_become_identifiers() {
        assert_eq!(identifier("h.0.attn.softmax"), "h_0_attn_softmax");
        assert_eq!(identifier("0.x"), "region_0_x");
        assert_eq!(identifier(""), "region_");
    }
}
