#!/usr/bin/env python3
"""What one more composite operator costs the suite: seconds of its generated tests, KiB of its snapshots, seconds of a build.

    python3 benches/composite_cost.py [--sample 30] [--seed 1] [--build] [--binary target/debug/deps/generated-...]

Runs the generated tests of composites of the library, one operator at a time on one thread, and prints medians and sums.
Times are CPU time of the process (user and system), without that of a run that selects no test, so that other work on the
machine hardly counts. Sources of device kernels are compiled in part, as in the gate (FULGURITE_SOURCES=part), if NVRTC is
found. --build compiles the library of operators with 16 more composites, copies of one, and without them, twice each: what
they cost is the difference. No other crate has more to compile for them. The copies are removed again."""
import argparse, json, os, pathlib, random, re, resource, statistics, subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
GENERATED = ["cargo", "test", "--workspace", "--test", "generated", "--no-run"]
OPERATORS = ["cargo", "build", "-p", "fulgurite-ops"]
# A composite with a gradient of its own, of about as many lines as most have.
COPIED, COPIES = "swiglu", 16


def cpu_seconds(command, environment):
    """CPU seconds of a command, and what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{ran.stdout}{ran.stderr}")
    return spent, ran.stdout


def built():
    """The binary with the generated tests."""
    ran = subprocess.run(GENERATED + ["--message-format=json"], cwd=ROOT, capture_output=True, text=True, check=True)
    messages = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return next(m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == "generated")


def builds():
    """Prints the CPU seconds of builds with and without copies of a composite."""
    folder = ROOT / "ops/src/nn"
    listed, text = (folder / "mod.rs").read_text(), (folder / f"{COPIED}.rs").read_text()
    names = [f"{COPIED}_{i:02}" for i in range(COPIES)]
    spent = {0: [], COPIES: []}
    # What it depends on.
    cpu_seconds(OPERATORS, dict(os.environ))
    try:
        for count in [COPIES, 0] * 2:
            for name in names:
                copy = folder / f"{name}.rs"
                copy.write_text(re.sub(rf"\b{COPIED}", name, text)) if count else copy.unlink()
            more = "".join(f"    {name},\n" for name in names[:count])
            (folder / "mod.rs").write_text(listed.replace(f"    {COPIED},\n", f"    {COPIED},\n{more}"))
            spent[count].append(cpu_seconds(OPERATORS, dict(os.environ))[0])
            print(f"{count} more composites: {spent[count][-1]:.1f} CPU seconds", flush=True)
    finally:
        (folder / "mod.rs").write_text(listed)
        for name in names:
            (folder / f"{name}.rs").unlink(missing_ok=True)
    more, without = (statistics.mean(spent[count]) for count in (COPIES, 0))
    print(f"build: {(more - without) / COPIES:.2f} CPU seconds for one more composite, of {without:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=30, help="how many composites")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--binary", help="the built tests; cargo builds them otherwise")
    parser.add_argument("--build", action="store_true", help="measure builds as well; --sample 0 measures nothing else")
    arguments = parser.parse_args()
    if arguments.build and arguments.sample == 0:
        return builds()
    environment = {**os.environ, "FULGURITE_SOURCES": "part", "INSTA_UPDATE": "no"}
    # Cargo gives tests their package's folder.
    environment["CARGO_MANIFEST_DIR"] = str(ROOT / "tests")
    binary = arguments.binary or built()
    _, listed = cpu_seconds([binary, "--list"], environment)
    tests = [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
    owners = {test.rsplit("::")[0] for test in tests if "::decomposition::" in test and not test.startswith("prims::")}
    owners = {owner for owner in owners if (ROOT / f"tests/snapshots/{owner}.snap").exists()}
    # A filter is a part of a name: that of `softmax` would choose `log_softmax` too.
    alone = sorted(name for name in owners if sum(test.split("::")[0].endswith(name) and test.split("::")[0] != name for test in tests) == 0)
    chosen = random.Random(arguments.seed).sample(alone, min(arguments.sample, len(alone)))
    command = lambda name: [binary, f"{name}::", "--test-threads", "1"]
    base = min(cpu_seconds(command("no_such_operator"), environment)[0] for _ in range(3))
    rows = []
    for name in sorted(chosen):
        spent, printed = cpu_seconds(command(name), environment)
        count = int(re.search(r"(\d+) passed", printed).group(1))
        size = (ROOT / f"tests/snapshots/{name}.snap").stat().st_size / 1024
        rows.append((name, count, spent - base, size))
        print(f"{name:32} {count:4} tests  {spent - base:6.2f} s  {size:6.1f} KiB", flush=True)
    print(f"{len(rows)} of {len(owners)} composites; a run without a test takes {base:.2f} s")
    for label, at in (("tests", 1), ("CPU seconds", 2), ("KiB of snapshots", 3)):
        values = sorted(row[at] for row in rows)
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"{label}: median {middle:.1f}, quarter to quarter {low:.1f} to {high:.1f}, mean {statistics.mean(values):.1f}, most {values[-1]:.1f}")
    if arguments.build:
        builds()


if __name__ == "__main__":
    main()
