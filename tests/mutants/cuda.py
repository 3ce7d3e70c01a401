#!/usr/bin/env python3
"""How many wrong versions of the CUDA sources the generated tests find, on a machine with a GPU. Rust is not needed there.

    tests/device.sh build target/device                                # where Rust is
    python3 tests/mutants/cuda.py target/device/generated              # where the GPU is, from the root of the repository
    python3 tests/mutants/cuda.py BINARY --file topk --every 3         # some of them
    python3 tests/mutants/cuda.py BINARY --count 100 --minutes 3       # so many, spread over all files, as far as the time goes
    python3 tests/mutants/cuda.py BINARY --compile                     # NVRTC alone: which mutants compile
    python3 tests/mutants/cuda.py --list                               # what there is; nothing is run

A mutant is a source with one mistake: another sign, comparison or constant, a dropped term or condition, a removed
barrier, swapped arguments. Each is a process with a folder of its own in FULGURITE_CUDA_SOURCES, which runs the
generated tests of the operators that its file serves, template by template, until one fails. A file serves the
operators that the Rust files which name it declare or have kernels for; of a file of helpers, those of the files that
name the helpers. Kernels whose text is generated (`runtime/cuda/src/generate`) have no file, and no mutants here.

`equivalent_cuda.txt` lists survivors that change nothing, each with its reason: FILE | ORIGINAL LINE | CHANGED LINE | REASON.
The exit code is 1 if any other survives."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Where sources are, from which their names in FULGURITE_CUDA_SOURCES are counted.
FOLDERS = [ROOT / "executors", ROOT / "runtime/cuda/src"]
# The order in which templates are asked: those first that find most.
TEMPLATES = ["consistency", "bounds", "gradient", "decomposition", "layout", "determinism", "in_place", "effects", "errors", "bits"]

OTHER_COMPARISON = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
OTHER_SIGN = {"+": "-", "-": "+", "+=": "-=", "-=": "+=", "*": "+", "/": "*", "%": "/"}


# Parts of the suite that are run for one mutant at most: a shared header serves all operators.
MOST_UNITS = 60


class Mutant:
    """One change of a line."""

    def __init__(self, path, name, number, kind, line, changed):
        self.path, self.name, self.number, self.kind, self.line, self.changed = path, name, number, kind, line, changed

    def text(self):
        lines = self.path.read_text().split("\n")
        lines[self.number - 1] = self.changed
        return "\n".join(lines)

    def key(self):
        return f"{self.name} | {self.line.strip()} | {self.changed.strip()}"

    def __str__(self):
        return f"{self.name}:{self.number} {self.kind} | {self.line.strip()} | {self.changed.strip()}"


def code_of(line):
    """The line with what is no code (comments, texts, directives, declarations of templates) blanked out."""
    if re.match(r"\s*(#|template\b|static_assert|asm\b|:|\"|typedef\b|using\b)", line):
        return ""
    line = re.sub(r"//.*", lambda found: " " * len(found.group()), line)
    line = re.sub(r"\"[^\"]*\"", lambda found: " " * len(found.group()), line)
    return re.sub(r"template <[^>]*>|__launch_bounds__\([^)]*\)", lambda found: " " * len(found.group()), line)


def changes(line):
    """Kind and text of every change of a line."""
    code = code_of(line)

    def put(start, end, text):
        return line[:start] + text + line[end:]

    for found in re.finditer(r"(?<= )(<=|>=|==|!=|<|>)(?= )", code):
        yield "bound", put(*found.span(), OTHER_COMPARISON[found.group()])
    for found in re.finditer(r"(?<=[\w)\]] )(\+=|-=|\+|-|\*|/|%)(?= [\w(&*-])", code):
        yield "sign", put(*found.span(), OTHER_SIGN[found.group()])
    for found in re.finditer(r"(?<=[(=,] )-(?=[\w(])|(?<=return )-(?=[\w(])|(?<=\()-(?=[\w(])", code):
        yield "sign", put(*found.span(), "")
    for found in re.finditer(r"(?<![\w.])(\d+)(u|ULL|LL)?(?![\w.])", code):
        yield "constant", put(*found.span(), f"{int(found.group(1)) + 1}{found.group(2) or ''}")
    for found in re.finditer(r"(?<![\w.])(\d+\.\d+)f?(?![\w.])", code):
        changed = float(found.group(1)) * 1.25 + 0.25
        yield "constant", put(*found.span(), f"{changed}{'f' if found.group().endswith('f') else ''}")
    for found in re.finditer(r" (\+|-|\*) [\w.]+(\[[\w. ]+\])?(?= ?[;,)\]])", code):
        yield "dropped term", put(*found.span(), "")
    for found in re.finditer(r"(?<![\w.])[\w.]+ (\+|\*) (?=[\w(])", code):
        yield "dropped term", put(*found.span(), "")
    for found in re.finditer(r" && [^&|()]+(\([^()]*\))?[^&|()]*(?=\)|;| \?)", code):
        yield "dropped condition", put(*found.span(), "")
    for found in re.finditer(r"(?<= )(&&|\|\|)(?= )", code):
        yield "condition", put(*found.span(), "||" if found.group() == "&&" else "&&")
    for found in re.finditer(r"\bif \((?!constexpr)([^()]|\([^()]*\))+\)", code):
        yield "condition", put(*found.span(), "if (true)")
    for found in re.finditer(r"__sync(threads|warp)\(\);", code):
        yield "barrier", put(*found.span(), "")
    for found in re.finditer(r"\b(?!min|max|if|for|while|return)(\w+)\(([\w.]+), ([\w.]+)\)", code):
        if found.group(2) != found.group(3):
            yield "swapped arguments", put(*found.span(), f"{found.group(1)}({found.group(3)}, {found.group(2)})")
    for found in re.finditer(r" \? ([\w.]+) : ([\w.]+)", code):
        yield "condition", put(*found.span(), f" ? {found.group(2)} : {found.group(1)}")


def sources():
    """Paths of all sources, with their names."""
    for folder in FOLDERS:
        for path in sorted(folder.rglob("*.cu*")):
            yield path, path.relative_to(folder).as_posix()


def mutants_of(path, name):
    found, seen = [], set()
    in_asm = False
    for number, line in enumerate(path.read_text().split("\n"), 1):
        # A statement of assembly goes on until its end.
        in_asm = in_asm or re.search(r"\basm\b", line) is not None
        if not in_asm:
            for kind, changed in changes(line):
                if (number, changed) not in seen and changed != line:
                    seen.add((number, changed))
                    found.append(Mutant(path, name, number, kind, line, changed))
        if in_asm and ";" in re.sub(r"\"[^\"]*\"", "", line):
            in_asm = False
    return found


def spread(mutants, count):
    """`count` of them, as many of each file as there are, at equal distances in it."""
    by_file = defaultdict(list)
    for mutant in mutants:
        by_file[mutant.name].append(mutant)
    shares = {name: 0 for name in by_file}
    while sum(shares.values()) < min(count, len(mutants)):
        for name, own in by_file.items():
            if shares[name] < len(own) and sum(shares.values()) < count:
                shares[name] += 1
    chosen = []
    for name, own in by_file.items():
        step = len(own) / max(shares[name], 1)
        chosen += [own[int((i + 0.5) * step)] for i in range(shares[name])]
    return chosen


def declared(path):
    """Pairs of operator and executor that a Rust file has kernels for, as far as names tell: several spellings of each operator."""
    text = path.read_text()
    executor = path.relative_to(FOLDERS[0]).parts[0]
    pairs = [(f"{executor}::{name}", executor) for name in re.findall(r"^pub mod (\w+) \{", text, re.MULTILINE)]
    for name, by in re.findall(r"\b([a-z]\w*)_by_(cuda|cublaslt|decode|tf32|flash|liger|llmc|optim)\b", text):
        pairs += [(spelling, by) for spelling in (f"prims::{name}", name)]
    return pairs


def served(name, known):
    """Pairs of operator and executor that tests exist for and that the source may decide about."""
    rust = {path: path.read_text() for path in sorted(FOLDERS[0].rglob("*.rs"))}
    file = name.rsplit("/", 1)[-1]
    naming = [path for path, text in rust.items() if f'"{file}"' in text or f'/{file}"' in text] if not name.startswith("fulgurite/") else list(rust)
    pairs = [pair for path in naming for pair in declared(path)]
    if not any(pair in known for pair in pairs):
        stems = {path.stem for path in naming}
        helped = [path for path, text in rust.items() if any(f"{stem}::" in text for stem in stems)]
        pairs = [pair for path in helped for pair in declared(path)]
    return sorted({pair for pair in pairs if pair in known})


class Runner:
    """Runs parts of the suite with sources of their own."""

    def __init__(self, binary, cache, limit, deadline):
        self.binary, self.cache, self.limit, self.deadline = str(Path(binary).resolve()), cache, limit, deadline
        self.names = [line.split(": ")[0] for line in self.start("--list")[1].split("\n") if line.endswith(": test")]
        self.known = set(re.findall(r"^(\S+)::(?:consistency|sources)::(\w+)", "\n".join(self.names), re.MULTILINE))
        self.lock, self.good = threading.Lock(), {}

    def start(self, *arguments, folder=None):
        """The exit code, None if it took too long, and what was said."""
        environment = dict(os.environ, FULGURITE_CACHE=self.cache, FULGURITE_REQUIRE_NVRTC="1", FULGURITE_TUNE="0")
        environment.update({"INSTA_UPDATE": "no", "RUST_BACKTRACE": "0"})
        environment.pop("FULGURITE_CUDA_SOURCES", None)
        if folder:
            environment["FULGURITE_CUDA_SOURCES"] = folder
        # Paths of golden vectors and snapshots are those of the crate.
        process = subprocess.Popen([self.binary, *arguments], cwd=ROOT / "tests", env=environment, text=True, errors="replace",
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            output, _ = process.communicate(timeout=max(0, min(self.limit, self.deadline - time.time())))
            return process.returncode, output
        except subprocess.TimeoutExpired:
            process.kill()
            return None, process.communicate()[0]

    def units(self, served, compile_only):
        """Prefixes of test names to run one after the other, of pairs of operator and executor."""
        units = []
        for operator, executor in served:
            if compile_only:
                units.append((0, f"{operator}::sources::{executor}"))
                continue
            own = [name for name in self.names if name.startswith(f"{operator}::") and f"::{executor}" in name]
            for rank, template in enumerate(TEMPLATES):
                prefix = f"{operator}::{template}::{executor}"
                of_template = [name for name in own if name == prefix or name.startswith(prefix + "::")]
                if template == "consistency" and f"{prefix}::f32" in of_template and len(of_template) > 1:
                    units.append((-1, f"{prefix}::f32"))
                if of_template:
                    units.append((rank, prefix))
        return [unit for _, unit in sorted(units, key=lambda pair: pair[0])][:MOST_UNITS]

    def passes(self, unit):
        """Whether a part of the suite passes without a mutant, in half the time that a mutant has; looked at once, after its
        kernels are in the cache."""
        with self.lock:
            known = self.good.get(unit)
        if known is None:
            self.start(unit)
            begin = time.time()
            known = self.start(unit)[0] == 0 and time.time() - begin <= self.limit / 2
            with self.lock:
                self.good[unit] = known
        return known

    def fate(self, mutant, units):
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / mutant.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(mutant.text())
            for unit in units:
                code, output = self.start(unit, folder=folder)
                if time.time() > self.deadline:
                    return "not run", ""
                if "does not compile for" in output:
                    return "does not compile", unit
                if code == 0:
                    continue
                # What is slow, crashes or fails without a mutant as well says nothing of this one.
                if not self.passes(unit):
                    continue
                if code is None:
                    return "never ends", unit
                if code < 0 or "test result:" not in output:
                    return "crashed", unit
                return "killed", unit
        return "survived", ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", nargs="?", help="the test binary `generated`")
    parser.add_argument("--file", default="", help="sources whose names contain this")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--count", type=int, help="at most so many, spread over the files")
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--limit", type=float, default=60, help="seconds that a part of the suite may take")
    parser.add_argument("--cache", help="where compiled kernels are kept; a fresh folder otherwise")
    parser.add_argument("--compile", action="store_true", help="compile only")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    start = time.time()
    everything = [mutant for path, name in sources() for mutant in mutants_of(path, name)]
    files = [name for _, name in sources() if arguments.file in name]
    mutants = [mutant for mutant in everything if mutant.name in files][:: arguments.every]
    if arguments.count:
        mutants = spread(mutants, arguments.count)
    if arguments.list:
        print("\n".join(map(str, mutants)))
        print(f"{len(mutants)} mutants of {len(files)} files")
        return 0
    if not arguments.binary:
        parser.error("which test binary?")
    fresh = tempfile.mkdtemp(prefix="fulgurite-mutants-")
    try:
        deadline = start + 60 * arguments.minutes
        runner = Runner(arguments.binary, arguments.cache or fresh, arguments.limit, deadline)
        return search(arguments, runner, mutants, everything, start)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def search(arguments, runner, mutants, all_mutants, start):
    names = sorted({mutant.name for mutant in mutants})
    equivalent = (Path(__file__).parent / "equivalent_cuda.txt").read_text()
    units = {name: runner.units(served(name, runner.known), arguments.compile) for name in names}
    counts, by_file = Counter(), defaultdict(Counter)
    keys = Counter(mutant.key() for mutant in all_mutants)
    entries = [line.rsplit(" | ", 1)[0] for line in equivalent.splitlines() if line and not line.startswith("#")]
    # An equal change in two places of a file is one entry for neither.
    unclear = [entry for entry in entries if keys[entry] != 1]
    if unclear:
        print("equivalent_cuda.txt has what fits no mutant, or several:\n  " + "\n  ".join(unclear))

    def listed(mutant):
        return mutant.key() in entries and keys[mutant.key()] == 1

    def one(mutant):
        if not units[mutant.name]:
            return mutant, "without a test", ""
        if time.time() > runner.deadline:
            return mutant, "not run", ""
        return mutant, *runner.fate(mutant, units[mutant.name])

    with ThreadPoolExecutor(arguments.jobs) as pool:
        for done in as_completed([pool.submit(one, mutant) for mutant in mutants]):
            mutant, fate, unit = done.result()
            if fate == "survived" and arguments.compile:
                fate = "compiles"
            elif fate == "survived" and listed(mutant):
                fate = "equivalent"
            counts[fate] += 1
            by_file[mutant.name][fate] += 1
            if fate not in ("killed", "equivalent", "compiles", "does not compile", "not run"):
                print(f"{fate:<16} {mutant} [{unit}]", flush=True)
    for name in names:
        print(f"{name}: " + ", ".join(f"{n} {fate}" for fate, n in by_file[name].most_common()))
    failing = sorted(unit for unit, good in runner.good.items() if not good)
    if failing:
        print(f"fails without a mutant, and says nothing of one: {', '.join(failing)}")
    if arguments.compile:
        print(f"{len(mutants)} mutants in {(time.time() - start) / 60:.1f} min: " + ", ".join(f"{n} {f}" for f, n in counts.items()))
        return 0
    noticed = counts["killed"] + counts["crashed"] + counts["never ends"]
    judged = noticed + counts["survived"]
    print(f"{len(mutants)} mutants in {(time.time() - start) / 60:.1f} min: {counts['killed']} killed, {counts['crashed']} crashed, "
          f"{counts['never ends']} never end, {counts['survived']} survived, {counts['equivalent']} change nothing, "
          f"{counts['does not compile']} do not compile, {counts['without a test']} without a test, {counts['not run']} not run: "
          f"{100 * noticed / max(judged, 1):.1f} % of those that compile and change something are noticed")
    return 1 if counts["survived"] or unclear else 0


if __name__ == "__main__":
    sys.exit(main())
