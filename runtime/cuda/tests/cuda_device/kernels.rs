//! Compiling, loading, launching.

use crate::fixture::{Device, device, numbers, random};
use fulgurite_cuda::{
    Arguments, Compilation, CopyRange, CudaError, DeviceAddress, Fill, Gather, HEADERS, LaunchShape, Module, nvrtc,
};

const ADD: &str = r#"
extern "C" __global__ void add(float* out, const float* a, const float* b, float scale, unsigned long long count) {
    unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
    if (i < count) out[i] = a[i] + scale * b[i];
}
"#;

#[test]
fn a_source_becomes_a_kernel_that_computes() {
    let Some(device) = device() else { return };
    println!("{}", fulgurite_cuda::probe());
    let function = device.function(ADD, "add");
    let count = 100_003usize;
    let a: Vec<f32> = (0..count).map(|i| i as f32).collect();
    let b: Vec<f32> = (0..count).map(|i| (i % 17) as f32).collect();
    let (a_memory, b_memory) = (device.upload_of(&a), device.upload_of(&b));
    let out = device.upload(&vec![0xFF; count * 4]);
    let arguments = Arguments::new()
        .pointer(out.address())
        .pointer(a_memory.address())
        .pointer(b_memory.address())
        .f32(0.5)
        .u64(count as u64);
    let shape = LaunchShape::linear(count.div_ceil(256) as u32, 256);
    // SAFETY: the three vectors have `count` elements, and nothing else runs.
    unsafe { function.launch(&device.stream, &shape, &arguments) }.unwrap();
    let found: Vec<f32> = device.download_of(&out);
    assert!((0..count).all(|i| found[i] == a[i] + 0.5 * b[i]));
}

#[test]
fn a_launch_that_does_not_fit_the_kernel_is_refused() {
    let Some(device) = device() else { return };
    let module = device.module(ADD);
    let function = module.function("add").unwrap();
    let full = Arguments::new()
        .pointer(DeviceAddress::NULL)
        .pointer(DeviceAddress::NULL)
        .pointer(DeviceAddress::NULL)
        .f32(0.0)
        .u64(0);
    let refuse = |shape: LaunchShape, arguments: &Arguments, part: &str| {
        // SAFETY: with a count of zero the kernel touches nothing, and it is not meant to run at all.
        let error = unsafe { function.launch(&device.stream, &shape, arguments) }.unwrap_err();
        assert!(matches!(error, CudaError::Launch { .. }), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    };
    let shape = LaunchShape::linear(1, 32);
    refuse(shape, &Arguments::new().u64(1), "[8, 8, 8, 4, 8] bytes, the arguments [8]");
    refuse(shape, &full.clone().i32(1), "[8, 8, 8, 4, 8, 4]");
    refuse(LaunchShape::linear(1, 2048), &full, "2048 threads");
    refuse(LaunchShape::linear(0, 32), &full, "zero");
    refuse(shape.shared(1 << 20), &full, "shared memory");
    // SAFETY: with a count of zero the kernel touches nothing.
    unsafe { function.launch(&device.stream, &shape, &full) }.unwrap();
    device.stream.synchronize().unwrap();

    let error = module.function("subtract").unwrap_err().to_string();
    assert!(error.contains("subtract") && error.contains("add"), "{error}");
}

#[test]
fn every_kind_of_argument_arrives() {
    let Some(device) = device() else { return };
    let source = r#"
        struct Pair { unsigned short a; unsigned char b; };
        extern "C" __global__ void take(double* out, unsigned char c, int i, unsigned u, long long l,
                                        unsigned long long m, float f, double d, Pair pair, short s) {
            const double all[] = { (double)c, (double)i, (double)u, (double)l, (double)m, f, d,
                                   (double)pair.a, (double)pair.b, (double)s };
            for (int n = 0; n < 10; ++n) out[n] = all[n];
        }"#;
    let function = device.function(source, "take");
    let out = device.upload(&[0xFF; 80]);
    let arguments = Arguments::new()
        .pointer(out.address())
        .bytes(&[200])
        .i32(-3)
        .u32(4_000_000_000)
        .i64(-(1 << 40))
        .u64(1 << 41)
        .f32(0.25)
        .f64(1e-300)
        .bytes(&[7, 1, 9, 0])
        .bytes(&(-5i16).to_le_bytes());
    // SAFETY: the kernel writes ten doubles.
    unsafe { function.launch(&device.stream, &LaunchShape::linear(1, 1), &arguments) }.unwrap();
    let expected = [200.0, -3.0, 4e9, -(2f64.powi(40)), 2f64.powi(41), 0.25, 1e-300, 263.0, 9.0, -5.0];
    assert_eq!(device.download_of::<f64>(&out), expected);
}

#[test]
fn clusters_read_each_others_large_shared_memory() {
    let Some(device) = device() else { return };
    if !device.is_hopper_or_newer() {
        return println!("skipped: {} has no clusters", device.context.device().name);
    }
    let source = r#"
        extern "C" __global__ void neighbours(unsigned* out, int last) {
            extern __shared__ unsigned tile[];
            unsigned rank, size, remote, value;
            asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
            asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
            if (threadIdx.x == 0) tile[last] = blockIdx.x * 10;
            asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
            unsigned here = (unsigned)__cvta_generic_to_shared(&tile[last]);
            asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(here), "r"((rank + 1) % size));
            asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(remote) : "memory");
            if (threadIdx.x == 0) out[blockIdx.x] = value;
            asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
        }"#;
    let function = device.function(source, "neighbours");
    let shared = 200 * 1024;
    for cluster in [2u32, 4, 8, 16] {
        let out = device.upload(&[0xFF; 32 * 4]);
        let arguments = Arguments::new().pointer(out.address()).i32(shared / 4 - 1);
        let shape = LaunchShape::linear(32, 64).cluster([cluster, 1, 1]).shared(shared as u32);
        // SAFETY: the kernel writes one number a block, and uses the shared memory that it is given.
        unsafe { function.launch(&device.stream, &shape, &arguments) }.unwrap();
        let next = |block: u32| block / cluster * cluster + (block + 1) % cluster;
        let expected: Vec<u32> = (0..32).map(|block| next(block) * 10).collect();
        assert_eq!(device.download_of::<u32>(&out), expected, "clusters of {cluster}");
    }
    assert_eq!(function.resident_blocks(64, shared as u32).unwrap(), 1);
}

