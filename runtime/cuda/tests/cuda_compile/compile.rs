//! Run-time compilation, on machines without a device: NVRTC is enough, and without it these tests say that they are
//! skipped.

use crate::common;
use fulgurite_cuda::collectives::{Combine, Reduction};
use fulgurite_cuda::{
    CacheStatistics, Compilation, Cubin, CudaError, Fill, Gather, HEADERS, Header, KernelCache, KernelResources,
    Severity, nvrtc,
};
use fulgurite_kernels::DType;

const ARCHITECTURES: [&str; 2] = ["sm_80", "sm_90a"];

const SOURCE: &str = r#"
struct Shape { int dims[9]; };

extern "C" __global__ void plain(float* out, const float* in, float scale, unsigned char flag) {
    out[threadIdx.x] = flag ? in[threadIdx.x] * scale : 0.0f;
}

extern "C" __global__ void by_value(const __grid_constant__ Shape shape, char c, long long q, float* out) {
    out[0] = shape.dims[3] + c + q;
}

struct Table { unsigned char bytes[20001]; };

extern "C" __global__ void large(const __grid_constant__ Table table, const __grid_constant__ Shape shape, float* out) {
    out[0] = table.bytes[threadIdx.x] + shape.dims[0];
}

extern "C" __global__ void shares(float* out) {
    __shared__ float tile[64];
    tile[threadIdx.x] = out[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];
}

// An array that is indexed at run time is on the stack.
extern "C" __global__ void keeps_an_array(float* out, const float* in, int n) {
    float values[40];
    for (int i = 0; i < 40; ++i) values[i] = in[i * n];
    for (int i = 0; i < n; ++i) values[(i * 7) % 40] += values[i % 40];
    out[0] = values[n % 40];
}

// Sixty-four values that are alive together, and too few registers for them.
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float* out, const float* in, int n) {
    float values[64];
    #pragma unroll
    for (int i = 0; i < 64; ++i) values[i] = in[i * 1024 + threadIdx.x];
    for (int step = 0; step < n; ++step) {
        #pragma unroll
        for (int i = 0; i < 64; ++i) values[i] = values[i] * values[(i + 7) % 64] + in[step];
    }
    #pragma unroll
    for (int i = 0; i < 64; ++i) out[i * 1024 + threadIdx.x] = values[i];
}
"#;

fn compilation<'a>(source: &'a str, architecture: &'a str, options: &'a [String]) -> Compilation<'a> {
    Compilation { name: "test.cu", source, architecture, options }
}

fn kernel<'a>(cubin: &'a Cubin, name: &str) -> &'a KernelResources {
    cubin.kernels().iter().find(|kernel| kernel.name == name).unwrap()
}

#[test]
fn a_cubin_tells_what_its_kernels_need() {
    if !common::has_nvrtc() {
        return;
    }
    for architecture in ARCHITECTURES {
        let cubin = nvrtc::compile(&compilation(SOURCE, architecture, &[])).unwrap();
        let names: Vec<&str> = cubin.kernels().iter().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(names, ["by_value", "keeps_an_array", "large", "plain", "shares", "spills"]);

        let plain = kernel(&cubin, "plain");
        assert!(plain.registers > 0 && !plain.uses_local_memory(), "{plain:?}");
        let parameters = |kernel: &KernelResources| -> Vec<(usize, usize)> {
            kernel.parameters.iter().map(|parameter| (parameter.offset, parameter.bytes)).collect()
        };
        assert_eq!(parameters(plain), [(0, 8), (8, 8), (16, 4), (20, 1)]);
        assert_eq!(parameters(kernel(&cubin, "by_value")), [(0, 36), (36, 1), (40, 8), (48, 8)]);
        assert_eq!(parameters(kernel(&cubin, "large")), [(0, 20001), (20004, 36), (20040, 8)]);
        assert_eq!(kernel(&cubin, "shares").shared_bytes, 256);

        let array = kernel(&cubin, "keeps_an_array");
        assert_eq!((array.stack_bytes, array.spill_store_bytes), (160, 0), "{array:?}");
        let spills = kernel(&cubin, "spills");
        assert_eq!(spills.registers, 32);
        assert!(spills.spill_store_bytes > 0 && spills.spill_load_bytes > 0, "{spills:?}");
        assert!(spills.uses_local_memory());
    }
}

