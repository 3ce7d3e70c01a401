#!/usr/bin/env bash
# Training on all GPUs of a machine that has no Rust: whether it is right, and how long it takes. Each of the two parts
# is a call of at most MOST seconds (570).
#   benches/many_gpus.sh build FOLDER         where Rust is: puts the command and `collectives`, built for release
#                                             (PROFILE), into FOLDER
#   benches/many_gpus.sh correct FOLDER [N]   on N GPUs, all that nvidia-smi lists otherwise: losses of ten steps by
#                                             every strategy on 1, 2, 4, 8 as on one, the same bits from run to run,
#                                             ranks that are killed, checkpoints that other numbers of ranks go on from
#   benches/many_gpus.sh figures FOLDER [N]   milliseconds and memory of training steps, and collectives of 1 KiB to
#                                             1 GiB, beside PyTorch's DDP, FSDP2 and NCCL (benches/peers/ranks_torch.py)
#   benches/many_gpus.sh predict FOLDER [N]   anywhere: what the model of time says of the rows of `figures` on N (8)
#                                             H200, as FOLDER/predict.md and .json; ONE_GPT2, ONE_TINYLLAMA and
#                                             ONE_LLAMA8B are milliseconds of a step on one
# A call prints a line for each check or row as it ends, then a table, and writes FOLDER/PART.md and FOLDER/PART.jsonl.
# The exit code is 1 if something is wrong, 3 if nothing is and something was not run, for want of time or otherwise;
# the table names it. Another call of the same part goes on with what was not run: what was stays in FOLDER/PART, for
# the same program, N and script. Without a GPU, or with DEVICE=cpu, ranks are processes that share the processors
# (two unless N is given), models are small, and figures try the script alone.
#   FAULT=NAME      has the check NAME run with another learning rate, so that it must be found wrong
#   PYTHON          the interpreter with PyTorch (python3)
#   ONLY=PATTERN    runs checks or rows whose names the extended regular expression matches
#   LONGEST         the most seconds of one run (180, of figures 300)
set -euo pipefail
export LC_ALL=C
root=$(cd "$(dirname "$0")/.." && pwd)
usage() { sed -n '/^set -/q; 2,$s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 2 ] && [ $# -le 3 ] || usage
part=$1 folder=$2
begun=$SECONDS most=${MOST:-570}
# Multicast of NVLink stays off, in NCCL, PyTorch and NVSHMEM.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1

# How far losses may be from those of one rank, in parts of them; how many steps; sequences of all ranks together.
close=1e-5 steps=10 sequences=8
# With a rate of 1e-3, without warmup, the loss of GPT-2 mini goes from 4.0 to 6.3 in its eighth step, and there losses of
# one rank that adds its gradients in another order differ by 1.8e-4 (benches/RESULTS.md). The other rates are for FAULT:
# losses that are too far off, and bits that differ.
rate=3e-4 faulty_rate=3.03e-4 next_rate=3.000003e-4
# The longest that one run may take, in seconds.
longest=${LONGEST:-180}

# The processes that the process with an id has started.
started_by() {
    local stat line
    for stat in /proc/[0-9]*/stat; do
        # After the name in brackets come the state and the parent's id.
        { read -r line <"$stat"; } 2>/dev/null || continue
        if [[ $line =~ ^([0-9]+)\ .*\)\ .\ ([0-9]+)\  ]] && [ "${BASH_REMATCH[2]}" = "$1" ]; then
            echo "${BASH_REMATCH[1]}"
        fi
    done
}

# The process of a rank that the launcher with an id has started.
process_of() {
    local pid
    for pid in $(started_by "$1"); do
        if { tr '\0' '\n' <"/proc/$pid/environ"; } 2>/dev/null | grep -qx "RANK=$2"; then
            echo "$pid"
            return
        fi
    done
    return 1
}

# An interruption ends all that this script has started: `timeout` has its command in a group of its own.
interrupted() {
    trap '' INT TERM HUP
    end_below $$
    echo "interrupted; another call goes on with what was not run" >&2
    exit 130
}
end_below() {
    local pid
    for pid in $(started_by "$1"); do
        end_below "$pid"
        kill -TERM "$pid" 2>/dev/null || true
    done
}

# How many lines of a part's table ($1) are what they should be ($2), are not ($3) and were not run, and those by name.
counted() {
    awk -F'\t' -v right="$2" -v wrong="$3" '
        { count[$2]++ }
        $2 != "ok" { named = named sprintf("- %s: %s: %s\n", $1, $2 == "wrong" ? wrong : "not run", $3) }
        END { printf "%d of %d %s, %d %s, %d not run.\n%s", count["ok"], NR, right, count["wrong"], wrong,
                count["not_run"], named }' "$1"
    [ -z "${ONLY:-}" ] || echo "- what ONLY=$ONLY does not match was not asked for"
    [ "$ranks" -ge 8 ] || echo "- more than $ranks ranks were not run: there are no more, or no more were asked for"
}

left() { echo $((most - (SECONDS - begun))); }
# The seconds that a run may take which begins now.
most_of_one() { echo $(($(left) < longest ? $(left) : longest)); }

build() {
    local profile=${PROFILE:-release} made
    mkdir -p "$folder"
    (cd "$root" && cargo build --profile "$profile" -p fulgurite-command -p fulgurite-benches --bins)
    made=$root/target/$([ "$profile" = dev ] && echo debug || echo "$profile")
    for name in fulgurite collectives; do
        cp "$made/$name" "$folder/$name"
        strip "$folder/$name"
    done
    git -C "$root" describe --always --dirty >"$folder/commit"
    ls -l "$folder"
}

