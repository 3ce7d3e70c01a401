"""Runs the node tests of ONNX's backends: inputs, attributes and expected outputs that the package `onnx` has.

    python tests/onnx/onnx_nodes.py [--fulgurite target/debug/fulgurite] [--op NAME ...] [--show N] [--write]

Needs the packages onnx and numpy (`pip install onnx numpy`), and a built `fulgurite` command. `table.py` says how a node is called
here, by one call or several. Calls are written as call files and run by `fulgurite ops run`: the first call of every test at once,
then the second of those that have one, and so on.

A test is passed, if all its outputs have the expected shape, element type and values (within the tolerance that the test has);
refused, if the node cannot be called or a call is refused, with the reason; or failed, if a value, a shape or a type is wrong.
`known.json` beside this file lists the tests that are refused, by their reasons, and those that fail. A test that it does not list
and that is not passed, and one that it lists and that passes or is refused for another reason, make the exit code 1. `--write`
writes the list anew, and the table of docs/src/conformance.md.
"""

import argparse
import collections
import json
import re
import struct
import sys
import tempfile
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent))
import attention  # noqa: E402, F401
import cases  # noqa: E402
import layers  # noqa: E402, F401
import shapes  # noqa: E402, F401
import table  # noqa: E402
import windows  # noqa: E402, F401
from table import DTYPES, Dtype, Node, Refused  # noqa: E402

KNOWN, PAGE = HERE / "known.json", HERE.parent.parent / "docs" / "src" / "conformance.md"
NAMES = {own: name for name, own in DTYPES.items()}


def numpy_type(name):
    return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)


def write_tensors(path, tensors):
    """A file of safetensors."""
    header, at = {}, 0
    for key, array in tensors.items():
        header[key] = {"dtype": DTYPES[array.dtype.name], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def read_tensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    arrays = {}
    for key, entry in header.items():
        if key != "__metadata__":
            start, end = entry["data_offsets"]
            dtype = numpy_type(NAMES[entry["dtype"]])
            arrays[key] = np.frombuffer(body[start:end], dtype=dtype).reshape(entry["shape"])
    return arrays


class Calls:
    """The calls of one round, as a call file."""

    def __init__(self):
        self.cases, self.tensors = [], {}

    def value(self, key, value):
        if isinstance(value, np.ndarray):
            if value.dtype.name not in DTYPES:
                raise Refused(f"element type {value.dtype.name}")
            self.tensors[key] = value
            return {"tensor": key}
        if isinstance(value, Dtype):
            if value not in DTYPES:
                raise Refused(f"element type {value}")
            return {"dtype": str(value)}
        if isinstance(value, (list, tuple)):
            return [self.value(f"{key}.{i}", item) for i, item in enumerate(value)]
        if isinstance(value, float) and not np.isfinite(value):
            return {"number": "nan" if np.isnan(value) else "inf" if value > 0 else "-inf"}
        if isinstance(value, (bool, int, float, str)) or value is None:
            return value
        raise Refused(f"an argument of type {type(value).__name__}")

    def add(self, name, operator, arguments):
        written = {key: self.value(f"{name}/{key}", value) for key, value in arguments.items()}
        self.cases.append({"id": name, "op": operator, "args": written})

    def run(self, fulgurite, executors):
        """The results of each call, or why it was refused."""
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "cases.json").write_text(json.dumps({"version": 1, "cases": self.cases}))
            write_tensors(folder / "tensors.safetensors", self.tensors or {"nothing": np.zeros(1, np.float32)})
            reports = cases.run(fulgurite, folder, executors)
            arrays = read_tensors(folder / "out" / "results.safetensors")
        results = {}
        for case in self.cases:
            name, report = case["id"], reports[case["id"]]
            if report["status"] == "ok":
                found = []
                while f"{name}/out{len(found)}" in arrays:
                    found.append(arrays[f"{name}/out{len(found)}"])
                results[name] = found
            else:
                error = report["error"]
                results[name] = Refused(f"{case['op']}: {error['code']}") if error["code"] != "Panic" else AssertionError(error["message"])
        return results


