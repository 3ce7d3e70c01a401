//! Calls of functions of the shared headers, and which headers a source includes for them.

use fulgurite_kernels::DType;
use fulgurite_kernels::Reduction;
use fulgurite_kernels::tile::Class;

use super::text::class_type;

const ELEMENTS: &str = "fulgurite/elements.cuh";
const ARITHMETIC: &str = "fulgurite/arithmetic.cuh";
const VECTORS: &str = "fulgurite/vectors.cuh";
const REDUCTIONS: &str = "fulgurite/reductions.cuh";
const CLUSTERS: &str = "fulgurite/clusters.cuh";
const COPIES: &str = "fulgurite/copies.cuh";

/// The headers that a source needs, in the order of their first use. Element types are those of one header, which every
/// source includes.
#[derive(Debug)]
pub(super) struct Functions {
    headers: Vec<&'static str>,
}

impl Functions {
    pub(super) fn new() -> Functions {
        Functions { headers: vec![ELEMENTS] }
    }

    /// The lines that include the headers.
    pub(super) fn text(&self) -> String {
        self.headers.iter().map(|name| format!("#include \"{name}\"\n")).collect()
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

    // === Memory ===

    /// The type of `count` elements that are read or written at once.
    pub(super) fn pack(&mut self, element: &str, count: usize) -> String {
        self.include(VECTORS);
        format!("Pack<{element}, {count}>")
    }

    /// `count` elements from `from` on, or, where fewer may be left, as many as there are.
    pub(super) fn load(&mut self, count: usize, from: &str, left: Option<&str>) -> String {
        self.include(VECTORS);
        match left {
            Some(left) => format!("load_some<{count}>({from}, {left})"),
            None => format!("load<{count}>({from})"),
        }
    }

    /// The reverse of [`Functions::load`].
    pub(super) fn store(&mut self, count: usize, to: &str, pack: &str, left: Option<&str>) -> String {
        self.include(VECTORS);
        match left {
            Some(left) => format!("store_some<{count}>({to}, {pack}, {left})"),
            None => format!("store<{count}>({to}, {pack})"),
        }
    }

    /// Starts the copy of so many bytes to shared memory.
    pub(super) fn fetch(&mut self, bytes: usize, to: &str, from: &str) -> String {
        self.include(COPIES);
        format!("fetch_bytes<{bytes}>({to}, {from})")
    }

    // === Conversions ===

    /// An element as stored in memory, in its class.
    pub(super) fn widen(&mut self, dtype: DType, element: &str) -> String {
        match dtype {
            DType::Bool => format!("{element} != 0"),
            DType::BF16 | DType::F16 => format!("to_f32({element})"),
            _ => element.to_owned(),
        }
    }

    /// A value of the class of `dtype` as stored in memory: rounded, or wrapped.
    pub(super) fn narrow(&mut self, dtype: DType, value: &str) -> String {
        match dtype {
            DType::U8 => format!("(unsigned char){value}"),
            DType::I32 => format!("(int){value}"),
            DType::BF16 => format!("to_bf16({value})"),
            DType::F16 => format!("to_f16({value})"),
            DType::Bool | DType::I64 | DType::F32 | DType::F64 => value.to_owned(),
        }
    }

    /// A value of one class in another.
    pub(super) fn cast(&mut self, from: Class, to: Class, value: &str) -> String {
        match (from, to) {
            (_, Class::Bool) => format!("{value} != 0"),
            (Class::F32 | Class::F64, Class::I64) => self.arithmetic("truncated", &[value]),
            _ => format!("({}){value}", class_type(to)),
        }
    }

    // === Arithmetic ===

    /// Integer arithmetic that wraps.
    pub(super) fn wrapping(&mut self, operator: char, x: &str, y: &str) -> String {
        let name = match operator {
            '+' => "wrapping_add",
            '-' => "wrapping_sub",
            _ => "wrapping_mul",
        };
        self.arithmetic(name, &[x, y])
    }

    pub(super) fn integer_absolute(&mut self, x: &str) -> String {
        self.arithmetic("absolute", &[x])
    }

    pub(super) fn integer_quotient(&mut self, x: &str, y: &str) -> String {
        self.arithmetic("quotient", &[x, y])
    }

    pub(super) fn integer_power(&mut self, x: &str, y: &str) -> String {
        self.arithmetic("power", &[x, y])
    }

    /// A number that the compiler must not look into.
    pub(super) fn opaque(&mut self, x: &str) -> String {
        self.arithmetic("opaque", &[x])
    }

    /// A power whose exponent is not known beforehand. The bits are those of one that is.
    pub(super) fn power(&mut self, x: &str, y: &str) -> String {
        self.arithmetic("power_of", &[x, y])
    }

    /// e^x, as exact as elements of 16 bits can tell.
    pub(super) fn coarse_exponential(&mut self, x: &str) -> String {
        self.include(ARITHMETIC);
        format!("power_of_two({x} * LOG2_E)")
    }

    /// The remainder with the divisor's sign.
    pub(super) fn remainder(&mut self, x: &str, y: &str) -> String {
        self.arithmetic("remainder_of", &[x, y])
    }

    /// -1, 0 or 1.
    pub(super) fn sign(&mut self, x: &str) -> String {
        self.arithmetic("sign", &[x])
    }

    /// The larger or the smaller of two.
    pub(super) fn extremum(&mut self, larger: bool, x: &str, y: &str) -> String {
        self.arithmetic(if larger { "maximum" } else { "minimum" }, &[x, y])
    }

    // === Reductions ===

    /// Two parts of a reduction, the earlier first.
    pub(super) fn combine(&mut self, reduction: Reduction, class: Class, x: &str, y: &str) -> String {
        match (reduction, class.is_floating()) {
            (Reduction::Sum, true) => format!("{x} + {y}"),
            (Reduction::Sum, false) => self.wrapping('+', x, y),
            _ => {
                self.include(REDUCTIONS);
                format!("{}::combine({x}, {y})", name_of(reduction))
            }
        }
    }

    /// The total of so many lanes beside each other, the same in each.
    pub(super) fn of_lanes(&mut self, reduction: Reduction, lanes: usize, x: &str) -> String {
        self.include(REDUCTIONS);
        format!("lanes_reduce<{}, {lanes}>({x})", name_of(reduction))
    }

    /// The total of a block of so many warps, the same in each thread. `partial` is used once.
    pub(super) fn of_block(&mut self, reduction: Reduction, warps: usize, x: &str, partial: &str) -> String {
        self.include(REDUCTIONS);
        format!("block_reduce_once<{}, {warps}>({x}, {partial})", name_of(reduction))
    }

    /// Writes the total of each warp, the first half of [`Functions::of_block`].
    pub(super) fn of_warp(&mut self, reduction: Reduction, x: &str, partial: &str) -> String {
        self.include(REDUCTIONS);
        format!("write_warp_part<{}>({x}, {partial})", name_of(reduction))
    }

    /// The total of what so many warps have written before a barrier, the same in each thread.
    pub(super) fn of_warps(&mut self, reduction: Reduction, warps: usize, partial: &str) -> String {
        self.include(REDUCTIONS);
        format!("reduce_warp_parts<{}, {warps}>({partial})", name_of(reduction))
    }

    /// What [`Functions::of_cluster`] and the barrier of a cluster need.
    pub(super) fn clusters(&mut self) {
        self.include(CLUSTERS);
    }

    /// The total of a cluster of so many blocks, in the order of the blocks, the same in each thread; `x` is the
    /// block's.
    pub(super) fn of_cluster(&mut self, reduction: Reduction, blocks: usize, x: &str, partial: &str) -> String {
        self.include(CLUSTERS);
        format!("cluster_reduce<{}, {blocks}>({x}, {partial})", name_of(reduction))
    }
}

fn name_of(reduction: Reduction) -> &'static str {
    match reduction {
        Reduction::Sum => "Sum",
        Reduction::Max => "Max",
        Reduction::Min => "Min",
    }
}

/// The result of reducing nothing.
pub(super) fn start_of(reduction: Reduction, class: Class) -> f64 {
    match (reduction, class.is_floating()) {
        (Reduction::Sum, _) => 0.0,
        (Reduction::Max, true) => f64::NEG_INFINITY,
        (Reduction::Min, true) => f64::INFINITY,
        (Reduction::Max, false) => i64::MIN as f64,
        (Reduction::Min, false) => i64::MAX as f64,
    }
}