# What both parts need: the cards, the number of ranks, and a folder that has what earlier calls of this part did.
prepare() {
    local asked=${1:-} seen=() key
    folder=$(cd "$folder" && pwd)
    program=$folder/fulgurite
    [ -x "$program" ] || { echo "there is no program '$program': many_gpus.sh build makes it" >&2; exit 2; }
    if [ "${DEVICE:-}" != cpu ]; then
        mapfile -t seen < <(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null || true)
        # Those that the caller gives this script, as others use the rest.
        [ ${#seen[@]} = 0 ] || [ -z "${CUDA_VISIBLE_DEVICES:-}" ] || IFS=, read -ra seen <<<"$CUDA_VISIBLE_DEVICES"
    fi
    device=cuda
    [ ${#seen[@]} -gt 0 ] || device=cpu
    [ "${DEVICE:-$device}" = "$device" ] || { echo "no GPU is seen" >&2; exit 2; }
    ranks=${asked:-${#seen[@]}}
    [[ $ranks =~ ^[0-9]+$ ]] || { echo "the number of GPUs is '$ranks'" >&2; exit 2; }
    if [ "$device" = cpu ]; then
        ranks=${asked:-2}
    elif [ "$ranks" -gt ${#seen[@]} ]; then
        echo "$ranks GPUs are asked for, and ${#seen[@]} are seen" >&2
        exit 2
    fi
    # Batches, heads and layers are divided by 1, 2, 4 and 8.
    local given=$ranks
    for number in 8 4 2 1; do
        [ "$ranks" -lt "$number" ] || { ranks=$number; break; }
    done
    [ "$given" = "$ranks" ] || echo "note: $ranks of $given ranks are used: 1, 2, 4 or 8"
    [ "$ranks" -ge 1 ] || { echo "expected one rank at least" >&2; exit 2; }
    cards=("${seen[@]:0:$ranks}")
    numbers=()
    for number in 1 2 4 8; do [ "$number" -gt "$ranks" ] || numbers+=("$number"); done
    out=$folder/$part
    mkdir -p "$out/results" "$out/runs"
    exec 8>"$out/lock"
    flock -n 8 || { echo "another call of '$part' is at work in '$folder'" >&2; exit 2; }
    # Only of figures: what else makes them.
    key=$({ cat "$program" "$0"; [ "$part" != figures ] || cat "$folder/collectives" "$root"/benches/peers/*.py; } \
        2>/dev/null | sha256sum) || true
    key="$key $device $ranks ${FAULT:-}"
    if [ "$(cat "$out/key" 2>/dev/null)" != "$key" ]; then
        rm -rf "$out/results" "$out/runs"
        mkdir -p "$out/results" "$out/runs"
        echo "$key" >"$out/key"
    fi
    rm -f "$out"/results/*.not_run
    if [ "$device" = cuda ]; then
        machine=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort | uniq -c | sed 's/^ *//' | paste -sd';')
    else
        machine="$(nproc --all) processors, ranks as processes of the host"
    fi
    machine="$machine; program $("$program" --version) $(cat "$folder/commit" 2>/dev/null || echo 'of an unknown commit')"
    echo "$part on $ranks ranks of $device: $machine"
}

# Steps by `scale`, and collectives by the numbers of its model, which are in rates/src/scaling.rs.
predict() {
    local ranks=${1:-8} program=$folder/fulgurite key model size batch context rest strategy one words n
    # What one H200 took (benches/RESULTS.md); the third was not measured, and is as many times as long as its bytes and
    # operations say as the second one is.
    local -A ones=([gpt2]=${ONE_GPT2:-29.33} [tinyllama]=${ONE_TINYLLAMA:-116.3} [llama8b]=${ONE_LLAMA8B:-491.3})
    device=cuda
    {
        models | while read -r key model size batch context _ rest; do
            for strategy in ddp zero2 zero3; do
                if [ "$key" = llama8b ] && [ "$strategy" != zero3 ]; then continue; fi
                one=${ones[$key]}
                words=(scale "$model" --size "$size" --batch "$batch" --context "$context" --autocast bf16 --strategy "$strategy")
                [ "$model" != gpt2 ] || words+=(--tokenizer gpt2)
                [ "$rest" = - ] || words+=(--activation-checkpointing "$rest")
                words+=(--step-ms "$one" --ranks "$(for ((n = 1; n <= ranks; n *= 2)); do echo "$n"; done | paste -sd,)")
                "$program" "${words[@]}" | awk -v key="$key" -v strategy="$strategy" -v words="${words[*]}" '
                    # ranks, ms, scaling and its sign, computing, moving, MB, GiB
                    NR > 1 { if ($1 == 1 && strategy != "ddp" && key != "llama8b") next
                        printf "{\"row\": \"%s-%s\", \"ranks\": %d, \"step_ms\": %s, \"scaling_percent\": %s, \"moving_ms\": %s, \"sent_mb\": %s, \"plan_gib\": %s, \"command\": \"fulgurite %s\"}\n",
                            key, $1 == 1 ? "one" : strategy, $1, $2, $3, $6, $7, $8, words }'
            done
        done
        # Bytes on the links, rounds, and what is added: the parts of all ranks are read and their sum is written.
        awk -v n="$ranks" 'BEGIN { for (b = 1024; b <= 2^30; b *= 4) for (pair = 0; pair < 2; pair++) {
            sent = 2 * (n - 1) / n * b; s = sent / 383e9 + (pair ? 2 : 1.5) * 23e-6 + b * (n + 1) / n / 4.8e12
            printf "{\"collective\": \"%s\", \"ranks\": %d, \"bytes\": %d, \"us\": %.1f, \"gb_s\": %.2f}\n",
                pair ? "all_gather, reduce_scatter" : "all_reduce", n, b, s * 1e6, sent / s / 1e9 } }'
    } >"$folder/predict.lines"
    {
        echo '{'
        echo "\"what\": \"the model of time before any run\", \"commit\": \"$(cat "$folder/commit")\","
        echo '"rows": ['
        sed '$!s/$/,/' "$folder/predict.lines"
        echo ']'
        echo '}'
    } >"$folder/predict.json"
    {
        echo '| row | ranks | step, ms | scaling | moves, ms | a rank sends, MB | plan, GiB |'
        echo '|---|---|---|---|---|---|---|'
        sed -nE 's/.*"row": "([^"]*)", "ranks": ([0-9]+), "step_ms": ([^,]*), "scaling_percent": ([^,]*), "moving_ms": ([^,]*), "sent_mb": ([^,]*), "plan_gib": ([^,]*),.*/| \1 | \2 | \3 | \4 % | \5 | \6 | \7 |/p' \
            "$folder/predict.lines"
        echo
        echo "| collective on $ranks, KiB of f32 | us | GB/s sent |"
        echo '|---|---|---|'
        sed -nE 's/.*"collective": "([^"]*)".*"bytes": ([0-9]+), "us": ([^,]*), "gb_s": ([^}]*)\}.*/\1\t\2\t\3\t\4/p' "$folder/predict.lines" |
            awk -F'\t' '{ printf "| %s, %d | %s | %s |\n", $1, $2 / 1024, $3, $4 }'
    } | tee "$folder/predict.md"
}

# What is known of a check or row: NAME, one of ok, wrong, not_run; then fields that the part knows.
# Lines of several lanes do not mix: each is one write.
record() {
    local name=$1 verdict=$2
    shift 2
    local text="$name"$'\t'"$verdict" field
    for field in "$@"; do text+=$'\t'"${field//$'\t'/ }"; done
    if [ "$verdict" = not_run ]; then
        echo "$text" >"$out/results/$name.not_run"
    else
        echo "$text" >"$out/results/$name"
    fi
    printf '%4d s  %-8s %s\n' $((SECONDS - begun)) "${verdict/_/ }" "$name: $1"
}

is_known() { [ -e "$out/results/$1" ]; }
wanted() { [[ $1 =~ ${ONLY:-.} ]]; }

# Runs the lines of standard input, `NAME RANKS ...`, by a function that gets their words after the cards of a lane:
# as many at a time as the machine has cards for RANKS each.
in_lanes() {
    local each=$1 lanes=1 by=$2 lane lines
    mapfile -t lines
    [ "$device" = cpu ] || lanes=$((ranks / each))
    for ((lane = 0; lane < lanes; lane++)); do
        (
            # What is started here does not hold the folder, should it outlive this script.
            exec 8>&-
            local i words mine=all
            [ "$device" = cpu ] || mine=$(IFS=,; echo "${cards[*]:lane * each:each}")
            for ((i = lane; i < ${#lines[@]}; i += lanes)); do
                read -ra words <<<"${lines[i]}"
                if is_known "${words[0]}" || ! wanted "${words[0]}"; then continue; fi
                if [ "$(left)" -lt 10 ]; then
                    record "${words[0]}" not_run "no time was left"
                else
                    "$by" "$mine" "${words[@]}" </dev/null
                fi
            done
        ) &
    done
    wait
    # A lane that broke off is no check that passed.
    local line name
    for line in "${lines[@]}"; do
        name=${line%% *}
        ! wanted "$name" || is_known "$name" || [ -e "$out/results/$name.not_run" ] ||
            record "$name" not_run "the script broke off"
    done
}

# ---------------------------------------------------------------------------------------------------------------------
# correct

# Ten steps by the same learning rate, so that runs of fewer steps begin as those of more.
train() {
    local words=(train "$1")
    if [ "$device" = cpu ]; then
        case $1 in
            gpt2) words+=(--size nano --context 16) ;;
            llama) words+=(--size nano --set n_head=8 --set n_query_groups=8 --context 16) ;;
        esac
    else
        case $1 in
            gpt2) words+=(--size mini --context 128) ;;
            llama) words+=(--size mini --set n_head=8 --set n_query_groups=8 --set n_embd=256 --context 128) ;;
        esac
    fi
    # What is measured could choose another kernel in another run.
    words+=(--device "$device" --precision 32-true --choose never --lr "$rate" --warmup 0 --final-lr 1 --sample-tokens 1)
    words+=(--evaluate-batches "$sequences" --log-every 1000)
    echo "${words[@]}"
}

# A run in a folder of its own: its exit code, and in the folder's name with `.losses` the losses by step, with the
# validation loss at the end, and with `.bits` checksums of the checkpoint. The folder itself is removed where all went
# well, unless it is kept.
one_run() {
    local mine=$1 name=$2 keep=$3 code=0 limit
    shift 3
    limit=$(most_of_one)
    # A failure for which the end of the call is to blame is none.
    [ "$mine" = all ] || local -x CUDA_VISIBLE_DEVICES=$mine
    timeout -k 10 "$limit" "$program" "$@" --out "$out/runs/$name" >>"$out/runs/$name.log" 2>&1 || code=$?
    if [ "$code" -ge 124 ] && [ "$limit" -lt "$longest" ]; then return 200; fi
    results_of "$name"
    [ "$code" != 0 ] || [ "$keep" = keep ] || rm -rf "${out:?}/runs/$name"
    return "$code"
}

results_of() {
    local run=$out/runs/$1
    rm -f "$run.losses" "$run.bits"
    {
        tail -n +2 "$run/metrics.csv" | cut -d, -f1,2 | tr , ' '
        sed -nE 's/.*"kind":"validation","loss":([^,}]*).*/validation \1/p' "$run/events.jsonl" | tail -1
    } >"$run.losses" 2>/dev/null || true
    # A checkpoint names the parts of its ranks, and the run of `launch` that wrote it: that name is drawn, and with the
    # checksum of what it is part of it is no state of training.
    if [ -e "$run/checkpoint.safetensors" ]; then
        {
            sed 's/\\"run\\":\\"[0-9a-f]*\\"//; s/"fulgurite_crc32":"[0-9a-f]*"//' \
                "$run/checkpoint.safetensors" | sha256sum
            (cd "$run" && find . -name "checkpoint-$(tail -1 metrics.csv | cut -d, -f1).*-of-*" | sort | xargs -r sha256sum)
        } >"$run.bits"
    fi
}

# The largest difference of the losses of a run from those of another one, in parts of them; `none` where one has not
# so many steps and a validation loss, or something that is no number.
difference() {
    awk -v steps="$3" '
        function number(x) { return x ~ /^-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$/ }
        FNR == 1 { file++ }
        !number($2) { bad = 1 }
        file == 1 { wanted[$1] = $2; order[++n] = $1; next }
        { m++; if (order[m] != $1 || !number(wanted[$1]) || wanted[$1] == 0) { bad = 1; next }
          d = $2 / wanted[$1] - 1; if (d < 0) d = -d; if (d > most) most = d }
        END { if (bad || n != steps + 1 || m != n) print "none"; else printf "%.1e\n", most }' "$1" "$2"
}

# The first step whose loss is more than that of the step before it by a fifth, with both; nothing if there is none.
jump() {
    awk '$1 == "validation" { exit }
        NR > 1 && $2 > 1.2 * last { printf "%s to %s in step %s\n", last, $2, $1; exit }
        { last = $2 }' "$1"
}

# Whether a run has losses that others are compared with: where one has jumped, what ranks round otherwise is a thousand
# times as large.
is_reference() { [ -s "$out/runs/$1.losses" ] && [ -z "$(jump "$out/runs/$1.losses")" ]; }

is_close() { awk -v d="$1" -v most="$close" 'BEGIN { exit !(d != "none" && d + 0 <= most + 0) }'; }

# Why a run of `longest` seconds at most failed: its exit code, and its first error.
failure() {
    case $1 in
        124 | 137) echo "did not end within $longest s" ;;
        *) echo "exit code $1: $(first_error "$2")" ;;
    esac
}

first_error() { grep -hE 'error: ' "$1" | head -1 | cut -c1-160 || true; }

# NAME RANKS REFERENCE WORDS...: a run with losses as those of the run REFERENCE ('-': it is one itself).
check_losses() {
    local mine=$1 name=$2 count=$3 reference=$4 code=0 off started=$SECONDS words
    [ "$name" != "${FAULT:-}" ] || local rate=$faulty_rate
    read -ra words <<<"$(train "$5")"
    shift 5
    if [ "$reference" != - ] && ! is_reference "$reference"; then
        record "$name" not_run "there is no run $reference to compare with"
        return
    fi
    [ "$count" = 1 ] || words+=(--devices "$count")
    one_run "$mine" "$name" no "${words[@]}" --steps "$steps" "$@" || code=$?
    [ "$reference" != - ] || reference=$name
    case $code in
        0) off=$(difference "$out/runs/$reference.losses" "$out/runs/$name.losses" "$steps") ;;
        200) record "$name" not_run "no time was left"; return ;;
        *) record "$name" wrong "$(failure "$code" "$out/runs/$name.log")" "" $((SECONDS - started)); return ;;
    esac
    local jumped
    jumped=$(jump "$out/runs/$name.losses")
    if [ -n "$jumped" ] && [ "$reference" = "$name" ]; then
        record "$name" wrong "the loss goes from $jumped: roundings are not compared there" "" $((SECONDS - started))
    elif [ "$off" != none ] && [ "$reference" = "$name" ]; then
        record "$name" ok "$steps losses, which others are compared with" reference $((SECONDS - started))
    elif is_close "$off"; then
        record "$name" ok "losses off by $off at most" "$off" $((SECONDS - started))
    else
        record "$name" wrong "losses off by $off, expected $close at most" "$off" $((SECONDS - started))
    fi
}

# NAME RANKS FIRST WORDS...: the run FIRST once more, with the same losses and the same checkpoint to the bit.
check_again() {
    local mine=$1 name=$2 count=$3 first=$4 code=0 started=$SECONDS words
    [ "$name" != "${FAULT:-}" ] || local rate=$next_rate
    read -ra words <<<"$(train "$5")"
    shift 5
    if [ ! -s "$out/runs/$first.bits" ]; then
        record "$name" not_run "there is no run $first to compare with"
        return
    fi
    [ "$count" = 1 ] || words+=(--devices "$count")
    one_run "$mine" "$name" no "${words[@]}" --steps "$steps" "$@" || code=$?
    case $code in
        0) same_bits "$name" "$first" "$started" ;;
        200) record "$name" not_run "no time was left" ;;
        *) record "$name" wrong "$(failure "$code" "$out/runs/$name.log")" "" $((SECONDS - started)) ;;
    esac
}

