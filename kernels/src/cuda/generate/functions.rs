//! Device functions that a source defines for itself, each only where it is used. There are no headers.

use crate::dtype::DType;
use crate::tile::Class;
use crate::tile::reduction::Reduction;

use super::text::class_type;

/// The functions that a source needs, in an order in which each knows those it calls.
#[derive(Debug, Default)]
pub(super) struct Functions {
    list: Vec<(String, String)>,
}

impl Functions {
    /// The text of all of them.
    pub(super) fn text(&self) -> String {
        self.list.iter().map(|(_, text)| format!("{text}\n")).collect()
    }

    fn define(&mut self, key: impl Into<String>, text: impl FnOnce() -> String) {
        let key = key.into();
        if !self.list.iter().any(|(known, _)| *known == key) {
            self.list.push((key, text()));
        }
    }

    /// A function of one expression or body.
    fn inline(&mut self, comment: &str, head: &str, body: &str) {
        self.define(head, || {
            let body = body.replace('\n', "\n    ");
            format!("// {comment}\nstatic __device__ __forceinline__ {head} {{\n    {body}\n}}\n")
        });
    }

    // === Memory ===

    /// `Vector<T, N>`, and how many bytes at once it is read and written.
    pub(super) fn vector(&mut self) {
        self.define("Vector", || {
            "// Elements that are read or written by one instruction.\n\
             template <typename T, int N> struct alignas(sizeof(T) * N) Vector { T at[N]; };\n"
                .into()
        });
    }