/// The ELF attributes are not documented: they must say what the assembler prints.
#[test]
fn what_is_read_from_the_image_agrees_with_the_assemblers_report() {
    if !common::has_nvrtc() {
        return;
    }
    for architecture in ARCHITECTURES {
        let cubin = nvrtc::compile(&compilation(SOURCE, architecture, &[])).unwrap();
        let unreported = Cubin::new(cubin.image().to_vec(), String::new()).unwrap();
        for kernel in cubin.kernels() {
            let (_, report) = cubin.log().split_once(&format!("Compiling entry function '{}'", kernel.name)).unwrap();
            assert!(report.contains(&format!(" {} bytes stack frame", kernel.stack_bytes)), "{kernel:?}\n{report}");
            let (_, used) = report.split_once("Used ").unwrap();
            assert!(used.starts_with(&format!("{} registers", kernel.registers)), "{kernel:?}\n{report}");
            let image = unreported.kernels().iter().find(|other| other.name == kernel.name).unwrap();
            assert_eq!(image.shared_bytes, kernel.shared_bytes, "{architecture} {}", kernel.name);
        }
    }
}

#[test]
fn a_mistake_is_shown_with_its_source_line() {
    if !common::has_nvrtc() {
        return;
    }
    let source =
        "extern \"C\" __global__ void k(float* out) {\n    int unused = 3;\n    out[0] = undefined_thing;\n}\n";
    let error = nvrtc::compile(&compilation(source, "sm_80", &[])).unwrap_err();
    let shown = error.to_string();
    println!("{shown}");
    let CudaError::Compile(error) = error else { panic!("{error}") };
    let found = error.diagnostics.iter().find(|diagnostic| diagnostic.severity == Severity::Error).unwrap();
    assert_eq!((found.line, found.text.as_deref()), (3, Some("    out[0] = undefined_thing;")));
    assert_eq!(found.column, Some(13));
    assert!(shown.starts_with("test.cu does not compile for sm_80\n"), "{shown}");
    assert!(shown.contains("    3 |     out[0] = undefined_thing;\n      |              ^"), "{shown}");
}

/// A header's message names the header, its line and the text of that line.
#[test]
fn a_mistake_that_shows_in_a_header_is_shown_with_the_headers_line() {
    if !common::has_nvrtc() {
        return;
    }
    let source = "#include \"fulgurite/vectors.cuh\"\n\
        extern \"C\" __global__ void k(const float* in, Pack<float, 3>* out) { out[0] = load<3>(in); }\n";
    let error = nvrtc::compile(&compilation(source, "sm_80", &[])).unwrap_err();
    println!("{error}");
    let CudaError::Compile(error) = error else { panic!("{error}") };
    let of_header = error.diagnostics.iter().filter(|diagnostic| diagnostic.file == "fulgurite/vectors.cuh");
    let texts: Vec<_> = of_header.filter_map(|diagnostic| diagnostic.text.as_deref()).collect();
    assert!(texts.contains(&"    typedef typename Word<sizeof(T) * N>::type Bits;"), "{texts:?}");
}

#[test]
fn headers_are_found_by_name_and_others_are_an_error() {
    if !common::has_nvrtc() {
        return;
    }
    for Header { name, .. } in HEADERS {
        let source = format!(
            "#include \"{name}\"\n#include \"{name}\"\nextern \"C\" __global__ void k(u32* out) {{ out[0] = 1; }}\n"
        );
        for architecture in ARCHITECTURES {
            let compilation = compilation(&source, architecture, &[]);
            let cubin = nvrtc::compile(&compilation).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(cubin.warnings(&compilation), [], "{name}");
        }
    }
    let source = "#include \"fulgurite/none.cuh\"\nextern \"C\" __global__ void k() {}\n";
    let error = nvrtc::compile(&compilation(source, "sm_80", &[])).unwrap_err().to_string();
    assert!(error.contains("fulgurite/none.cuh"), "{error}");
}

#[test]
fn a_mistake_in_inline_assembly_is_shown_with_its_line_of_intermediate_code() {
    if !common::has_nvrtc() {
        return;
    }
    let source = "extern \"C\" __global__ void k(int* out) \
                  {\n  int x;\n  asm volatile(\"foo.bar %0;\" : \"=r\"(x));\n  out[0] = x;\n}\n";
    let error = nvrtc::compile(&compilation(source, "sm_90a", &[])).unwrap_err();
    println!("{error}");
    let CudaError::Compile(error) = error else { panic!("{error}") };
    let text = error.diagnostics.iter().find_map(|diagnostic| diagnostic.text.as_deref()).unwrap();
    assert!(text.contains("foo.bar"), "{text}");
}

#[test]
fn warnings_carry_their_lines() {
    if !common::has_nvrtc() {
        return;
    }
    let source = "extern \"C\" __global__ void k(int* out) {\n  int unused = 3;\n  out[0] = 1;\n}\n";
    let compilation = compilation(source, "sm_80", &[]);
    let warnings = nvrtc::compile(&compilation).unwrap().warnings(&compilation);
    assert_eq!(warnings.len(), 1);
    assert_eq!((warnings[0].severity, warnings[0].line), (Severity::Warning, 2));
    assert_eq!(warnings[0].text.as_deref(), Some("  int unused = 3;"));
}