same_bits() {
    local name=$1 first=$2 started=$3 what=() kind
    for kind in losses bits; do
        [ -s "$out/runs/$name.$kind" ] && cmp -s "$out/runs/$first.$kind" "$out/runs/$name.$kind" || what+=("$kind")
    done
    if [ ${#what[@]} = 0 ]; then
        record "$name" ok "the same losses and checkpoint to the bit${4:-}" "" $((SECONDS - started))
    else
        record "$name" wrong "other ${what[*]} than $first${4:-}" "" $((SECONDS - started))
    fi
}

# NAME RANKS MESH WORDS...: a rank is killed after the first checkpoint, another one after the first that the next start
# has saved. The run ends as one that nothing has happened to. One that ends before it is killed is tried with more steps.
check_kills() {
    local mine=$1 name=$2 all=400 again
    [ "$device" != cpu ] || all=40
    for again in 1 2 3; do
        kill_twice "$all" "$@" && return
        all=$((all * 4))
    done
    record "$name" not_run "each of $again runs ended before two ranks were killed"
}

kill_twice() {
    local all=$1 mine=$2 name=$3 count=$4 code=0 started=$SECONDS words launcher log kill victim limit again
    local mesh=${5/_/ } model=$6 every=$(($1 / 20))
    shift 6
    read -ra words <<<"$(train "$model")"
    words=(launch --ranks "$count" --mesh "$mesh" --restarts 3 -- "${words[@]}" --save-every "$every" "$@")
    one_run "$mine" "$name-whole" no "${words[@]}" --steps "$all" || code=$?
    case $code in
        0) ;;
        200) record "$name" not_run "no time was left"; return ;;
        *) record "$name" wrong "$(failure "$code" "$out/runs/$name-whole.log")" "" $((SECONDS - started)); return ;;
    esac
    [ "$name" != "${FAULT:-}" ] || words=("${words[@]/#$rate/$next_rate}")
    log=$out/runs/$name.log
    rm -rf "${out:?}/runs/$name"
    : >"$log"
    [ "$mine" = all ] || local -x CUDA_VISIBLE_DEVICES=$mine
    limit=$((SECONDS + longest))
    "$program" "${words[@]}" --steps "$all" --out "$out/runs/$name" >>"$log" 2>&1 &
    launcher=$!
    for kill in 1 2; do
        # Of this start: an older checkpoint is there already.
        until [ "$(grep -c 'starting again' "$log" || true)" -ge $((kill - 1)) ]; do
            goes_on "$launcher" "$limit" || break 2
            sleep 0.02
        done
        touch "$out/runs/$name.mark"
        # Rank 1, then the last one.
        until victim=$(process_of "$launcher" $((kill == 1 ? (count > 1) : count - 1))); do
            goes_on "$launcher" "$limit" || break 2
            sleep 0.02
        done
        until [ "$out/runs/$name/checkpoint.safetensors" -nt "$out/runs/$name.mark" ]; do
            goes_on "$launcher" "$limit" || break 2
            sleep 0.02
        done
        kill -KILL "$victim" 2>/dev/null || break
    done
    while goes_on "$launcher" "$limit"; do sleep 0.1; done
    if kill -TERM "$launcher" 2>/dev/null; then
        sleep 10
        kill -KILL "$launcher" 2>/dev/null || true
    fi
    wait "$launcher" || code=$?
    results_of "$name"
    again=$(grep -c 'starting again' "$log" || true)
    if [ "$code" != 0 ]; then
        if [ "$(left)" -lt 1 ]; then
            record "$name" not_run "no time was left"
        else
            record "$name" wrong "$(failure "$code" "$log")" "" $((SECONDS - started))
        fi
    elif [ "$again" -lt 2 ]; then
        return 1
    elif ! awk -v all="$all" '$1 != "validation" && $1 != NR { bad = 1 } END { exit bad || NR != all + 1 }' \
        "$out/runs/$name.losses"; then
        record "$name" wrong "steps are missing, or are there twice" "" $((SECONDS - started))
    else
        same_bits "$name" "$name-whole" "$started" ", after $again kills in $all steps"
        rm -rf "${out:?}/runs/$name"
    fi
}

