// Whether inputs that cross on a stream of their own arrive, if the compute stream waits for an event instead of the
// host: the driver's calls of a program's life and runs, without the rest of the runtime. docs/src/cuda.md, "Why the
// host waits".
//   nvcc -std=c++17 -arch=native -cubin -o inputs_beside.cubin inputs_beside.cu
//   nvcc -std=c++17 -o inputs_beside inputs_beside.cu -lcuda
//   for i in 1 2 3; do ./inputs_beside event 30 & done; wait    # for 30 seconds; with `wait` the host waits
#include <cuda.h>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>
#define CHECK(call) if (CUresult failed = (call)) { std::printf("%s: error %d\n", #call, failed); std::exit(2); }
extern "C" __global__ void step(const unsigned* in, unsigned* out, unsigned n, unsigned by) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = in[i] * by + i;
}
static CUstream compute, inputs, reads;
static std::atomic<long> runs{0}, wrong{0};
static void program(const std::string& cubin, bool event, std::mt19937& random) {
    const unsigned n = 64 << random() % 9, slots = 8, kernels = 4, bytes = n * 4;
    CUdeviceptr own; CUmodule module; CUfunction f; unsigned* host; CUevent sent[slots], taken[2], done; CUstream recorder;
    CHECK(cuMemAlloc(&own, bytes * (3 + kernels)));  // the place, two landings, what kernels write
    CUdeviceptr landing[2] = {own + bytes, own + 2 * bytes}, out = own + bytes * (2 + kernels), result;
    CHECK(cuModuleLoadData(&module, cubin.data())); CHECK(cuModuleGetFunction(&f, module, "step"));
    CHECK(cuMemHostAlloc((void**)&host, bytes * slots, CU_MEMHOSTALLOC_PORTABLE));
    for (auto& e : sent) CHECK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    for (auto& e : taken) { CHECK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING)); CHECK(cuEventRecord(e, compute)); }
    CHECK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING)); CHECK(cuStreamCreate(&recorder, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAlloc(&result, bytes));
    auto enqueue = [&](CUstream s) {
        for (unsigned k = 0; k < kernels; k++) {
            CUdeviceptr from = k ? own + bytes * (2 + k) : own, to = own + bytes * (3 + k); unsigned count = n, by = 2 * k + 3;
            if (k + 1 == kernels) to = out;
            void* arguments[] = {&from, &to, &count, &by};
            CHECK(cuLaunchKernel(f, (n + 255) / 256, 1, 1, 256, 1, 1, 0, s, arguments, nullptr));
        }
    };
    CUgraph graph; CUgraphExec executable;
    CHECK(cuStreamBeginCapture(recorder, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)); enqueue(recorder);
    CHECK(cuStreamEndCapture(recorder, &graph)); CHECK(cuGraphInstantiate(&executable, graph, 0));
    std::vector<unsigned> got(n), seeds;
    for (unsigned run = 0, last = 0; run < 6 + random() % 20; run++) {
        unsigned slot = run % slots, seed = random(); seeds.push_back(seed); CUevent s = sent[slot], t = taken[run % 2];
        CHECK(cuEventSynchronize(s));
        unsigned* at = host + slot * n; for (unsigned i = 0; i < n; i++) at[i] = seed + i * 2654435761u;
        CHECK(cuStreamWaitEvent(inputs, t, 0)); CHECK(cuMemcpyHtoDAsync(landing[run % 2], at, bytes, inputs)); CHECK(cuEventRecord(s, inputs));
        if (event) { CHECK(cuStreamWaitEvent(compute, s, 0)); } else { CHECK(cuEventSynchronize(s)); }
        CHECK(cuMemcpyDtoDAsync(own, landing[run % 2], bytes, compute)); CHECK(cuEventRecord(t, compute));
        if (run == 0) enqueue(compute); else CHECK(cuGraphLaunch(executable, compute));
        CHECK(cuMemcpyDtoDAsync(result, out, bytes, compute)); CHECK(cuEventRecord(done, compute));
        if (last++ % 3 == 1) continue;  // not every run is read: the next one is enqueued behind it
        CHECK(cuEventSynchronize(done)); CHECK(cuMemcpyDtoHAsync(got.data(), result, bytes, reads)); CHECK(cuStreamSynchronize(reads));
        auto differing = [&](unsigned seed) {
            unsigned bad = 0;
            for (unsigned i = 0; i < n; i++) {
                unsigned v = seed + i * 2654435761u; for (unsigned k = 0; k < kernels; k++) v = v * (2 * k + 3) + i;
                bad += got[i] != v;
            }
            return bad;
        };
        runs++;
        if (unsigned bad = differing(seed)) {
            wrong++; std::printf("run %u: %u of %u elements are wrong", run, bad, n);
            for (unsigned old = 0; old < run; old++) if (!differing(seeds[old])) std::printf(": they are of run %u", old);
            std::printf("\n");
        }
    }
    CHECK(cuEventSynchronize(done)); CHECK(cuGraphExecDestroy(executable)); CHECK(cuGraphDestroy(graph)); CHECK(cuStreamDestroy(recorder));
    for (auto e : sent) { CHECK(cuEventSynchronize(e)); CHECK(cuEventDestroy(e)); }
    for (auto e : {taken[0], taken[1], done}) CHECK(cuEventDestroy(e));
    CHECK(cuMemFreeHost(host)); CHECK(cuModuleUnload(module)); CHECK(cuMemFree(own)); CHECK(cuMemFree(result));
}
int main(int, char** words) {
    std::ifstream file("inputs_beside.cubin", std::ios::binary);
    const std::string cubin((std::istreambuf_iterator<char>(file)), {});
    CUcontext context; CHECK(cuInit(0)); CHECK(cuDevicePrimaryCtxRetain(&context, 0)); CHECK(cuCtxSetCurrent(context));
    for (auto s : {&compute, &inputs, &reads}) CHECK(cuStreamCreate(s, CU_STREAM_NON_BLOCKING));
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::stoi(words[2]));
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; i++) threads.emplace_back([&, i] {
        CHECK(cuCtxSetCurrent(context)); std::mt19937 random(std::random_device{}() + i);
        while (std::chrono::steady_clock::now() < end) program(cubin, !std::strcmp(words[1], "event"), random);
    });
    for (auto& thread : threads) thread.join();
    std::printf("%s: %ld runs, %ld wrong\n", words[1], runs.load(), wrong.load());
    return wrong.load() > 0;
}
