//! The element types of a kernel's pointers, as its source declares them. The compiled code knows only that each
//! parameter has eight bytes, so a kernel that takes `const double*` for a tensor of f32 would compile and launch.

use fulgurite_kernels::DType;
use rustc_hash::FxHashMap;

/// The element types that a pointer parameter of a kernel may point to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pointer {
    /// The parameter as the source spells it.
    pub spelled: String,
    /// The element type that its C type stands for.
    pub element: DType,
}

/// For each parameter of `kernel` in the CUDA C++ `text`, the element type of its pointer: `None` for other parameters,
/// and for pointers to types that stand for no element type, such as `void`, `unsigned` and vectors, by which kernels
/// move elements of any type. An empty list if the declaration is not found, as in text that macros make.
pub(crate) fn of_kernel(text: &str, options: &[String], kernel: &str) -> Vec<Option<Pointer>> {
    let names = definitions(text, options);
    let Some(parameters) = parameters(text, kernel) else { return Vec::new() };
    let element = |parameter: &str| {
        let (before, _) = parameter.split_once('*')?;
        // A list of pointers is passed as a structure or an array; the first star is that of a pointer to elements.
        let kept = before.split_whitespace().filter(|word| !["const", "volatile", "__restrict__"].contains(word));
        let spelled = kept.collect::<Vec<_>>().join(" ");
        let element = element_of(&resolved(&spelled, &names))?;
        Some(Pointer { spelled: parameter.split_whitespace().collect::<Vec<_>>().join(" "), element })
    };
    parameters.iter().map(|parameter| element(parameter)).collect()
}

/// What names stand for: `-DNAME=VALUE` among the options, `#define NAME VALUE`, `typedef VALUE NAME;` and
/// `using NAME = VALUE;` in the text. A name that is defined twice, under conditions, stands for nothing.
fn definitions(text: &str, options: &[String]) -> FxHashMap<String, String> {
    let mut found: FxHashMap<String, Option<String>> = FxHashMap::default();
    let mut add = |name: &str, value: &str| {
        let value = value.trim().to_owned();
        let known = found.entry(name.trim().to_owned()).or_insert_with(|| Some(value.clone()));
        if known.as_ref().is_some_and(|known| *known != value) {
            *known = None;
        }
    };
    for (name, value) in options.iter().filter_map(|option| option.strip_prefix("-D")?.split_once('=')) {
        add(name, value);
    }
    for line in text.lines().map(str::trim) {
        if let Some((name, value)) = line.strip_prefix("#define ").and_then(|rest| rest.trim().split_once(' ')) {
            add(name, value);
        } else if let Some(rest) = line.strip_prefix("typedef ").and_then(|rest| rest.split(';').next())
            && let Some((value, name)) = rest.rsplit_once(' ')
        {
            add(name, value);
        } else if let Some((name, value)) = line.strip_prefix("using ").and_then(|rest| rest.split_once('=')) {
            add(name, value.split(';').next().unwrap_or_default());
        }
    }
    found.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn resolved(name: &str, names: &FxHashMap<String, String>) -> String {
    let mut name = name.to_owned();
    // A cycle of names is no type.
    for _ in 0..8 {
        let Some(next) = names.get(&name) else { break };
        name.clone_from(next);
    }
    name
}

/// The element type that a C type means. Unsigned integers mean none: kernels move elements of any type as such bits.
fn element_of(name: &str) -> Option<DType> {
    match name {
        "float" => Some(DType::F32),
        "double" => Some(DType::F64),
        "half" | "__half" | "f16" => Some(DType::F16),
        "__nv_bfloat16" | "bf16" => Some(DType::BF16),
        "signed char" | "int8_t" | "i8" => Some(DType::I8),
        "short" | "int16_t" | "i16" => Some(DType::I16),
        "int" | "int32_t" | "i32" => Some(DType::I32),
        "long long" | "long long int" | "int64_t" | "i64" => Some(DType::I64),
        _ => None,
    }
}

/// The parameters of the definition of `kernel`, without comments.
fn parameters(text: &str, kernel: &str) -> Option<Vec<String>> {
    let text = without_comments(text);
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut from = 0;
    while let Some(at) = text[from..].find(kernel).map(|at| from + at) {
        from = at + kernel.len();
        let whole = !text[..at].ends_with(word) && !text[from..].starts_with(word);
        // Between `__global__` and the name there is the type and the bounds of the launch, no other definition.
        let declared = text[..at].rfind("__global__").is_some_and(|global| !text[global..at].contains(['{', '}', ';']));
        let Some(list) = text[from..].trim_start().strip_prefix('(').filter(|_| whole && declared) else { continue };
        let mut depth = 0;
        let mut found = vec![String::new()];
        for c in list.chars() {
            match c {
                ')' if depth == 0 => return Some(found),
                ',' if depth == 0 => found.push(String::new()),
                _ => {
                    depth += i32::from("(<[".contains(c)) - i32::from(")>]".contains(c));
                    found.last_mut()?.push(c);
                }
            }
        }
        return None;
    }
    None
}

fn without_comments(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        kept.push_str(&rest[..at]);
        let end = if rest[at..].starts_with("//") {
            rest[at..].find('\n').map(|end| at + end)
        } else {
            rest[at..].find("*/").map(|end| at + end + 2)
        };
        rest = end.map_or("", |end| &rest[end..]);
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(text: &str, options: &[&str]) -> Vec<Option<DType>> {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        of_kernel(text, &options, "scale").into_iter().map(|found| Some(found?.element)).collect()
    }

    #[test]
    fn pointers_have_the_types_that_names_stand_for() {
        let text = "// scale(double* x)\ntypedef ELEMENT T;\n#define INDEX i64\nusing i64 = long long;\n\
            extern \"C\" __global__ void __launch_bounds__(256) scale(const T* __restrict__ x, /* double* */ double* y,\n    \
            const INDEX* at, const unsigned* raw, float factor, void* any) { scale(x); }\n";
        let expected = [Some(DType::BF16), Some(DType::F64), Some(DType::I64), None, None, None];
        assert_eq!(elements(text, &["-DELEMENT=__nv_bfloat16"]), expected);
        assert_eq!(elements(text, &["-DELEMENT=float"])[0], Some(DType::F32));
        assert_eq!(elements(text, &[])[0], None);
    }

    #[test]
    fn what_is_not_certain_is_nothing() {
        let text = "#if WIDE\n#define T double\n#else\n#define T float\n#endif\n__global__ void scale(T* x) {}";
        assert_eq!(elements(text, &[]), [None]);
        assert_eq!(elements("__global__ void rescale(float* x) {}", &[]), []);
        assert_eq!(elements("__global__ void other() { } void scale(float* x) {}", &[]), []);
        assert_eq!(elements("__global__ void scale(float* x", &[]), []);
    }
}