# Whether a process goes on and may.
goes_on() { kill -0 "$1" 2>/dev/null && [ "$SECONDS" -lt "$2" ] && [ "$(left)" -gt 0 ]; }

# NAME RANKS REFERENCE MODEL FIRST THEN LAST: five steps by the strategy FIRST, three by THEN on half as many ranks, two
# by LAST on all again; losses are those of the run REFERENCE, which never stopped. With 'same' for THEN the same ranks
# go on at once, and bits are compared.
check_resumed() {
    local mine=$1 name=$2 count=$3 reference=$4 code=0 started=$SECONDS words off at go
    [ "$name" != "${FAULT:-}" ] || local rate=$faulty_rate
    read -ra words <<<"$(train "$5")"
    local first=$6 then=$7 last=$8 stages
    if ! is_reference "$reference"; then
        record "$name" not_run "there is no run $reference to compare with"
        return
    fi
    stages=("5 $count $first" "8 $((count / 2)) $then" "$steps $count $last")
    [ "$then" != same ] || stages=("5 $count $first" "$steps $count $last")
    rm -rf "${out:?}/runs/$name"
    for at in "${!stages[@]}"; do
        read -r until on strategy <<<"${stages[at]}"
        # Layers in parts: all ranks have the same batch.
        local batch=$((sequences / on))
        case $strategy in *_parallel) batch=$sequences ;; esac
        # One rank has no strategy.
        go=(--steps "$until" --batch "$batch")
        [ "$on" = 1 ] || go+=(--devices "$on" --strategy "$strategy")
        [ "$at" = 0 ] || go+=(--resume)
        one_run "$mine" "$name" keep "${words[@]}" "${go[@]}" || code=$?
        [ "$code" = 0 ] || break
    done
    case $code in
        0) off=$(difference "$out/runs/$reference.losses" "$out/runs/$name.losses" "$steps") ;;
        200) record "$name" not_run "no time was left"; return ;;
        *) record "$name" wrong "$(failure "$code" "$out/runs/$name.log")" "" $((SECONDS - started)); return ;;
    esac
    if [ "$(grep -c '^resumed at step' "$out/runs/$name.log" || true)" != $((${#stages[@]} - 1)) ]; then
        record "$name" wrong "did not go on from its checkpoint" "" $((SECONDS - started))
    elif [ "$then" = same ]; then
        same_bits "$name" "$reference" "$started" ", after a stop"
    elif is_close "$off"; then
        record "$name" ok "losses off by $off at most" "$off" $((SECONDS - started))
    else
        record "$name" wrong "losses off by $off, expected $close at most" "$off" $((SECONDS - started))
    fi
    rm -rf "${out:?}/runs/$name"
}

# Runs on so many ranks: NAME RANKS REFERENCE MODEL WORDS...
runs_on() {
    local n=$1 batch=$((sequences / $1)) s t
    if [ "$n" = 1 ]; then
        echo "gpt2-x1 1 - gpt2 --batch $sequences --dropout 0.1"
        echo "gpt2-accumulated-x1 1 - gpt2 --batch $((sequences / 2)) --accumulate 2"
        echo "llama-x1 1 - llama --batch $sequences"
        return
    fi
    for s in ddp zero2 zero3; do
        echo "llama-$s-x$n $n llama-x1 llama --batch $batch --strategy $s"
        echo "gpt2-$s-x$n $n gpt2-x1 gpt2 --batch $batch --dropout 0.1 --strategy $s"
    done
    for s in tensor_parallel sequence_parallel; do
        echo "llama-$s-x$n $n llama-x1 llama --batch $sequences --strategy $s"
        # Groups of ranks that divide layers, as the ranks of ddp: data=N/T tensor=T.
        for t in 2 4; do
            [ "$t" -ge "$n" ] ||
                echo "llama-$s-of-$t-x$n $n llama-x1 llama --batch $((sequences * t / n)) --strategy $s --tensor $t"
        done
    done
    # What the command has of FSDP's settings: exchanges of single tensors, and blocks that are computed again.
    echo "llama-zero2-no-buckets-x$n $n llama-x1 llama --batch $batch --strategy zero2 --bucket-mib 0"
    echo "llama-zero3-no-buckets-x$n $n llama-x1 llama --batch $batch --strategy zero3 --bucket-mib 0"
    echo "llama-zero3-blocks-x$n $n llama-x1 llama --batch $batch --strategy zero3 --activation-checkpointing blocks"
    echo "llama-zero3-full-x$n $n llama-x1 llama --batch $batch --strategy zero3 --state-dict full"
    # Gradients of two batches; with 8 ranks a batch of one sequence has to be halved.
    [ "$n" -gt $((sequences / 2)) ] || for s in ddp zero3; do
        echo "gpt2-accumulated-$s-x$n $n gpt2-accumulated-x1 gpt2 --batch $((batch / 2)) --accumulate 2 --strategy $s"
    done
}

correct() {
    local n
    runs_on 1 | in_lanes 1 check_losses
    for ((n = ranks; n > 1; n /= 2)); do runs_on "$n" | in_lanes "$n" check_losses; done
    n=$ranks
    {
        echo "kills-ddp-x$n $n data=$n gpt2 --batch $((sequences / n)) --strategy ddp"
        [ "$n" = 1 ] || echo "kills-zero3-x$n $n data=$n llama --batch $((sequences / n)) --strategy zero3"
        [ "$n" -lt 4 ] || echo "kills-tensor_parallel-of-2-x$n $n data=$((n / 2))_tensor=2 llama" \
            "--batch $((sequences * 2 / n)) --strategy tensor_parallel"
    } | in_lanes "$n" check_kills
    [ "$n" = 1 ] || {
        local h=$((n / 2))
        echo "resumed-ddp-zero3-x$n-x$h $n llama-x1 llama ddp zero3 ddp"
        echo "resumed-zero2-ddp-x$n-x$h $n llama-x1 llama zero2 ddp zero2"
        echo "resumed-zero3-zero2-x$n-x$h $n llama-x1 llama zero3 zero2 zero3"
        echo "resumed-zero3-tensor_parallel-x$n-x$h $n llama-x1 llama zero3 tensor_parallel zero3"
        echo "resumed-tensor_parallel-zero3-x$n-x$h $n llama-x1 llama tensor_parallel zero3 sequence_parallel"
        echo "resumed-same-ddp-x$n $n llama-ddp-x$n llama ddp same ddp"
        echo "resumed-same-zero3-x$n $n llama-zero3-x$n llama zero3 same zero3"
    } | in_lanes "$n" check_resumed
    # Once more, with the largest number of ranks first.
    for ((n = ranks; n >= 1; n /= 2)); do
        runs_on "$n" | awk '{ $3 = $1; $1 = $1 "-again"; print }' | in_lanes "$n" check_again
    done
}

# The verdicts as a table of strategies and numbers of ranks, and what is wrong or was not run.
tell_correct() {
    local all=$out/all wrong missing
    gather >"$all"
    {
        echo "# Is training on $ranks ranks right?"
        echo
        echo "$machine. $(date -u '+%F %H:%M') UTC; benches/many_gpus.sh correct."
        echo "Losses of $steps steps in f32 and the validation loss after them, of $sequences sequences a batch, beside one rank's:"
        echo "the largest difference in parts of the loss, $close at most. Bits: the same losses and checkpoint in a second run."
        echo
        awk -F'\t' -v numbers="${numbers[*]}" '
            function of(name) { sub(/-again$/, "", name); sub(/-x[0-9]+$/, "", name); return name }
            $1 ~ /^(kills|resumed)-/ { next }
            { n = $1; sub(/-again$/, "", n); sub(/.*-x/, "", n); k = of($1); if (!(k in seen)) { seen[k] = 1; order[++count] = k }
              cell = $2 == "ok" ? ($4 == "" ? "same" : $4) : ($2 == "wrong" ? "**wrong**" : "not run")
              if ($1 ~ /-again$/) again[k, n] = cell; else first[k, n] = cell }
            END { many = split(numbers, number, " "); head = "| run |"; rule = "|---|"
                  for (i = 1; i <= many; i++) { head = head " " number[i] ", off | bits |"; rule = rule "---|---|" }
                  print head; print rule
                  for (i = 1; i <= count; i++) { line = "| " order[i] " |"
                      for (j = 1; j <= many; j++) line = line " " first[order[i], number[j]] " | " again[order[i], number[j]] " |"
                      print line } }' "$all"
        echo
        awk -F'\t' '$1 ~ /^(kills|resumed)-/ { if (!n++) { print "| kills, and checkpoints on other ranks | | |"; print "|---|---|---|" }
            printf "| %s | %s | %s |\n", $1, $2 == "wrong" ? "**wrong**" : ($2 == "not_run" ? "not run" : $2), $3 }' "$all"
        echo
        counted "$all" "checks are right" wrong
        if [ "$device" = cpu ]; then echo "- no GPU was used: NCCL, copies between GPUs and graphs were not run"; fi
        echo "- zero1: the command has none, zero2 keeps the same parts without gradients of the whole (docs/src/ranks.md)"
    } | tee "$folder/$part.md"
    awk -F'\t' -v device="$device" '{ gsub(/[\\"]/, ""); printf "{\"check\":\"%s\",\"device\":\"%s\",\"result\":\"%s\",\"said\":\"%s\"", $1, device, $2, $3
        if ($4 ~ /^[0-9]/) printf ",\"off\":%s", $4
        if ($5 != "") printf ",\"seconds\":%s", $5
        print "}" }' "$all" >"$folder/$part.jsonl"
    wrong=$(awk -F'\t' '$2 == "wrong"' "$all" | wc -l)
    missing=$(awk -F'\t' '$2 == "not_run"' "$all" | wc -l)
    echo "wrote $folder/$part.md, $folder/$part.jsonl; logs are in $out/runs"
    [ "$wrong" = 0 ] || return 1
    [ "$missing" = 0 ] || return 3
}

# All results, in the order in which they came.
gather() {
    find "$out/results" -type f -printf '%T@ %p\n' | sort -n | cut -d' ' -f2- | while read -r file; do cat "$file"; done
}

# ---------------------------------------------------------------------------------------------------------------------
# figures

# What is measured: KEY MODEL SIZE BATCH CONTEXT STEPS CHECKPOINTING ('-': none).
models() {
    if [ "$device" = cpu ]; then
        # To try the script. The names of rows are those of GPUs.
        echo "gpt2 gpt2 micro 2 64 7 -"
        echo "tinyllama llama nano 2 64 7 -"
        echo "llama8b llama nano 1 64 7 blocks"
    else
        echo "gpt2 gpt2 124M 16 1024 35 -"
        echo "tinyllama llama TinyLlama-1.1B 4 2048 21 -"
        echo "llama8b llama Llama-3.1-8B 1 4096 7 blocks"
    fi
}

# NAME RANKS WHO STRATEGY KEY MODEL SIZE BATCH CONTEXT STEPS CHECKPOINTING
rows_of() {
    local wanted_key=$1 n=$2 strategy=$3 key rest who
    models | while read -r key rest; do
        [ "$key" = "$wanted_key" ] || continue
        for who in fulgurite pytorch; do
            echo "$key-$strategy-x$n-$who $n $who $strategy $key $rest"
        done
    done
}

measure_row() {
    local mine=$1 name=$2 count=$3 who=$4 strategy=$5
    shift 3
    [ "$mine" = all ] || local -x CUDA_VISIBLE_DEVICES=$mine
    local started=$SECONDS limit code=0 said
    limit=$(most_of_one)
    if [ "$who" = fulgurite ]; then measure_ours "$@" || code=$?; else measure_peer "$@" || code=$?; fi
    if [ "$code" != 0 ]; then
        if [ "$code" -ge 124 ] && [ "$limit" -lt "$longest" ]; then
            record "$name" not_run "no time was left: it was ended after $limit s"
        elif [ "$code" -ge 124 ]; then
            record "$name" wrong "had no figures after $limit s"
        elif [ "$code" = 100 ]; then
            record "$name" not_run "$(cat "$out/runs/$name.why")"
        else
            record "$name" wrong "exit code $code: $(why_of "$out/runs/$name.log")"
        fi
        return
    fi
    # Milliseconds, their quartiles, GiB of a rank, seconds of all of it.
    read -ra said <<<"$(cat "$out/runs/$name.figures")"
    record "$name" ok "${said[0]} ms, ${said[3]} GiB a rank" "${said[@]}" $((SECONDS - started))
}

why_of() {
    local why
    why=$(sed -nE 's/.*"failed": "(.*)".*/\1/p' "$1" | head -1)
    [ -n "$why" ] || why=$(first_error "$1")
    [ -n "$why" ] || why=$(grep . "$1" | tail -1)
    cut -c1-200 <<<"$why"
}

# WHO STRATEGY KEY MODEL SIZE BATCH CONTEXT STEPS CHECKPOINTING, of `name` on `count` ranks within `limit` seconds.
measure_ours() {
    local words=("$program" train "$4" --size "$5" --batch "$6" --context "$7" --device "$device" --precision bf16-mixed)
    local file=$out/runs/$name/bench/bench.json
    [ "$4" != gpt2 ] || words+=(--tokenizer gpt2)
    [ "$9" = - ] || words+=(--activation-checkpointing "$9")
    [ "$count" = 1 ] || words+=(--devices "$count" --strategy "$2")
    words+=(--out "$out/runs/$name")
    # On one GPU a run that fills the caches measures choices; on several nothing is measured.
    if [ "$count" = 1 ] && [ "$device" != cpu ]; then
        timeout -k 10 "$limit" "${words[@]}" --bench 1 >"$out/runs/$name.log" 2>&1 || return
        limit=$(most_of_one)
        [ "$limit" -gt 5 ] || return 124
    fi
    timeout -k 10 "$limit" "${words[@]}" --bench "$8" >"$out/runs/$name.log" 2>&1 || return
    tr -d ' \n' <"$file" | sed -nE 's/.*"median_ms":([^,]*),.*"quartiles_ms":\[([^],]*),([^],]*)\].*"peak_bytes":([0-9]+).*/\1 \2 \3 \4/p' |
        awk '{ printf "%.3f %.3f %.3f %.2f\n", $1, $2, $3, $4 / 2^30 }' >"$out/runs/$name.figures"
    rm -rf "${out:?}/runs/$name"
    [ -s "$out/runs/$name.figures" ]
}

# The same, in PyTorch: the model is compiled as a whole, and each block by itself where FSDP2 divides it.
measure_peer() {
    local mode=torch.compile row strategy='"'$2'"' checkpointing=false
    case $2 in
        one) strategy=null ;;
        zero*) mode='torch.compile of blocks' ;;
    esac
    [ "$9" = - ] || checkpointing=true
    row="{\"name\": \"$name\", \"model\": \"$4\", \"size\": \"$5\", \"batch\": $6, \"context\": $7, \"steps\": $8,"
    row+=" \"devices\": $count, \"strategy\": $strategy, \"checkpointing\": $checkpointing}"
    in_pytorch "$row" "$mode" || return
    grep '^{"figures"' "$out/runs/$name.log" | tail -1 | "$python" -c '