#[test]
fn cooperative_and_overlapping_launches_run() {
    let Some(device) = device() else { return };
    let source = r#"
        extern "C" __global__ void barrier(unsigned* arrived, unsigned* out) {
            if (threadIdx.x == 0) {
                __threadfence();
                atomicAdd(arrived, 1u);
                while (*(volatile unsigned*)arrived < gridDim.x) {}
                out[blockIdx.x] = *(volatile unsigned*)arrived;
            }
        }
        extern "C" __global__ void increment(unsigned* value) {
        #if __CUDA_ARCH__ >= 900
            asm volatile("griddepcontrol.wait;" ::: "memory");
        #endif
            *value += 1;
        }"#;
    let module = device.module(source);
    let barrier = module.function("barrier").unwrap();
    let blocks = barrier.resident_blocks(32, 0).unwrap() * device.context.device().multiprocessors;
    let (arrived, out) = (device.upload(&[0; 4]), device.upload(&vec![0; blocks as usize * 4]));
    let arguments = Arguments::new().pointer(arrived.address()).pointer(out.address());
    let shape = LaunchShape { cooperative: true, ..LaunchShape::linear(blocks, 32) };
    // SAFETY: the kernel writes one number a block; all blocks are resident, so none waits for ever.
    unsafe { barrier.launch(&device.stream, &shape, &arguments) }.unwrap();
    assert!(device.download_of::<u32>(&out).iter().all(|&seen| seen == blocks));

    let increment = module.function("increment").unwrap();
    let shape = LaunchShape { overlaps_previous: device.is_hopper_or_newer(), ..LaunchShape::linear(1, 1) };
    let value = device.upload(&[0; 4]);
    for _ in 0..50 {
        let arguments = Arguments::new().pointer(value.address());
        // SAFETY: each launch waits for the one before.
        unsafe { increment.launch(&device.stream, &shape, &arguments) }.unwrap();
    }
    assert_eq!(device.download_of::<u32>(&value), [50]);
}

#[test]
fn variables_of_a_module_have_addresses() {
    let Some(device) = device() else { return };
    let source =
        "extern \"C\" { __device__ int values[3] = {1, 2, 3}; }\nextern \"C\" __global__ void k() { values[1] = 9; }";
    let module = device.module(source);
    let (address, bytes) = module.global("values").unwrap();
    assert_eq!(bytes, 12);
    // SAFETY: the kernel writes to the module's own variable.
    unsafe { module.function("k").unwrap().launch(&device.stream, &LaunchShape::linear(1, 1), &Arguments::new()) }
        .unwrap();
    let mut found = [0u8; 12];
    // SAFETY: the variable has twelve bytes, and the copy is waited for.
    unsafe { device.stream.copy_to_host(&mut found, address) }.unwrap();
    device.stream.synchronize().unwrap();
    assert_eq!(numbers::<i32>(&found), [1, 9, 3]);
    assert!(module.global("absent").is_err());
}