    /// `load<N>(from)`.
    pub(super) fn load(&mut self) -> &'static str {
        self.vector();
        self.define("load", || {
            "template <int N, typename T> static __device__ __forceinline__ Vector<T, N> load(const T* from) {\n    \
             return *reinterpret_cast<const Vector<T, N>*>(from);\n}\n"
                .into()
        });
        "load"
    }

    /// `store<N>(to, values)`.
    pub(super) fn store(&mut self) -> &'static str {
        self.vector();
        self.define("store", || {
            "template <int N, typename T> static __device__ __forceinline__ void store(T* to, const Vector<T, N>& values) {\n    \
             *reinterpret_cast<Vector<T, N>*>(to) = values;\n}\n"
                .into()
        });
        "store"
    }

    /// `load_some<N>(from, count)`.
    pub(super) fn load_some(&mut self) -> &'static str {
        self.load();
        self.define("load_some", || {
            "// The last elements are fewer than N: what lies behind them is not read.\n\
             template <int N, typename T, typename Count>\n\
             static __device__ __forceinline__ Vector<T, N> load_some(const T* from, Count count) {\n    \
             if (count >= N) return load<N>(from);\n    \
             Vector<T, N> values = {};\n    \
             #pragma unroll\n    \
             for (int j = 0; j < N - 1; ++j) {\n        \
             if (j < count) values.at[j] = from[j];\n    \
             }\n    \
             return values;\n}\n"
                .into()
        });
        "load_some"
    }

    /// `store_some<N>(to, values, count)`.
    pub(super) fn store_some(&mut self) -> &'static str {
        self.store();
        self.define("store_some", || {
            "// The last elements are fewer than N: what lies behind them is not written.\n\
             template <int N, typename T, typename Count>\n\
             static __device__ __forceinline__ void store_some(T* to, const Vector<T, N>& values, Count count) {\n    \
             if (count >= N) return store<N>(to, values);\n    \
             #pragma unroll\n    \
             for (int j = 0; j < N - 1; ++j) {\n        \
             if (j < count) to[j] = values.at[j];\n    \
             }\n}\n"
                .into()
        });
        "store_some"
    }

    // === Conversions ===

    /// An element as stored in memory, in its class.
    pub(super) fn widen(&mut self, dtype: DType, element: &str) -> String {
        match dtype {
            DType::Bool => format!("{element} != 0"),
            DType::BF16 => {
                self.inline(
                    "A bfloat16 is the upper half of a float.",
                    "float from_bf16(unsigned short bits)",
                    "return __uint_as_float((unsigned)bits << 16);",
                );
                format!("from_bf16({element})")
            }
            DType::F16 => {
                self.inline(
                    "Exact.",
                    "float from_f16(unsigned short bits)",
                    "float value;\nasm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(value) : \"h\"(bits));\nreturn value;",
                );
                format!("from_f16({element})")
            }
            _ => element.to_owned(),
        }
    }

    /// A value of the class of `dtype` as stored in memory: rounded, or wrapped.
    pub(super) fn narrow(&mut self, dtype: DType, value: &str) -> String {
        match dtype {
            DType::U8 => format!("(unsigned char){value}"),
            DType::I32 => format!("(int){value}"),
            DType::BF16 => {
                self.inline(
                    "To nearest, ties to even; a NaN stays one.",
                    "unsigned short to_bf16(float value)",
                    "unsigned short bits;\nasm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(bits) : \"f\"(value));\nreturn bits;",
                );
                format!("to_bf16({value})")
            }
            DType::F16 => {
                self.inline(
                    "To nearest, ties to even; a NaN stays one, and what is too large becomes infinite.",
                    "unsigned short to_f16(float value)",
                    "unsigned short bits;\nasm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(bits) : \"f\"(value));\nreturn bits;",
                );
                format!("to_f16({value})")
            }
            DType::Bool | DType::I64 | DType::F32 | DType::F64 => value.to_owned(),
        }
    }

    /// A value of one class in another.
    pub(super) fn cast(&mut self, from: Class, to: Class, value: &str) -> String {
        match (from, to) {
            (_, Class::Bool) => format!("{value} != 0"),
            (Class::F32, Class::I64) => {
                self.inline(
                    "Towards zero; what is too large becomes the nearest integer, a NaN becomes 0.",
                    "long long truncated(float x)",
                    "return x != x ? 0ll : __float2ll_rz(x);",
                );
                format!("truncated({value})")
            }
            (Class::F64, Class::I64) => {
                self.inline(
                    "Towards zero; what is too large becomes the nearest integer, a NaN becomes 0.",
                    "long long truncated(double x)",
                    "return x != x ? 0ll : __double2ll_rz(x);",
                );
                format!("truncated({value})")
            }
            _ => format!("({}){value}", class_type(to)),
        }
    }

    // === Arithmetic ===

    /// Integer arithmetic that wraps: C++ leaves an overflow of signed numbers undefined.
    pub(super) fn wrapping(&mut self, operator: char, x: &str, y: &str) -> String {
        let name = self.define_wrapping(operator);
        format!("{name}({x}, {y})")
    }

    fn define_wrapping(&mut self, operator: char) -> &'static str {
        let name = match operator {
            '+' => "wrapping_add",
            '-' => "wrapping_sub",
            _ => "wrapping_mul",
        };
        self.inline(
            "Modulo 2^64.",
            &format!("long long {name}(long long x, long long y)"),
            &format!("return (long long)((unsigned long long)x {operator} (unsigned long long)y);"),
        );
        name
    }

    pub(super) fn integer_absolute(&mut self, x: &str) -> String {
        self.define_wrapping('-');
        self.inline(
            "The absolute value; that of the least integer is itself.",
            "long long absolute(long long x)",
            "return x < 0 ? wrapping_sub(0ll, x) : x;",
        );
        format!("absolute({x})")
    }

    pub(super) fn integer_quotient(&mut self, x: &str, y: &str) -> String {
        self.define_wrapping('-');
        self.inline(
            "Towards zero; 0 for a division by zero. The least integer by -1 wraps.",
            "long long quotient(long long x, long long y)",
            "if (y == 0) return 0;\nreturn y == -1 ? wrapping_sub(0ll, x) : x / y;",
        );
        format!("quotient({x}, {y})")
    }

    pub(super) fn integer_power(&mut self, x: &str, y: &str) -> String {
        self.define_wrapping('*');
        self.inline(
            "Modulo 2^64. A negative exponent gives 1 for the base 1, 1 or -1 for the base -1, and 0 for all others.",
            "long long power(long long base, long long exponent)",
            "if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;\n\
             long long result = 1;\n\
             for (; exponent > 0; exponent >>= 1) {\n    \
             if (exponent & 1) result = wrapping_mul(result, base);\n    \
             base = wrapping_mul(base, base);\n\
             }\n\
             return result;",
        );
        format!("power({x}, {y})")
    }

    /// A number that the compiler must not look into: the functions that it evaluates by itself differ from the
    /// device's in their last bits.
    pub(super) fn opaque(&mut self, class: Class, x: &str) -> String {
        let (kind, register) = if class == Class::F32 { ("float", "f") } else { ("double", "d") };
        self.inline(
            "A function of a number is computed where those of elements are.",
            &format!("{kind} opaque({kind} x)"),
            &format!("asm(\"\" : \"+{register}\"(x));\nreturn x;"),
        );
        format!("opaque({x})")
    }

    /// A power whose exponent is not known beforehand. The bits are those of one that is.
    pub(super) fn power(&mut self, class: Class, x: &str, y: &str) -> String {
        let (kind, function, one) =
            if class == Class::F32 { ("float", "powf", "1.0f") } else { ("double", "pow", "1.0") };
        self.inline(
            "Squares, cubes and reciprocals are products and quotients, as where the exponent is known beforehand.",
            &format!("{kind} power_of({kind} x, {kind} y)"),
            &format!(
                "if (y == 2) return x * x;\nif (y == 3) return x * x * x;\nif (y == -1) return {one} / x;\n\
                 return {function}(x, y);"
            ),
        );
        format!("power_of({x}, {y})")
    }

    /// The remainder with the divisor's sign.
    pub(super) fn remainder(&mut self, class: Class, x: &str, y: &str) -> String {
        let (truncated, comment) = match class {
            Class::F32 => ("fmodf(x, y)", "The remainder with the divisor's sign; NaN for a division by zero."),
            Class::F64 => ("fmod(x, y)", "The remainder with the divisor's sign; NaN for a division by zero."),
            _ => ("y == 0 || y == -1 ? 0 : x % y", "The remainder with the divisor's sign; 0 for a division by zero."),
        };
        let kind = class_type(class);
        self.inline(
            comment,
            &format!("{kind} remainder_of({kind} x, {kind} y)"),
            &format!("const {kind} rest = {truncated};\nreturn rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;"),
        );
        format!("remainder_of({x}, {y})")
    }

    /// -1, 0 or 1.
    pub(super) fn sign(&mut self, class: Class, x: &str) -> String {
        let kind = class_type(class);
        self.inline(
            "-1, 0 or 1; 0 for a NaN.",
            &format!("{kind} sign({kind} x)"),
            &format!("return ({kind})(x > 0) - ({kind})(x < 0);"),
        );
        format!("sign({x})")
    }

    /// The larger or the smaller of two.
    pub(super) fn extremum(&mut self, class: Class, larger: bool, x: &str, y: &str) -> String {
        let kind = class_type(class);
        let (name, relation) = if larger { ("maximum", '>') } else { ("minimum", '<') };
        let (comment, nan) =
            if class.is_floating() { ("; NaN if either is; x if they are equal.", " || y != y") } else { (".", "") };
        self.inline(
            &format!("The {} of two{comment}", if larger { "larger" } else { "smaller" }),
            &format!("{kind} {name}({kind} x, {kind} y)"),
            &format!("return y {relation} x{nan} ? y : x;"),
        );
        format!("{name}({x}, {y})")
    }

    // === Reductions ===

    /// Two parts of a reduction, the earlier first.
    pub(super) fn combine(&mut self, reduction: Reduction, class: Class, x: &str, y: &str) -> String {
        match (reduction, class.is_floating()) {
            (Reduction::Sum, true) => format!("{x} + {y}"),
            (Reduction::Sum, false) => self.wrapping('+', x, y),
            (Reduction::Max | Reduction::Min, _) if class == Class::F32 => self.extremum_of_all(reduction, x, y),
            (Reduction::Max, _) => self.extremum(class, true, x, y),
            (Reduction::Min, _) => self.extremum(class, false, x, y),
        }
    }

    /// As [`Functions::extremum`], in one instruction. Of zeros of both signs it takes the one that is larger (or
    /// smaller) as numbers on a line are, whatever their order: right for a reduction, which has no order of its own.
    fn extremum_of_all(&mut self, reduction: Reduction, x: &str, y: &str) -> String {
        let (name, instruction, comment) = match reduction {
            Reduction::Max => ("largest", "max", "The larger of two; NaN if either is."),
            _ => ("smallest", "min", "The smaller of two; NaN if either is."),
        };
        self.inline(
            comment,
            &format!("float {name}(float x, float y)"),
            &format!(
                "float result;\nasm(\"{instruction}.NaN.f32 %0, %1, %2;\" : \"=f\"(result) : \"f\"(x), \"f\"(y));\nreturn result;"
            ),
        );
        format!("{name}({x}, {y})")
    }

    /// `..._of_lanes<LANES>(x)`: the total of `LANES` neighbouring lanes, the same in each.
    pub(super) fn of_lanes(&mut self, reduction: Reduction, class: Class) -> String {
        let kind = class_type(class);
        let name = format!("{}_of_lanes", name_of(reduction));
        let combined = self.combine(reduction, class, "x", "other");
        // A maximum of zeros of both signs depends on the order, which differs from lane to lane.
        let agree = if class == Class::F64 && reduction != Reduction::Sum {
            "\n    return __shfl_sync(0xffffffffu, x, 0, LANES);"
        } else {
            "\n    return x;"
        };
        self.define(format!("{name} {kind}"), || {
            format!(
                "// Of LANES lanes beside each other; all of them get the same result.\n\
                 template <int LANES> static __device__ __forceinline__ {kind} {name}({kind} x) {{\n    \
                 #pragma unroll\n    \
                 for (int apart = LANES / 2; apart > 0; apart /= 2) {{\n        \
                 const {kind} other = __shfl_xor_sync(0xffffffffu, x, apart);\n        \
                 x = {combined};\n    }}{agree}\n}}\n"
            )
        });
        name
    }

    /// `..._of_block<WARPS>(x, partial)`: the total of a block of `WARPS` warps, the same in each thread.
    pub(super) fn of_block(&mut self, reduction: Reduction, class: Class) -> String {
        let kind = class_type(class);
        let lanes = self.of_lanes(reduction, class);
        let name = format!("{}_of_block", name_of(reduction));
        self.define(format!("{name} {kind}"), || {
            format!(
                "// Of a block of WARPS warps; all of its threads get the same result. `partial` is written once.\n\
                 template <int WARPS> static __device__ __forceinline__ {kind} {name}({kind} x, {kind}* partial) {{\n    \
                 x = {lanes}<32>(x);\n    \
                 if (threadIdx.x % 32u == 0) partial[threadIdx.x / 32u] = x;\n    \
                 __syncthreads();\n    \
                 return {lanes}<WARPS>(partial[threadIdx.x % WARPS]);\n}}\n"
            )
        });
        name
    }

    /// The barrier of a cluster, in two halves. Together they order writes to shared memory of its blocks.
    pub(super) fn clusters(&mut self) {
        self.define("cluster barrier", || {
            "static __device__ __forceinline__ void cluster_arrive() {\n    \
             asm volatile(\"barrier.cluster.arrive.release.aligned;\" ::: \"memory\");\n}\n\
             static __device__ __forceinline__ void cluster_wait() {\n    \
             asm volatile(\"barrier.cluster.wait.acquire.aligned;\" ::: \"memory\");\n}\n"
                .into()
        });
    }

    /// `..._of_cluster<BLOCKS>(x, partial)`: the total of a cluster of `BLOCKS` blocks, in the order of the blocks, the
    /// same in each thread; `x` is the block's.
    pub(super) fn of_cluster(&mut self, reduction: Reduction, class: Class) -> String {
        let kind = class_type(class);
        let combined = self.combine(reduction, class, "total", "partial[block]");
        let name = format!("{}_of_cluster", name_of(reduction));
        // Stores to the memory of other blocks are of bits.
        let (bits, register, word) = match class {
            Class::F64 => (64, "l", "__double_as_longlong(x)"),
            Class::I64 => (64, "l", "x"),
            Class::F32 | Class::Bool => (32, "r", "__float_as_int(x)"),
        };
        self.define(format!("{name} {kind}"), || {
            format!(
                "// Of a cluster of BLOCKS blocks, in their order; all threads get the same result. `partial` is written once.\n\
                 template <int BLOCKS> static __device__ __forceinline__ {kind} {name}({kind} x, {kind}* partial) {{\n    \
                 if (threadIdx.x < BLOCKS) {{\n        \
                 const unsigned here = (unsigned)__cvta_generic_to_shared(partial + blockIdx.x % BLOCKS);\n        \
                 unsigned there;\n        \
                 asm(\"mapa.shared::cluster.u32 %0, %1, %2;\" : \"=r\"(there) : \"r\"(here), \"r\"(threadIdx.x));\n        \
                 asm volatile(\"st.shared::cluster.b{bits} [%0], %1;\" :: \"r\"(there), \"{register}\"({word}) : \"memory\");\n    \
                 }}\n    \
                 cluster_arrive();\n    \
                 cluster_wait();\n    \
                 {kind} total = partial[0];\n    \
                 #pragma unroll\n    \
                 for (int block = 1; block < BLOCKS; ++block) total = {combined};\n    \
                 return total;\n}}\n"
            )
        });
        name
    }
}

fn name_of(reduction: Reduction) -> &'static str {
    match reduction {
        Reduction::Sum => "sum",
        Reduction::Max => "maximum",
        Reduction::Min => "minimum",
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