import json, sys
figures = {figure["name"]: figure for figure in json.loads(sys.stdin.read())["figures"]}
step, memory = figures["step"], figures.get("memory", {"median": 0})["median"]
print(*(f"{x:.3f}" for x in (step["median"], *(step["quartiles"] or [step["median"]] * 2))), f"{memory:.2f}")
' >"$out/runs/$name.figures"
}

# ROW MODE: processes of ranks_torch.py on `count` ranks; 100 where there is no PyTorch.
in_pytorch() {
    if ! "$python" -c 'import torch' 2>"$out/runs/$name.log"; then
        echo "'$python' cannot import torch" >"$out/runs/$name.why"
        return 100
    fi
    timeout -k 10 "$limit" "$python" -m torch.distributed.run --standalone --nproc-per-node "$count" \
        "$root/benches/peers/ranks_torch.py" "$1" "$2" >"$out/runs/$name.log" 2>&1
}

# NAME RANKS WHO: collectives of 1 KiB to 1 GiB.
measure_collectives() {
    local mine=$1 name=$2 count=$3 who=$4 started=$SECONDS limit code=0 most_bytes=$((1 << 30)) lines
    [ "$mine" = all ] || local -x CUDA_VISIBLE_DEVICES=$mine
    [ "$device" != cpu ] || most_bytes=$((1 << 16))
    limit=$(most_of_one)
    if [ "$who" = pytorch ]; then
        local row="{\"name\": \"$name\", \"model\": \"collectives\", \"most\": $most_bytes, \"devices\": $count, \"strategy\": \"ddp\"}"
        in_pytorch "$row" 'by themselves' || code=$?
    elif [ ! -x "$folder/collectives" ]; then
        echo "there is no program '$folder/collectives'" >"$out/runs/$name.why"
        code=100
    else
        # By copy engines, where GPUs reach each other, or by NCCL alone.
        local -x FULGURITE_PEERS=1
        [ "$who" = fulgurite ] || FULGURITE_PEERS=0
        timeout -k 10 "$limit" "$program" launch --ranks "$count" -- "$folder/collectives" --device "$device" \
            --most "$most_bytes" >"$out/runs/$name.log" 2>&1 || code=$?
    fi
    grep '^{.*"collective"' "$out/runs/$name.log" >"$out/runs/$name.lines" || true
    lines=$(wc -l <"$out/runs/$name.lines")
    if [ "$code" = 0 ] && [ "$lines" -gt 0 ]; then
        record "$name" ok "$lines sizes" $((SECONDS - started))
    elif [ "$code" = 100 ]; then
        record "$name" not_run "$(cat "$out/runs/$name.why")"
    elif [ "$code" -ge 124 ] && [ "$limit" -lt "$longest" ]; then
        record "$name" not_run "no time was left: it was ended after $limit s, with $lines sizes"
    else
        record "$name" wrong "exit code $code: $(why_of "$out/runs/$name.log")"
    fi
}

