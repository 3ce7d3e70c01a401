#!/usr/bin/env bash
# The tests of CUDA executors on a GPU machine that has no Rust.
#   tests/device.sh build FOLDER    where Rust is: puts stripped test binaries and measurements into FOLDER
#   tests/device.sh run FOLDER [EXECUTOR ...]     where the GPU is, from the root of the repository: runs them and prints a summary;
#                                   with names, the operators by these executors alone
#   tests/device.sh sanitize FOLDER [TOOL ...]    the same machine: every operator by all its samples in f32 (flash: bf16), generated
#                                   kernels of rows, and the CUDA floor under compute-sanitizer; DTYPE names another element
#                                   type, FULGURITE_SAMPLE one sample, TOGETHER how many run at a time (6)
set -euo pipefail
cd "$(dirname "$0")/.."
action=${1:?build, run or sanitize} folder=${2:?the folder of the binaries}

build() {
    mkdir -p "$folder"
    # Cargo names each test binary on a line such as `  Executable tests/generated.rs (target/debug/deps/generated-0123)`.
    take() {
        local binary
        binary=$(cargo test "${@:2}" --no-run 2>&1 | sed -n 's/.*Executable .*(\(.*\))/\1/p' | tail -1)
        cp "$binary" "$folder/$1"
        strip "$folder/$1"
    }
    take generated -p fulgurite-tests --test generated
    take device_runs -p fulgurite-tests --test device_runs
    take device_ordinals -p fulgurite-tests --test device_ordinals
    take vjp_calls -p fulgurite-tests --test vjp_calls
    take mutated_plans -p fulgurite-tests --test mutated_plans
    take wrong_operators -p fulgurite-tests --test wrong_operators
    take streams -p fulgurite-tests --test streams
    take llama_parity -p fulgurite-tests --test llama_parity
    take gpt2_parity -p fulgurite-tests --test gpt2_parity
    take clipping -p fulgurite-tests --test clipping
    take fp8 -p fulgurite-tests --test fp8
    take padding -p fulgurite-tests --test padding
    take column_sums -p fulgurite-tests --test column_sums
    take adding_rows -p fulgurite-tests --test adding_rows
    take turned_operands -p fulgurite-tests --test turned_operands
    take cuda_device -p fulgurite-kernels --test cuda_device
    take cuda_generated -p fulgurite-kernels --test cuda_generated
    cargo build --release -p fulgurite
    cp target/release/fulgurite "$folder/fulgurite"
    strip "$folder/fulgurite"
    ls -l "$folder"
}