#[test]
fn unknown_architectures_and_options_are_errors_that_say_so() {
    if !common::has_nvrtc() {
        return;
    }
    let message = |architecture, options: &[String]| {
        let error = nvrtc::compile(&compilation(SOURCE, architecture, options)).unwrap_err();
        assert!(matches!(error, CudaError::Nvrtc { .. }), "{error}");
        error.to_string()
    };
    assert!(message("sm_999", &[]).contains("architecture"));
    assert!(message("sm_80", &["--no-such-option".into()]).contains("--no-such-option"));
    assert!(message("sm_80", &["-DX=\0".into()]).contains("NUL"));
}

#[test]
fn options_reach_the_compiler() {
    if !common::has_nvrtc() {
        return;
    }
    let source =
        "#ifndef ROW\n#error ROW is not defined\n#endif\nextern \"C\" __global__ void k(int* out) { out[0] = ROW; }\n";
    assert!(nvrtc::compile(&compilation(source, "sm_80", &[])).unwrap_err().to_string().contains("ROW is not defined"));
    nvrtc::compile(&compilation(source, "sm_80", &["-DROW=768".into()])).unwrap();
}

#[test]
fn the_cache_compiles_once_for_all_processes() {
    if !common::has_nvrtc() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let compilation = compilation(SOURCE, "sm_90a", &[]);
    let first = KernelCache::new(folder.path());
    let cubin = first.compile(&compilation).unwrap();
    first.compile(&compilation).unwrap();
    let expected = CacheStatistics { compiled: 1, in_memory: 1, ..Default::default() };
    assert_eq!(first.statistics(), expected);

    let second = KernelCache::new(folder.path());
    let again = second.compile(&compilation).unwrap();
    assert_eq!(second.statistics(), CacheStatistics { on_disk: 1, ..Default::default() });
    assert_eq!((again.image(), again.kernels()), (cubin.image(), cubin.kernels()));

    let entry = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&entry).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&entry, bytes).unwrap();
    let third = KernelCache::new(folder.path());
    assert_eq!(third.compile(&compilation).unwrap().image(), cubin.image());
    assert_eq!(third.statistics(), CacheStatistics { compiled: 1, corrupt: 1, ..Default::default() });
}

#[test]
fn a_mistake_is_not_cached() {
    if !common::has_nvrtc() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cache = KernelCache::new(folder.path());
    let compilation = compilation("this is no C++", "sm_80", &[]);
    for _ in 0..2 {
        assert!(matches!(cache.compile(&compilation), Err(CudaError::Compile(_))));
    }
    assert_eq!(cache.statistics(), CacheStatistics::default());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_kernel_of_many_copies_compiles() {
    if !common::has_nvrtc() {
        return;
    }
    for architecture in ARCHITECTURES {
        let cubin = Gather::compile(&KernelCache::in_memory(), architecture).unwrap();
        let [kernel] = cubin.kernels() else { panic!("{:?}", cubin.kernels()) };
        assert_eq!(kernel.name, "copy_ranges");
        assert!(!kernel.uses_local_memory(), "{kernel:?}");
        // Every device has room for so much.
        assert!(kernel.parameters.iter().map(|parameter| parameter.bytes).sum::<usize>() <= 4096 - 4);
    }
}

#[test]
fn the_kernel_that_combines_tensors_of_ranks_compiles() {
    if !common::has_nvrtc() {
        return;
    }
    let by = [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min, Reduction::Product];
    for dtype in DType::REAL {
        for (by, ranks) in by.into_iter().zip([2, 3, 4, 8, 16]) {
            let wide = if dtype.is_floating() && by == Reduction::Sum { dtype.accumulator() } else { dtype };
            let of = ([dtype, wide], by, ranks);
            let cubin = Combine::compile(&KernelCache::in_memory(), ARCHITECTURES[0], of).unwrap();
            let [kernel] = cubin.kernels() else { panic!("{:?}", cubin.kernels()) };
            assert_eq!(kernel.name, "combine_parts");
            assert!(!kernel.uses_local_memory(), "{dtype} {by:?} {ranks}: {kernel:?}");
            assert!(kernel.parameters.iter().map(|parameter| parameter.bytes).sum::<usize>() <= 4096 - 4);
        }
    }
}

#[test]
fn the_kernel_that_fills_compiles() {
    if !common::has_nvrtc() {
        return;
    }
    for architecture in ARCHITECTURES {
        let cubin = Fill::compile(&KernelCache::in_memory(), architecture).unwrap();
        let [kernel] = cubin.kernels() else { panic!("{:?}", cubin.kernels()) };
        assert_eq!(kernel.name, "fill_range");
        assert!(!kernel.uses_local_memory(), "{kernel:?}");
    }
}