figures() {
    local n=$ranks key strategy
    longest=${LONGEST:-300}
    # One GPU alone: as many rows at a time as there are GPUs.
    for key in gpt2 tinyllama; do rows_of "$key" 1 one; done | in_lanes 1 measure_row
    if [ "$n" -gt 1 ]; then
        for key in gpt2 tinyllama; do
            for strategy in ddp zero2 zero3; do rows_of "$key" "$n" "$strategy"; done
        done | in_lanes "$n" measure_row
        {
            echo "collectives-x$n-fulgurite $n fulgurite"
            [ "$device" = cpu ] || echo "collectives-x$n-fulgurite_by_nccl $n fulgurite_by_nccl"
            echo "collectives-x$n-pytorch $n pytorch"
        } | in_lanes "$n" measure_collectives
        # Its weights are drawn on the host, by each rank: it begins late.
        rows_of llama8b "$n" zero3 | in_lanes "$n" measure_row
        rows_of llama8b 1 one | in_lanes 1 measure_row
        # Fewer GPUs, if time is left.
        for ((n = ranks / 2; n > 1; n /= 2)); do
            for key in gpt2 tinyllama; do
                for strategy in ddp zero2 zero3; do rows_of "$key" "$n" "$strategy"; done
            done | in_lanes "$n" measure_row
        done
    fi
}

