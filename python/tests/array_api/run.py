"""Runs `array-api-tests`, the tests of the Python array API standard, over `fulgurite.array_api`.

    git clone --recurse-submodules https://github.com/data-apis/array-api-tests
    python -m pip install numpy pytest hypothesis ndindex
    PYTHONPATH=python python python/tests/array_api/run.py array-api-tests [-k EXPRESSION] [--examples N] [--write]

A test is passed; refused, if `refused.txt` names it and it ends with an exception that says what is not there
(`suite.py` decides); or failed. A failed test makes the exit code 1. `--write` writes the table of
docs/src/conformance.md. Inputs are drawn by Hypothesis from fixed seeds.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[2] / "docs/src/conformance.md"
MARK = "<!-- array_api/run.py writes this -->"
COLUMNS = ("passed", "refused", "failed")


def function_of(name: str) -> str:
    """The function that a test is of: of its parameter where it has one, else of its name."""
    test = name.rpartition("::")[2]
    parameter = re.search(r"\[(.*)\]$", test)
    # `[add(x1, x2)]`, `[acos(x_i > 1) -> NaN]`, `[linalg.eig]`, `[elementwise-acos]`
    found = re.split(r"\(", parameter[1])[0] if parameter else ""
    if name.startswith("test_has_names"):
        found = found.rpartition("-")[2]
    found = re.sub(r"^(linalg|fft)\.", "", found)
    plain = found.isidentifier() and not re.fullmatch(r"dtype\d|None", found)
    return found if plain else test.partition("[")[0].removeprefix("test_")


def table(results: dict) -> str:
    """The counts, and those of each function."""
    rows = collections.defaultdict(collections.Counter)
    for name, found in results.items():
        rows[function_of(name)][found["result"]] += 1
    whole = sum(rows.values(), collections.Counter())
    text = f"{sum(whole.values())} tests, " + ", ".join(f"{whole[column]} {column}" for column in COLUMNS)
    if whole["skipped"]:
        text += f"; {whole['skipped']} are skipped by the suite itself"
    lines = [f"{text}.", "", "| function | passed | refused | failed |", "| --- | --: | --: | --: |"]
    for name in sorted(rows, key=lambda name: (name.startswith("__"), name)):
        counts = " | ".join(str(rows[name][column]) for column in COLUMNS)
        lines.append(f"| `{name}` | {counts} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suite", type=Path, help="a clone of array-api-tests with its submodule")
    parser.add_argument("-k", dest="expression", help="only tests whose names match, as pytest has it")
    parser.add_argument("--examples", type=int, default=20, help="inputs of each test")
    parser.add_argument("--write", action="store_true", help="write the table of the book")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results.json"
        paths = [str(HERE), str(options.suite.resolve()), *map(os.path.abspath, filter(None, sys.path))]
        environment = {
            **os.environ, "ARRAY_API_TESTS_MODULE": "fulgurite.array_api",
            "ARRAY_API_TESTS_SKIP_DTYPES": "complex64,complex128", "FULGURITE_SUITE_RESULTS": str(out),
            "PYTHONPATH": os.pathsep.join(paths),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "suite", "-p", "no:cacheprovider",
                   "--hypothesis-disable-deadline", "--hypothesis-derandomize", "--tb=short",
                   f"--hypothesis-max-examples={options.examples}", "array_api_tests"]
        if options.expression:
            command += ["-k", options.expression]
        subprocess.run(command, cwd=options.suite, env=environment, check=False)
        results = json.loads(out.read_text())
    print(table(results))
    failed = [name for name, found in results.items() if found["result"] == "failed"]
    for name in failed:
        print(f"failed: {name}: {results[name]['text'][:300]}")
    if options.write and not options.expression:
        before, _, _ = PAGE.read_text().partition(MARK)
        PAGE.write_text(f"{before}{MARK}\n\n{table(results)}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