def attribute(value):
    """An attribute as Python has it."""
    found = onnx.helper.get_attribute_value(value)
    if isinstance(found, bytes):
        return found.decode()
    if isinstance(found, onnx.TensorProto):
        return numpy_helper.to_array(found)
    return list(found) if not isinstance(found, (int, float, str)) and hasattr(found, "__iter__") else found


def array(value):
    """An input or output of a test as an array; None where it is absent."""
    if value is None or isinstance(value, np.ndarray):
        return value
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if np.isscalar(value):
        return np.asarray(value)
    raise Refused(f"a {type(value).__name__}, which is no tensor")


def node_of(test):
    """The node of a test with its data, and the expected outputs."""
    graph = test.model.graph
    (node,) = graph.node
    if node.domain not in ("", "ai.onnx"):
        raise Refused(f"operators of {node.domain}")
    inputs, outputs = test.data_sets[0]
    given = dict(zip((value.name for value in graph.input), inputs))
    arguments = [array(given[name]) if name else None for name in node.input]
    expected = [array(value) for value in outputs]
    for own in [*arguments, *expected]:
        if own is not None and own.dtype.name not in DTYPES:
            raise Refused("strings" if own.dtype.kind in "OSU" else f"element type {own.dtype.name}")
    attributes = {own.name: attribute(own) for own in node.attribute if own.type != onnx.AttributeProto.GRAPH}
    version = max(own.version for own in test.model.opset_import if own.domain in ("", "ai.onnx"))
    if node.op_type not in table.TABLE:
        raise Refused(f"no operator for {node.op_type}")
    return Node(node.op_type, attributes, version, arguments, expected)


def difference(got, expected, test):
    """Why results differ from the expected outputs, or None."""
    if len(got) < len(expected):
        return f"has {len(got)} results, expected {len(expected)}"
    for i, (own, wanted) in enumerate(zip(got, expected)):
        if own.shape != wanted.shape:
            return f"output {i} has the shape {list(own.shape)}, expected {list(wanted.shape)}"
        if own.dtype != wanted.dtype:
            return f"output {i} is {own.dtype.name}, expected {wanted.dtype.name}"
        if table.is_float(own):
            a, b = own.astype(np.float64), wanted.astype(np.float64)
            # Two roundings of the type itself are no difference, as in tests/opinfo/opinfo.py.
            unit = {"float16": 2.0**-9, "bfloat16": 2.0**-6}.get(own.dtype.name, 0.0)
            fine = np.isclose(a, b, rtol=max(test.rtol, unit), atol=max(test.atol, unit * 1e-2), equal_nan=True)
        else:
            fine = own == wanted
        if not np.all(fine):
            at = tuple(int(index) for index in np.argwhere(~np.asarray(fine))[0])
            return f"output {i} at {list(at)} is {own[at]}, expected {wanted[at]} ({int((~np.asarray(fine)).sum())} of {own.size})"
    return None


class Running:
    """A test on its way: the function that yields its calls, and how it ended."""

    def __init__(self, test):
        self.test, self.node, self.steps, self.calls = test, None, None, 0
        self.results, self.refused, self.failed = None, None, None
        try:
            self.node = node_of(test)
            self.steps = table.TABLE[self.node.op](self.node)
        except Refused as refused:
            self.refused = str(refused)

    def advance(self, answer, calls):
        """Takes the results of the last call to the next one, which is added to `calls`: whether there is one."""
        try:
            try:
                name, arguments = self.steps.throw(answer) if isinstance(answer, Exception) else self.steps.send(answer)
            except StopIteration as ended:
                self.results = ended.value
                self.failed = difference(self.results, self.node.outputs, self.test)
                return False
            calls.add(self.test.name, name, arguments)
            self.calls += 1
            return True
        except Refused as refused:
            self.refused = str(refused)
        except AssertionError as panicked:
            self.failed = f"panicked: {panicked}"[:200]
        return False


def run_all(tests, fulgurite, executors):
    running = [Running(test) for test in tests]
    answers = {own.test.name: None for own in running if own.steps is not None}
    while answers:
        calls, waiting = Calls(), []
        for own in running:
            if own.test.name in answers and own.advance(answers[own.test.name], calls):
                waiting.append(own)
        answers = calls.run(fulgurite, executors) if waiting else {}
    return running