#[test]
fn the_driver_agrees_with_what_a_cubin_says() {
    let Some(device) = device() else { return };
    let source = r#"
        extern "C" __global__ void clean(float* out) { out[0] = 1.0f; }
        extern "C" __global__ void __launch_bounds__(128) local(float* out, const float* in, int n) {
            float values[100];
            for (int i = 0; i < 100; ++i) values[i] = in[i * n];
            for (int i = 0; i < n; ++i) values[(i * 7) % 100] += values[i % 100];
            out[0] = values[n % 100];
        }"#;
    let module = device.module(source);
    for (name, threads) in [("clean", 1024), ("local", 128)] {
        let function = module.function(name).unwrap();
        let resources = function.resources();
        println!("{name}: {resources:?}, driver: {} local bytes", function.local_bytes());
        assert_eq!(function.local_bytes() > 0, resources.uses_local_memory());
        assert!(function.local_bytes() >= resources.stack_bytes);
        assert_eq!(function.max_threads(), threads);
        assert!(function.resident_blocks(128, 0).unwrap() > 0);
    }
}

#[test]
fn code_for_another_architecture_is_refused_by_name() {
    let Some(device) = device() else { return };
    let other = if device.context.device().architecture() == "sm_75" { "sm_80" } else { "sm_75" };
    let compilation = Compilation { name: "test.cu", source: ADD, architecture: other, options: &[] };
    let cubin = nvrtc::compile(&compilation).unwrap();
    let error = Module::load(&device.context, &cubin).unwrap_err();
    assert!(error.to_string().contains("CUDA_ERROR_NO_BINARY_FOR_GPU"), "{error}");
    assert!(!error.is_fatal());
}

/// The driver has one number for a kernel: a launch that asks for less must not lower what another asked for.
#[test]
fn the_shared_memory_of_a_kernel_is_that_of_its_largest_launch() {
    let Some(device) = device() else { return };
    let source = r#"
        extern "C" __global__ void touch(unsigned* out, unsigned bytes) {
            extern __shared__ unsigned char room[];
            for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) room[i] = (unsigned char)i;
            __syncthreads();
            if (threadIdx.x == 0) out[0] = room[bytes - 1];
        }"#;
    let module = device.module(source);
    let out = device.upload(&[0; 4]);
    // As two launches of one source have each.
    let functions = [module.function("touch").unwrap(), module.function("touch").unwrap()];
    let launch = |function: usize, bytes: u32| {
        let arguments = Arguments::new().pointer(out.address()).u32(bytes);
        // SAFETY: the kernel writes one number, and to as much shared memory as the launch has.
        unsafe { functions[function].launch(&device.stream, &LaunchShape::linear(1, 128).shared(bytes), &arguments) }
            .unwrap_or_else(|error| panic!("{bytes} bytes: {error}"));
        assert_eq!(device.download_of::<u32>(&out), [(bytes - 1) & 0xff]);
    };
    let most = device.context.device().shared_bytes_per_block as u32;
    for (function, bytes) in [(0, most), (1, 60 << 10), (0, most), (1, 50 << 10), (0, 61 << 10), (0, most)] {
        launch(function, bytes);
    }
    let more = functions[1].allow_shared(most + 1).unwrap_err().to_string();
    assert!(more.contains("of dynamic and 0 bytes of static shared memory exceed"), "{more}");
}

