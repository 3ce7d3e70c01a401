#!/usr/bin/env bash
# The tests of CUDA executors on a GPU machine that has no Rust.
#   tests/device.sh build FOLDER    where Rust is: puts stripped test binaries and the command into FOLDER
#   tests/device.sh run FOLDER [EXECUTOR ...]     where the GPU is, from the root of the repository: runs all tests that need
#                                   the device, or the operators' by these executors alone, for MOST seconds (540) at most,
#                                   TOGETHER processes (8) at a time, and reports. Logs are in LOGS (FOLDER/logs). A run goes
#                                   on where the one before it ended, test by test: runs are parts that together are all.
#                                   FIRST names what begins, as `FIRST="cublaslt streams"`.
#   tests/device.sh report FOLDER [EXECUTOR ...]  the same machine: what passed, failed, and was not run. Fails unless each test
#                                   that the binaries list was run, and passed.
#   tests/device.sh speed FOLDER    the same machine: steps of GPT-2 124M, with binaries built by `PROFILE=release`
#   tests/device.sh sanitize FOLDER [TOOL ...]    the same machine: every operator by all its samples in f32 (flash: bf16), generated
#                                   kernels of rows, and the CUDA floor under compute-sanitizer; DTYPE names another element
#                                   type, FULGURITE_SAMPLE one sample, TOGETHER how many run at a time (6)
set -euo pipefail
cd "$(dirname "$0")/.."
action=${1:?build, run, report, speed or sanitize} folder=${2:?the folder of the binaries}

# What runs on a device, the slowest first: a name, the package, its test binary, a pattern of the tests that need the
# device ('-' for all of the binary), and how many threads. Of `generated` come those tests besides that are there with
# a device and not without one, by executor and letter.
table() {
    cat <<'END'
decoders    fulgurite-tests   models          ^llama_parity::.*cuda              4
gpt2        fulgurite-tests   models          ^gpt2_parity::                     2
kernels     fulgurite-cuda    cuda_generated  -                                  2
floor       fulgurite-cuda    cuda_device     -                                  4
programs    fulgurite-tests   declared        ^device_runs::                     4
plans       fulgurite-tests   programs        ^mutated_plans::.*on_a_device      4
streams     fulgurite-tests   programs        ^streams::                         4
eight_bits  fulgurite-tests   executors       ^fp8::                             4
wrong       fulgurite-tests   wrong_operators on_a_device                        4
columns     fulgurite-tests   programs        ^column_sums::                     4
clipping    fulgurite-tests   executors       ^clipping::                        4
padding     fulgurite-tests   programs        ^padding::                         4
rows        fulgurite-tests   executors       ^adding_rows::                     4
transposed  fulgurite-tests   programs        ^turned_operands::                 4
cotangents  fulgurite-tests   declared        ^vjp_calls::.*cotangents           4
ordinals    fulgurite-tests   programs        ^device_ordinals::                 4
decoding    fulgurite-tests   models          ^decoding::.*cuda                  2
bf16        fulgurite-tests   models          ^bf16_true::.*(cuda|device)        2
lists       fulgurite-tests   programs        ^lists::lists_give_the_bits        4
END
}

build() {
    mkdir -p "$folder"
    local profile=${PROFILE:-dev}
    # Cargo names each test binary on a line such as `  Executable tests/generated.rs (target/debug/deps/generated-0123)`.
    take() {
        local binary
        binary=$(cargo test --profile "$([ "$profile" = dev ] && echo test || echo "$profile")" -p "$1" --test "$2" --no-run 2>&1 |
            sed -n 's/.*Executable .*(\(.*\))/\1/p' | tail -1)
        cp "$binary" "$folder/$2"
        strip "$folder/$2"
    }
    take fulgurite-tests generated
    # Several rows may be of one binary.
    table | awk '{ print $2, $3 }' | sort -u | while read -r package binary; do take "$package" "$binary" </dev/null; done
    cargo build --profile "$profile" -p fulgurite-command
    cp "target/$([ "$profile" = dev ] && echo debug || echo "$profile")/fulgurite" "$folder/fulgurite"
    strip "$folder/fulgurite"
    # With the time: logs are of one build.
    { git describe --always --dirty; date +%s; } | paste -sd' ' >"$folder/commit"
    ls -l "$folder"
}

# The tests of a binary, by name.
listed() {
    "$folder/$1" --list 2>/dev/null | sed -n 's/: test$//p'
}