run() {
    folder=$(cd "$folder" && pwd)
    export FULGURITE_REQUIRE_CUDA=1 FULGURITE_REQUIRE_NVRTC=1
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
    local failed=0
    summary() {
        local name=$1
        shift
        local log
        log=$(mktemp)
        "$@" >"$log" 2>&1 || failed=1
        echo "== $name: $(grep -E '^test result' "$log" | tail -1)"
        grep -E 'FAILED$' "$log" | head -40 || true
        # What failed tests say stands before the list of their names.
        sed -n '/^failures:/,/^failures:$/p; /^what failed, by cause:/,$p' "$log" | head -60
        if grep -E '^test result' "$log" | tail -1 | grep -q ' 0 passed; 0 failed'; then
            echo "no test is called so"
            failed=1
        fi
        rm "$log"
    }
    # Paths of golden vectors and snapshots are those of the crate.
    cd tests
    local executors=("$@")
    if [ ${#executors[@]} -eq 0 ]; then
        executors=(cudnn decode flash:: flash_tf32 fp8 liger llmc tf32:: optim unsloth cublaslt fusion cuda)
        summary 'the CUDA floor' "$folder/cuda_device" --test-threads=4
        summary 'generated kernels' "$folder/cuda_generated" --test-threads=2
        summary 'programs on the device' "$folder/device_runs"
        summary 'devices that are not the first' "$folder/device_ordinals"
        summary 'cotangents on the device' "$folder/vjp_calls" cotangents
        summary 'changed plans on the device' "$folder/mutated_plans" on_a_device
        summary 'wrong kernels that templates catch' "$folder/wrong_operators" on_a_device
        summary 'programs on several streams' "$folder/streams"
        summary 'GPT-2 beside PyTorch' "$folder/gpt2_parity"
        summary 'clipping of 16-bit gradients' "$folder/clipping"
        summary 'products of 8 bits' "$folder/fp8"
        summary 'padded extents' "$folder/padding"
        summary 'sums of columns' "$folder/column_sums"
        summary 'added rows' "$folder/adding_rows"
        summary 'transposed operands' "$folder/turned_operands"
        summary 'decoders beside LitGPT' "$folder/llama_parity" cuda
    fi
    for executor in "${executors[@]}"; do
        summary "operators by $executor" "$folder/generated" "::$executor" --test-threads=16
    done
    [ $# -eq 0 ] || return $failed
    for arguments in '--context 64 --precision 32-true' '--context 64 --precision tf32' '--context 64 --precision tf32 --executors llmc,optim,cublaslt,fusion,cuda' '--precision tf32 --context 1024' '--precision bf16-mixed --context 1024' '--precision bf16-mixed --context 1024 --executors llmc,optim,cublaslt,fusion,cuda'; do
        # shellcheck disable=SC2086
        "$folder/fulgurite" train gpt2 --device cuda --size 124M --tokenizer gpt2 --batch 4 --bench 20 \
            --out "$(mktemp -d)/bench" $arguments || failed=1
    done
    return $failed
}

sanitize() {
    folder=$(cd "$folder" && pwd)
    export FULGURITE_REQUIRE_CUDA=1 FULGURITE_REQUIRE_NVRTC=1
    local tools=("$@") failed=0
    [ ${#tools[@]} -gt 0 ] || tools=(memcheck racecheck initcheck synccheck)
    cd tests
    # Several at a time, TOGETHER at most: most of a sanitizer's time is the host's. Each has one thread, so that its
    # report follows the test's name.
    local together=${TOGETHER:-6} begun=0 work
    work=$(mktemp -d)
    touch "$work/passed"
    # For racecheck, an arrival at a barrier orders only what the arriving thread did. With these sources all threads of
    # a warp arrive. Sources of the caller's FULGURITE_CUDA_SOURCES are beside them.
    mkdir "$work/sources"
    [ -z "${FULGURITE_CUDA_SOURCES:-}" ] || cp -r "$FULGURITE_CUDA_SOURCES/." "$work/sources"
    find "$work/sources" -name wgmma.cuh -delete
    sed 's/constexpr int ARRIVING = 1;/constexpr int ARRIVING = 32;/' \
        "$(find "${FULGURITE_CUDA_SOURCES:-/nowhere}" -name wgmma.cuh 2>/dev/null | grep . ||
            echo ../executors/flash/src/wgmma.cuh)" >"$work/sources/wgmma.cuh"
    grep -q 'ARRIVING = 32;' "$work/sources/wgmma.cuh" || { echo 'wgmma.cuh has no line ARRIVING = 1'; return 1; }
    watched() {
        begun=$((begun + 1))
        while [ "$(jobs -rp | wc -l)" -ge "$together" ]; do wait -n || true; done
        watch_one "$@" &
    }
    watch_one() {
        local what=$1 tool=$2 log passed=1
        shift 2
        log=$(mktemp -p "$work")
        if [ "$tool" = racecheck ]; then
            local -x FULGURITE_CUDA_SOURCES=$work/sources
        fi
        # Tests make calls that fail on purpose.
        local options=(--tool "$tool" --error-exitcode 9)
        [ "$tool" != memcheck ] || options+=(--report-api-errors no)
        compute-sanitizer "${options[@]}" "$@" --test-threads=1 >"$log" 2>&1 || passed=0
        # An executor may have no kernels of an element type.
        if [[ $* != *::consistency::* ]] && grep -q '^test result.* 0 passed; 0 failed' "$log"; then passed=0; fi
        {
            flock 9
            echo "== $tool, $what: $(grep -E 'SUMMARY' "$log" | tail -1) $(grep -E '^test result' "$log" | tail -1)"
            grep -vE ' ok$|ignored$' "$log" | grep -E '=========|FAILED' | grep -v SUMMARY | head -30 || true
            [ $passed = 0 ] || echo "$tool, $what" >>"$work/passed"
        } 9>"$work/lock"
    }
    for tool in "${tools[@]}"; do
        for executor in cuda decode fusion cublaslt optim liger unsloth llmc tf32 flash flash_tf32 fp8 cudnn; do
            local dtype=${DTYPE:-f32} of=consistency::$executor
            # Kernels of bf16 are others than those of f32, or there are no others.
            case $tool-$executor in
                # The kernels are the library's: racecheck and initcheck report errors in them, synccheck stops them.
                racecheck-cudnn | initcheck-cudnn | synccheck-cudnn) continue ;;
                # initcheck takes results of the library's products of 8 and 16 bits for never written. These two
                # symbols have no such products.
                initcheck-flash)
                    watched 'attention by flash' "$tool" "$folder/generated" "flash::attention::$of::bf16"
                    watched 'its gradients' "$tool" "$folder/generated" "flash::attention_backward::$of::bf16"
                    ;;
                *-flash | *-cudnn | memcheck-fp8 | racecheck-fp8 | synccheck-fp8)
                    watched "operators by $executor in bf16" "$tool" "$folder/generated" "::$of::bf16"
                    ;;
            esac
            watched "operators by $executor" "$tool" "$folder/generated" "::$of::$dtype"
        done
        # Generated kernels of every kind: rows by lanes, blocks and clusters, one row over its value, stages.
        watched 'generated kernels' "$tool" "$folder/cuda_generated" rows --skip speed --skip under_load
        # A test takes a barrier away on purpose, and one asks for what is out of bounds. Attention is the library's: see above.
        local skipped=(--skip a_missing_barrier --skip faults --skip products)
        [ "$tool" = memcheck ] || skipped+=(--skip attention)
        watched 'the CUDA floor' "$tool" "$folder/cuda_device" "${skipped[@]}"
    done
    wait
    echo "$(wc -l <"$work/passed") of $begun passed"
    [ "$(wc -l <"$work/passed")" = "$begun" ] || failed=1
    rm -r "$work"
    return $failed
}

case $action in
    build) build ;;
    run) run "${@:3}" ;;
    sanitize) sanitize "${@:3}" ;;
    *) echo "build, run or sanitize, not '$action'" >&2; exit 2 ;;
esac
