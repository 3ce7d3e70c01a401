"""Times a training step of llm.c's GPT-2 beside ours, in turn, where llm.c's sources and a build of them are at hand.

    python benches/peers/llmc.py LLM.C                    # train_gpt2cu: one GPU, as `make train_gpt2cu` builds it
    python benches/peers/llmc.py LLM.C --cpu              # train_gpt2, whose batch and steps are fixed: B4 T64, 40
    python benches/peers/llmc.py LLM.C --ours 'fulgurite train gpt2 --size 124M --tokenizer gpt2 --batch 4 --bench 40 ...'

Says what is missing, and how it is made. Prints one line of JSON for each run, and the medians and their ratio at the
end. `--ours` is a command of `train --bench` for the same batch. The flags are those of llm.c's train_gpt2.cu since May 2024. Needs Python alone.
"""

import argparse
import json
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

# `step    3/   40 | loss 4.1 (+nanz)| norm 2.1 (+nanz)| lr 3.00e-04 | 12.34 ms | ...` of train_gpt2cu, and
# `step 3: train loss 4.1 (took 1360.1 ms)` of train_gpt2.
STEP = re.compile(r"^step +(\d+).*?(?:\| *|took )([\d.]+) ms", re.MULTILINE)
DATA = "dev/data/tinyshakespeare/tiny_shakespeare_{part}.bin"


def missing(arguments, program, weights):
    """What is not there, and how it is made."""
    folder = arguments.llmc
    if not folder.is_dir():
        yield f"{folder}: no such folder: git clone https://github.com/karpathy/llm.c"
        return
    if not (folder / program).is_file():
        yield f"{folder / program}: `make {program}` in {folder}"
    if not (folder / weights).is_file():
        kind = "llmc" if arguments.cpu else "llmc-bf16"
        yield f"{folder / weights}: `fulgurite convert GPT2/model.safetensors {folder / weights} --to {kind}`"
    for part in ("train", "val"):
        path = folder / DATA.format(part=part)
        if not path.is_file():
            yield f"{path}: `fulgurite tokenize --out {path.parent}`"
    tokenizer = folder / "gpt2_tokenizer.bin"
    if not tokenizer.is_file():
        yield f"{tokenizer}: `fulgurite tokenize --vocabulary --out FOLDER` makes it"


def theirs(arguments, program, weights):
    """Milliseconds of the steps of one run, without the first ones."""
    command = [f"./{program}"]
    if not arguments.cpu:
        rows, length = arguments.batch, arguments.context
        train, validation = (DATA.format(part=part) for part in ("train", "val"))
        command += ["-e", weights, "-i", train, "-j", validation, "-b", rows, "-t", length, "-d", rows * length]
        command += ["-x", arguments.steps, "-v", 0, "-s", 0, "-l", 3e-4]
    command = [str(part) for part in command]
    ran = subprocess.run(command, cwd=arguments.llmc, capture_output=True, text=True)
    times = [float(ms) for _, ms in STEP.findall(ran.stdout)]
    if ran.returncode or len(times) <= arguments.skip:
        said = f"{ran.stdout[-600:]}{ran.stderr[-600:]}"
        sys.exit(f"{' '.join(command)} ended with {ran.returncode}, {len(times)} steps\n{said}")
    return dict(who="llm.c", program=program, ms=statistics.median(times[arguments.skip :]), steps=len(times))


def ours(command):
    ran = subprocess.run(shlex.split(command), capture_output=True, text=True)
    median = re.search(r"^step: ([\d.]+) ms", ran.stdout, re.MULTILINE)
    if ran.returncode or not median:
        sys.exit(f"{command} ended with {ran.returncode}\n{ran.stdout[-600:]}{ran.stderr[-600:]}")
    return dict(who="fulgurite", ms=float(median.group(1)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("llmc", type=Path, help="the folder of llm.c")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--skip", type=int, default=5, help="first steps of a run that do not count")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ours", help="our command")
    arguments = parser.parse_args()
    program, weights = ("train_gpt2", "gpt2_124M.bin") if arguments.cpu else ("train_gpt2cu", "gpt2_124M_bf16.bin")
    lacking = list(missing(arguments, program, weights))
    if lacking:
        sys.exit("missing:\n  " + "\n  ".join(lacking))
    each = {"llm.c": lambda: theirs(arguments, program, weights)}
    if arguments.ours:
        each["ours"] = lambda: ours(arguments.ours)
    runs = {who: [] for who in each}
    for _ in range(arguments.rounds):
        for who, run in each.items():
            found = run()
            print(json.dumps(found), flush=True)
            runs[who].append(found["ms"])
    medians = {who: statistics.median(times) for who, times in runs.items()}
    if len(medians) == 2:
        medians["llm.c over ours"] = round(medians["llm.c"] / medians["ours"], 3)
    print(json.dumps(medians))


if __name__ == "__main__":
    main()