#[test]
fn many_small_copies_are_one_launch_each_hundred_and_sixty() {
    let Some(device) = device() else { return };
    let gather = Gather::new(&device.context).unwrap();
    let mut next = random(8);
    let bytes: Vec<u8> = (0..3 << 20).map(|_| (next() * 128.0) as i8 as u8).collect();
    let (from, to) = (device.upload(&bytes), device.upload(&vec![0xEE; 3 << 20]));
    // Sizes and addresses of every alignment; nothing between the ranges may be written.
    let mut expected = vec![0xEE; 3 << 20];
    let (mut at, mut copies) = (0, Vec::new());
    for number in 0..500usize {
        let length = [0, 1, 3, 4, 15, 16, 17, 1000, 4096, 70_001][number % 10];
        let (start, shift) = ((at + number % 7).min((3 << 20) - 80_000), number % 5);
        copies.push(CopyRange {
            from: from.address().offset(start),
            to: to.address().offset(start + shift),
            bytes: length,
        });
        expected[start + shift..][..length].copy_from_slice(&bytes[start..][..length]);
        at = start + length + 16;
        if at > (3 << 20) - 90_000 {
            break;
        }
    }
    assert!(copies.len() > 320, "{}", copies.len());
    // SAFETY: the ranges are parts of both memories, and do not overlap.
    unsafe { gather.copy(&device.stream, &copies) }.unwrap();
    assert!(device.download(&to) == expected);
}

#[test]
fn a_kernel_fills_ranges_of_any_alignment() {
    let Some(device) = device() else { return };
    let fill = Fill::new(&device.context).unwrap();
    let (lengths, all) = ([0, 1, 3, 4, 15, 16, 17, 1000, 4096, 70_001, 40 << 20], 41 << 20);
    let to = device.upload(&vec![0xEE; all]);
    let mut expected = vec![0xEE; all];
    for (number, length) in lengths.into_iter().enumerate() {
        let (start, byte) = (number * 80_000 + number % 7, [0x00, 0xFF, 0x5A][number % 3]);
        // SAFETY: the range is part of the memory, which this stream alone uses.
        unsafe { fill.enqueue(&device.stream, to.address().offset(start), byte, length) }.unwrap();
        expected[start..][..length].fill(byte);
    }
    assert!(device.download(&to) == expected);
}

/// Reductions over a block one after another, as kernels with several of them have, by warps that come at different
/// times: how many threads get a wrong sum.
fn wrong_sums(device: &Device, header: &str) -> u32 {
    let source = r#"
        extern "C" __global__ void reduce(unsigned* wrong, int rounds) {
            __shared__ float scratch[32];
            const float threads = (float)blockDim.x;
            for (int round = 0; round < rounds; ++round) {
                const int warp = threadIdx.x / 32, spins = (warp * 7 + round * 13 + (int)blockIdx.x) % 5 * 40;
                for (const long long start = clock64(); clock64() - start < spins;) {}
                const float own = (float)(threadIdx.x + round % 64);
                const float total = block_reduce<Sum, float>(own, scratch, 0.0f);
                if (total != threads * (threads - 1.0f) / 2.0f + threads * (float)(round % 64)) atomicAdd(wrong, 1u);
            }
        }"#;
    let function = device.function(&format!("{header}{source}"), "reduce");
    let count = device.upload(&[0; 4]);
    let arguments = Arguments::new().pointer(count.address()).i32(500);
    let blocks = 2 * device.context.device().multiprocessors;
    // SAFETY: the kernel counts in one number.
    unsafe { function.launch(&device.stream, &LaunchShape::linear(blocks, 1024), &arguments) }.unwrap();
    device.download_of::<u32>(&count)[0]
}

fn reductions() -> &'static str {
    HEADERS.iter().find(|header| header.name == "fulgurite/reductions.cuh").expect("the header").text
}

/// The shared reductions, where half of the warps read the parts of a sum late.
fn late_reductions() -> String {
    let read = "    return lanes_reduce<R>(lane < warps ? scratch[lane] : neutral);";
    assert!(reductions().contains(read), "the line that is changed");
    let late = "    for (const long long start = clock64(); clock64() - start < (warp % 2 ? 4000 : 0);) {}\n";
    reductions().replacen(read, &format!("{late}{read}"), 1)
}

/// Each reduction waits before it writes over the last one's parts.
#[test]
fn one_reduction_of_a_block_waits_for_the_last() {
    let Some(device) = device() else { return };
    assert_eq!(wrong_sums(&device, reductions()), 0);
    assert_eq!(wrong_sums(&device, &late_reductions()), 0);
}

/// Without that barrier some of thousands are wrong: the test before notices. (Here a race is made on purpose, which
/// a sanitizer reports.)
#[test]
fn a_missing_barrier_of_a_reduction_is_noticed() {
    let Some(device) = device() else { return };
    let barrier = "    __syncthreads();\n    if (lane == 0) scratch[warp] = x;";
    let late = late_reductions();
    assert!(late.contains(barrier), "the lines that are changed");
    let without = late.replacen(barrier, "    if (lane == 0) scratch[warp] = x;", 1);
    assert!(wrong_sums(&device, &without) > 0);
}