# Rows with scaling, and what the model of time said of them before any run.
tell_figures() {
    local all=$out/all wrong missing who predicted=$root/benches/predictions/eight_h200.json
    [ "$device" = cuda ] && [ -e "$predicted" ] || predicted=/dev/null
    gather >"$all"
    {
        echo "# Training steps on $ranks ranks"
        echo
        echo "$machine. $(date -u '+%F %H:%M') UTC; benches/many_gpus.sh figures; NCCL_NVLS_ENABLE=0."
        echo "GPT-2 124M B16 T1024, TinyLlama-1.1B B4 T2048, Llama-3.1-8B B1 T4096 with blocks computed again, a batch on each"
        echo "rank, f32 master weights, products in bf16. PyTorch: DDP and torch.compile; FSDP2 and torch.compile of blocks."
        echo "Medians and quartiles in ms; scaling: ms on one GPU over ms on N, by the same program in this table. Predicted:"
        echo "benches/predictions/eight_h200.md, by the model of time before any run."
        [ "$device" = cuda ] || { echo; echo "**Ranks are processes of a host, and models are small: figures say nothing.**"; }
        echo
        echo "| row | ranks | Fulgurite, ms | scaling | GiB | predicted, ms | error | PyTorch, ms | scaling | GiB | PyTorch over ours |"
        echo "|---|---|---|---|---|---|---|---|---|---|---|"
        tr -d ' \n' <"$predicted" | grep -oE '\{"row":"[^}]*\}' | sed -E 's/.*"row":"([^"]*)".*"ranks":([0-9]+).*"step_ms":([0-9.]+).*/P \1-x\2 \3/' |
            cat - "$all" | awk -F'\t' '
                $0 ~ /^P / { split($0, part, " "); predicted[part[2]] = part[3]; next }
                $1 ~ /^collectives/ { next }
                { k = $1; sub(/-(fulgurite|pytorch)$/, "", k); who = $1 ~ /-pytorch$/ ? "p" : "f"
                  if (!(k in seen)) { seen[k] = 1; order[++n] = k }
                  verdict[k, who] = $2
                  if ($2 == "ok") { ms[k, who] = $4; quartiles[k, who] = $5 " to " $6; gib[k, who] = $7 } }
                function one(k) { sub(/-.*/, "", k); return k "-one-x1" }
                function time(k, who) { return (k, who) in ms ? ms[k, who] " (" quartiles[k, who] ")" : \
                    (verdict[k, who] == "wrong" ? "**failed**" : "not run") }
                function scaling(k, who) { return (k, who) in ms && (one(k), who) in ms && k !~ /-x1$/ ? \
                    sprintf("%.1f %%", 100 * ms[one(k), who] / ms[k, who]) : "" }
                END { for (i = 1; i <= n; i++) { k = order[i]; row = k; count = k; sub(/-x[0-9]+$/, "", row); sub(/.*-x/, "", count)
                        off = k in predicted && (k, "f") in ms ? sprintf("%+.1f %%", 100 * (predicted[k] / ms[k, "f"] - 1)) : ""
                        ratio = (k, "f") in ms && (k, "p") in ms ? sprintf("%.2f", ms[k, "p"] / ms[k, "f"]) : ""
                        printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", row, count, time(k, "f"), scaling(k, "f"),
                            gib[k, "f"], predicted[k], off, time(k, "p"), scaling(k, "p"), gib[k, "p"], ratio } }'
        echo
        : >"$out/collectives"
        for who in fulgurite fulgurite_by_nccl pytorch; do
            # Of a program that was ended there are the sizes that it had measured.
            sed "s/^/$who /" "$out/runs/collectives-x$ranks-$who.lines" 2>/dev/null >>"$out/collectives" || true
        done
        sed -E 's/^([a-z_]+) .*"collective": ?"([^"]*)".*/\1\t\2\t&/' "$out/collectives" | awk -F'\t' '
            function field(name, text) { return match(text, "\"" name "\": ?[0-9.eE+-]+") ? substr(text, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0 : "" }
            { b = field("bytes", $3); k = $2 SUBSEP b; if (!(k in seen)) { seen[k] = 1; order[++n] = k; name[k] = $2; bytes[k] = b }
              us[k, $1] = field("us", $3); gb[k, $1] = field("gb_s", $3) }
            function cell(k, who) { return (k, who) in us ? sprintf("%.1f (%.1f)", us[k, who], gb[k, who]) : "not run" }
            END { if (!n) exit
                print "| collective, KiB of f32 | Fulgurite, us (GB/s sent) | by NCCL alone | PyTorch: NCCL | PyTorch over ours |"; print "|---|---|---|---|---|"
                for (i = 1; i <= n; i++) { k = order[i]
                    ratio = (k, "fulgurite") in us && (k, "pytorch") in us ? sprintf("%.2f", us[k, "pytorch"] / us[k, "fulgurite"]) : ""
                    printf "| %s, %d | %s | %s | %s | %s |\n", name[k], bytes[k] / 1024, cell(k, "fulgurite"), cell(k, "fulgurite_by_nccl"), cell(k, "pytorch"), ratio } }'
        echo
        counted "$all" "rows have figures" failed
        echo "- zero1: the command has none (docs/src/ranks.md)"
    } | tee "$folder/$part.md"
    {
        awk -F'\t' -v device="$device" '$1 !~ /^collectives/ { gsub(/[\\"]/, ""); k = $1; who = k; sub(/.*-/, "", who); n = k; sub(/-[a-z]*$/, "", n)
            row = n; sub(/-x[0-9]+$/, "", row); sub(/.*-x/, "", n)
            printf "{\"row\":\"%s\",\"ranks\":%d,\"who\":\"%s\",\"device\":\"%s\",\"result\":\"%s\"", row, n, who, device, $2
            if ($2 == "ok") printf ",\"step_ms\":%s,\"quartiles_ms\":[%s,%s],\"memory_gib\":%s", $4, $5, $6, $7
            else printf ",\"said\":\"%s\"", $3
            print "}" }' "$all"
        sed -E 's/^([a-z_]+) \{/{"who":"\1",/' "$out/collectives"
    } >"$folder/$part.jsonl"
    wrong=$(awk -F'\t' '$2 == "wrong"' "$all" | wc -l)
    missing=$(awk -F'\t' '$2 == "not_run"' "$all" | wc -l)
    echo "wrote $folder/$part.md, $folder/$part.jsonl; logs are in $out/runs"
    [ "$wrong" = 0 ] || return 1
    [ "$missing" = 0 ] || return 3
}

python=${PYTHON:-${FULGURITE_PYTHON:-python3}}
case $part in
    build) build ;;
    predict)
        folder=$(cd "$folder" && pwd)
        predict "${3:-}"
        ;;
    correct | figures)
        prepare "${3:-}"
        trap interrupted INT TERM HUP
        "$part"
        "tell_$part"
        ;;
    *) usage ;;
esac