# What is to run: a line `JOB BINARY THREADS` for each process, the first ones first; the names of its tests are in the
# file JOB.names of the logs.
jobs_of() {
    local names
    if [ $# -eq 0 ]; then
        table | while read -r name _ binary filter threads; do
            listed "$binary" | { [ "$filter" = - ] && cat || grep -E -- "$filter"; } >"$logs/$name.names" || true
            # A row without a test is a mistake of the table.
            [ -s "$logs/$name.names" ] || echo "$name: no test of '$binary' is called '$filter'" >>"$logs/mistakes"
            echo "$name $binary $threads"
        done
    fi
    # Operator, template, executor, and an element type or the seed of a program; the last may be missing.
    names=$(comm -23 <(listed generated | sort) <(CUDA_VISIBLE_DEVICES='' listed generated | sort))
    rm -f "$logs"/of_*.names
    [ -n "$names" ] || { echo 'no operator has tests on a device' >>"$logs/mistakes"; return; }
    awk -v folder="$logs" -v wanted="$*" '
        BEGIN { split(wanted, list, " "); for (i in list) asked[list[i]] = 1 }
        {
            n = split($0, part, "::"); last = part[n] ~ /^(f64|f32|f16|bf16|i64|i32|u8|bool|seed_[0-9]+)$/
            executor = part[n - last]
            if (wanted != "" && !(executor in asked)) next
            print > (folder "/of_" executor "_" substr($0, 1, 1) ".names")
        }' <<<"$names"
    # Attention takes longest; then what has most tests.
    wc -l "$logs"/of_*.names | awk '$2 != "total" { slow = $2 ~ /of_(flash|flash_tf32|cudnn|cudnn_tf32|decode|fp8|tf32)_/ ? 1 : 0; print slow, $1, $2 }' |
        sort -k1,1nr -k2,2nr | while read -r _ _ file; do
        echo "$(basename "$file" .names) generated ${THREADS:-2}"
    done
}

# The tests of a job that are still to be run: what has passed, is ignored, or has failed and said why is not run again.
rest_of() {
    touch "$logs/$1.results"
    awk '!all { if ($2 != "untold") known[$1] = 1; next }
        !($1 in known)' "$logs/$1.results" all=1 "$logs/$1.names"
}

# Adds what a job's process has printed to the job's log, and the results in it, lines `test NAME ... RESULT`, to those
# of earlier calls. What a failed test says comes when the process ends: of one that was cut off, failures are `untold`,
# and run again.
keep() {
    [ -e "$logs/$1.running" ] || return 0
    touch "$logs/$1.results"
    sed -nE 's/^test ([^ ]+) .*\.\.\. (ok|FAILED|ignored)(, .*)?$/\1 \2/p' "$logs/$1.running" |
        awk '
            $2 == "FAILED" && end == "cut_off" { $2 = "untold" }
            !($1 in last) { order[++n] = $1 }
            { last[$1] = $2 }
            END { for (i = 1; i <= n; i++) print order[i], last[order[i]] }' "$logs/$1.results" end="$2" - >"$logs/$1.merged"
    mv "$logs/$1.merged" "$logs/$1.results"
    cat "$logs/$1.running" >>"$logs/$1.log"
    rm "$logs/$1.running"
}

prepared() {
    folder=$(cd "$folder" && pwd)
    export FULGURITE_REQUIRE_CUDA=1 FULGURITE_REQUIRE_NVRTC=1
    mkdir -p "${LOGS:-$folder/logs}"
    logs=$(cd "${LOGS:-$folder/logs}" && pwd)
    rm -f "$logs/mistakes"
    cmp -s "$folder/commit" "$logs/commit" ||
        rm -f "$logs"/*.results "$logs"/*.log "$logs"/*.running "$logs/crashed"
    [ ! -e "$folder/commit" ] || cp "$folder/commit" "$logs/commit"
    # Paths of golden vectors and snapshots are those of the crate.
    cd tests
    jobs_of "$@" >"$logs/jobs"
}

# The numbers below $1, beginning with the one at place $2: `turned 3 4` is 1,2,0.
turned() {
    local each
    for ((each = 0; each < $1; each++)); do echo $((($2 + each) % $1)); done | paste -sd,
}

run() {
    local begun=$SECONDS most=${MOST:-540} together=${TOGETHER:-8} job binary threads left first gpus started=0
    prepared "$@"
    rm -f "$logs/crashed"
    # Of a call that was ended itself, there are the results up to then.
    while read -r job _; do keep "$job" cut_off; done <"$logs/jobs"
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
    for first in ${FIRST:-}; do
        { grep -F -- "$first" "$logs/jobs" || true; grep -vF -- "$first" "$logs/jobs" || true; } >"$logs/sorted"
        mv "$logs/sorted" "$logs/jobs"
    done
    one() {
        local names code=0
        mapfile -t names < <(rest_of "$1")
        # Of several GPUs each job has another one first: most tests use the first one alone.
        [ "$gpus" -lt 2 ] || [ -n "${CUDA_VISIBLE_DEVICES:-}" ] || local -x CUDA_VISIBLE_DEVICES=$5
        timeout "$4" "$folder/$2" --exact "${names[@]}" --test-threads="$3" >"$logs/$1.running" 2>&1 || code=$?
        case $code in
            0 | 101) keep "$1" ended ;;
            124) keep "$1" cut_off ;;
            *)
                keep "$1" cut_off
                # The test that ended it is among those that were not run, and would end the next call's process.
                echo "$1: the process ended with exit code $code, see $logs/$1.log" >>"$logs/crashed"
                ;;
        esac
    }
    while read -r job binary threads; do
        [ -n "$(rest_of "$job")" ] || continue
        while [ "$(jobs -rp | wc -l)" -ge "$together" ]; do wait -n || true; done
        left=$((most - (SECONDS - begun)))
        [ "$left" -gt 5 ] || break
        one "$job" "$binary" "$threads" "$left" "$(turned "$gpus" "$started")" </dev/null &
        started=$((started + 1))
    done <"$logs/jobs"
    wait
    tell
}

# What passed, failed, and was not run, of all calls together.
tell() {
    local job file failed=0
    {
        nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null || echo 'no card is seen'
        echo "commit $(cat "$folder/commit" 2>/dev/null || echo unknown)"
    } | paste -sd' ' | tee "$logs/report"
    : >"$logs/not_run"
    : >"$logs/failed"
    while read -r job _; do
        touch "$logs/$job.log" "$logs/$job.results"
        grep -vxFf <(cut -d' ' -f1 "$logs/$job.results") "$logs/$job.names" | sed "s/^/$job /" >>"$logs/not_run" || true
        sed -nE "s/^(.*) FAILED$/$job \1/p; s/^(.*) untold$/$job \1, which another run tells the reason of/p" \
            "$logs/$job.results" >>"$logs/failed"
        echo "$job $(wc -l <"$logs/$job.names") $(grep -c ' ok$' "$logs/$job.results")" \
            "$(grep -cE ' (FAILED|untold)$' "$logs/$job.results") $(grep -c ' ignored$' "$logs/$job.results")"
    done <"$logs/jobs" | sed -E 's/^of_(.*)_. /operators:\1 /' | awk '
        { if (!($1 in all)) order[++n] = $1; all[$1] += $2; ok[$1] += $3; bad[$1] += $4; skipped[$1] += $5 }
        END { for (i = 1; i <= n; i++) { k = order[i]; a += all[k]; o += ok[k]; b += bad[k]; s += skipped[k]
                printf "%-22s %6d tests %6d passed %4d failed %4d ignored %6d not run\n", k, all[k], ok[k], bad[k], skipped[k], all[k] - ok[k] - bad[k] - skipped[k] }
              printf "%-22s %6d tests %6d passed %4d failed %4d ignored %6d not run\n", "all", a, o, b, s, a - o - b - s }' |
        tee -a "$logs/report"
    for file in mistakes crashed; do
        if [ -s "$logs/$file" ]; then failed=1; cat "$logs/$file"; fi
    done
    if [ -s "$logs/failed" ]; then
        failed=1
        cat "$logs/failed"
        # What failed tests say comes before the list of their names.
        cut -d' ' -f1 "$logs/failed" | sort -u | while read -r job; do
            sed -n '/^failures:/,/^failures:$/p; /^what failed, by cause:/,$p' "$logs/$job.log" | head -60
        done
    fi
    if [ -s "$logs/not_run" ]; then
        failed=1
        echo "$(wc -l <"$logs/not_run") tests were not run; $logs/not_run names them, and another run goes on with them"
    fi
    return $failed
}

speed() {
    local failed=0
    folder=$(cd "$folder" && pwd)
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
        for executor in cuda decode fusion cublaslt optim liger unsloth llmc tf32 flash flash_tf32 fp8 cudnn cudnn_tf32; do
            local dtype=${DTYPE:-f32} of=consistency::$executor
            # Kernels of bf16 are others than those of f32, or there are no others.
            case $tool-$executor in
                # The kernels are the library's: racecheck and initcheck report errors in them, synccheck stops them.
                racecheck-cudnn* | initcheck-cudnn* | synccheck-cudnn*) continue ;;
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
    report) prepared "${@:3}" && tell ;;
    speed) speed ;;
    sanitize) sanitize "${@:3}" ;;
    *) echo "build, run, report, speed or sanitize, not '$action'" >&2; exit 2 ;;
esac