def general(reason):
    """A reason without the numbers of one test, for the table."""
    return re.sub(r"\bof \d+ ", "of other ", reason)


def page(running, text):
    """The page with the table of this run between its marks."""
    counts = collections.defaultdict(collections.Counter)
    for own in running:
        kind = "failed" if own.failed else "refused" if own.refused else "passed"
        counts[own.test.model.graph.node[0].op_type][kind] += 1
    total = collections.Counter()
    for own in counts.values():
        total.update(own)
    rows = [("operator", "passed", "refused", "failed"), ("---", "--:", "--:", "--:")]
    rows += [(f"`{op}`", c["passed"], c["refused"], c["failed"]) for op, c in sorted(counts.items()) if c["passed"] or c["failed"]]
    none = ", ".join(f"`{op}` ({c['refused']})" for op, c in sorted(counts.items()) if not c["passed"] and not c["failed"])
    reasons = collections.Counter(own.refused for own in running if own.refused)
    why = [("why refused", "tests"), ("---", "--:"), *((reason.replace("|", "\\|"), n) for reason, n in reasons.most_common())]
    made = (
        f"onnx {onnx.__version__}: {len(running)} node tests, {total['passed']} passed, {total['refused']} refused, {total['failed']} failed.\n\n"
        f"{cases.counted(rows)}\n\nRefused as a whole:\n{none}.\n\n{cases.counted(why)}\n"
    )
    begin, end = "<!-- onnx_nodes.py writes this -->\n", "<!-- to here -->\n"
    before, rest = text.split(begin)
    return before + begin + "\n" + wrapped(made) + "\n" + end + rest.split(end)[1]


def wrapped(text):
    """Lines of prose of at most 120 columns; tables stay."""
    import textwrap

    lines = []
    for line in text.splitlines():
        lines += [line] if line.startswith("|") or len(line) <= 120 else textwrap.wrap(line, 120, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fulgurite", default="target/debug/fulgurite")
    parser.add_argument("--op", action="append", default=[], help="ONNX's name of an operator, or several with commas")
    parser.add_argument("--executors")
    parser.add_argument("--show", type=int, default=20, help="failed tests that are shown")
    parser.add_argument("--write", action="store_true", help="write known.json and the table of the book anew")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    only = {name for names in options.op for name in names.split(",")}
    tests = [test for test in load_model_tests(kind="node") if not test.name.endswith("_expanded") and "_expanded_ver" not in test.name]
    # Expanded tests are the same nodes as graphs of others.
    tests = [test for test in tests if len(test.model.graph.node) == 1 and (not only or test.model.graph.node[0].op_type in only)]
    running = run_all(tests, options.fulgurite, options.executors)
    refused = {own.test.name: own.refused for own in running if own.refused}
    failed = {own.test.name: own.failed for own in running if own.failed}
    passed = [own for own in running if not own.refused and not own.failed]
    for name, why in list(failed.items())[: options.show]:
        print(f"failed: {name}: {why}")
    for why, count in collections.Counter(refused.values()).most_common():
        print(f"refused: {count}: {why}")
    calls = sum(own.calls for own in running)
    print(f"{len(running)} tests, {calls} calls: {len(passed)} passed, {len(refused)} refused, {len(failed)} failed")
    if options.write:
        lists = {"onnx": onnx.__version__, "refused": cases.by_reason(refused), "failed": failed}
        KNOWN.write_text(json.dumps(lists, indent=1) + "\n")
        PAGE.write_text(page(running, PAGE.read_text()))
        return
    lists = json.loads(KNOWN.read_text())
    if lists["onnx"] != onnx.__version__:
        print(f"note: the list is of onnx {lists['onnx']}, this is {onnx.__version__}")
    known = {name: why for why, names in lists["refused"].items() for name in names}
    if only:
        known = {name: why for name, why in known.items() if any(own.test.name == name for own in running)}
    unexpected = cases.unlike(known, refused) + cases.unlike(lists["failed"] if not only else {}, failed)
    for line in unexpected:
        print(line)
    sys.exit(1 if unexpected or not running else 0)


if __name__ == "__main__":
    main()
