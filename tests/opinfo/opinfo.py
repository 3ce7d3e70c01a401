"""Compares operators with PyTorch on PyTorch's own sample, reference and error inputs (its OpInfo database).

    python tests/opinfo/opinfo.py [--fulgurite target/debug/fulgurite] [--op NAME ...] [--dtype float32 ...] [--report FILE] [--show N]

Needs torch (CPU), numpy and safetensors, and a built `fulgurite` command. For every operator that names its PyTorch counterpart, and
for each of float32, bfloat16, float16, int64 and bool, it takes PyTorch's inputs, computes outputs and gradients (for random
cotangents) with PyTorch, has `fulgurite ops run` compute the same, and compares:

- where PyTorch returns, shapes and dtypes must be equal, and values must be close (see `TOLERANCE`), or at least as close to
  PyTorch's result in float64 as PyTorch's own result is;
- where PyTorch refuses, `fulgurite` must refuse too;
- random results are compared by shape and dtype alone; operators here take an explicit generator, which is added to such calls.

It prints a line for each operator and the share of cases that agree. The exit code is 1 if that share is less than `--least`.
"""

import argparse
import collections
import json
import math
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.testing._internal import common_methods_invocations as invocations

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "int64": torch.int64, "bool": torch.bool}

# Relative and absolute tolerance of outputs; the absolute one is a part of the largest element. PyTorch computes some 16-bit
# results with intermediate roundings of its own, so that two roundings of the result's type are allowed.
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-9, torch.bfloat16: 2.0**-6, torch.float16: 2.0**-9}

# Names in the database that differ from the operator's PyTorch name.
IN_DATABASE = {"Tensor.expand": "expand", "Tensor.view": "view", "Tensor.split": "split", "Tensor.to": "to"}

# Results are random: shapes and dtypes are compared.
RANDOM = {"nn.functional.dropout", "multinomial"}

# Operators that choose among equal elements of `input` along `dim`: the positions that they give (the second output) are compared
# by the elements there, and gradients by their sums over equal elements.
CHOOSES = {"topk"}

# The database calls these functions through a lambda with another order of arguments.
ORDER = {"where": ["input", "condition", "other"], "nn.functional.embedding": ["weight", "input"]}


def split_top(text):
    """The parts of `text` between commas that are not within brackets or quotes."""
    parts, depth, quoted, current = [], 0, False, ""
    for c in text:
        if c == '"':
            quoted = not quoted
        if not quoted and c in "([":
            depth += 1
        if not quoted and c in ")]":
            depth -= 1
        if c == "," and depth == 0 and not quoted:
            parts.append(current)
            current = ""
        else:
            current += c
    return parts + [current] if current.strip() else parts


def parameters(signature):
    """Names and types of the parameters of a signature as `ops list --json` writes it."""
    inside = re.match(r"[^(]*\((.*)\) -> ", signature).group(1)
    pairs = []
    for part in split_top(inside):
        name, rest = part.split(":", 1)
        pairs.append((name.strip(), rest.split("=")[0].strip()))
    return pairs


def counterparts(fulgurite):
    """The operator for each PyTorch name: a composite rather than a prim."""
    listed = json.loads(subprocess.run([fulgurite, "ops", "list", "--json"], check=True, capture_output=True).stdout)
    chosen = {}
    for row in listed:
        name = row["torch"]
        if name is None or row["kind"] == "symbol":
            continue
        if name not in chosen or row["kind"] == "composite":
            chosen[name] = row
    return chosen


class Unrepresentable(Exception):
    """The call cannot be written as a case, e.g. a complex number or a Python object."""


class Writer:
    """Cases and their tensors."""

    def __init__(self):
        self.cases, self.tensors = [], {}

    def value(self, key, value):
        if isinstance(value, torch.Tensor):
            if value.dtype.is_complex or value.dtype in (torch.int8, torch.int16) or value.layout != torch.strided:
                raise Unrepresentable(f"a tensor of {value.dtype}")
            self.tensors[key] = value.detach().clone().contiguous()
            return {"tensor": key}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, (bool, int, str)) or value is None:
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"number": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
        if isinstance(value, (list, tuple)):
            return [self.value(f"{key}.{i}", item) for i, item in enumerate(value)]
        raise Unrepresentable(type(value).__name__)

    def case(self, name, operator, arguments, grad=None):
        written = {key: self.value(f"{name}/{key}", value) for key, value in arguments.items()}
        case = {"id": name, "op": operator, "args": written}
        if grad is not None:
            case["grad"] = grad
        self.cases.append(case)

    def write(self, folder):
        (folder / "cases.json").write_text(json.dumps({"version": 1, "cases": self.cases}))
        save_file(self.tensors or {"nothing": torch.zeros(1)}, folder / "tensors.safetensors")


def bound(torch_name, pairs, sample):
    """The arguments of a sample by the names of the operator's parameters."""
    names = ORDER.get(torch_name, [name for name, _ in pairs])
    given = [sample.input, *sample.args]
    types = dict(pairs)
    # `permute(x, 0, 1)` and `permute(x, (0, 1))` are one call.
    if len(given) > 2 and len(names) >= 2 and types[names[1]] in ("int[]", "size[]") and all(type(g) is int for g in given[1:]):
        given = [given[0], tuple(given[1:])]
    if len(given) > len(names):
        raise Unrepresentable(f"{torch_name}: more positional arguments than parameters")
    arguments = dict(zip(names, given))
    for name, value in sample.kwargs.items():
        if name in arguments:
            raise Unrepresentable(f"'{name}' twice")
        arguments[name] = value
    if not any(isinstance(value, torch.Tensor) for value in arguments.values()) and "input" in arguments:
        raise Unrepresentable("a call on numbers alone")
    if "out" in arguments:
        raise Unrepresentable("`out=`")
    return arguments


def flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in flat(part)]
    return [torch.tensor(value)]


def differentiable_inputs(arguments):
    named = []
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            named.append((name, value))
        elif isinstance(value, (list, tuple)):
            named += [(f"{name}.{i}", item) for i, item in enumerate(value) if isinstance(item, torch.Tensor)]
    return [(name, value) for name, value in named if value.dtype.is_floating_point and value.requires_grad]


def in_float64(value):
    """The value with tensors of floating-point types in float64, as leaves."""
    if isinstance(value, torch.Tensor):
        return with_leaf(value.detach().double() if value.dtype.is_floating_point else value.detach())
    if isinstance(value, (list, tuple)):
        return type(value)(in_float64(item) for item in value)
    return value


def with_leaf(value):
    return value.requires_grad_() if value.dtype.is_floating_point else value


def evaluated(info, sample, arguments, cotangents):
    """PyTorch's outputs, gradients by names, and cotangents (made if `cotangents` is None)."""
    outputs = flat(info.op(sample.input, *sample.args, **sample.kwargs))
    record = {"outputs": [o.detach() for o in outputs]}
    floating = [o for o in outputs if o.dtype.is_floating_point]
    inputs = differentiable_inputs(arguments)
    if inputs and any(o.requires_grad for o in floating):
        if cotangents is None:
            cotangents = [torch.randn(o.shape).to(o.dtype) for o in floating]
        through = [(o, c.to(o.dtype)) for o, c in zip(floating, cotangents) if o.requires_grad]
        gradients = torch.autograd.grad([o for o, _ in through], [v for _, v in inputs], [c for _, c in through], allow_unused=True)
        record["gradients"] = {n: (torch.zeros_like(v) if g is None else g.detach()) for (n, v), g in zip(inputs, gradients)}
    else:
        cotangents = []
    return record, cotangents


def samples_of(info, dtype):
    """PyTorch's inputs: (kind, sample)."""
    floating = dtype.is_floating_point
    for kind, make in (("sample", info.sample_inputs), ("reference", info.reference_inputs)):
        iterator = None
        try:
            iterator = iter(make("cpu", dtype, requires_grad=floating))
        except Exception:
            continue
        count = 0
        while count < 200:
            try:
                sample = next(iterator)
            except StopIteration:
                break
            except Exception:
                break
            count += 1
            yield kind, sample


def with_gradients(sample):
    """The sample with leaves that require gradients."""

    def leaf(value):
        if isinstance(value, torch.Tensor):
            value = value.detach().clone()
            return value.requires_grad_() if value.dtype.is_floating_point else value
        if isinstance(value, (list, tuple)):
            return type(value)(leaf(item) for item in value)
        return value

    sample.input, sample.args = leaf(sample.input), tuple(leaf(a) for a in sample.args)
    sample.kwargs = {name: leaf(value) for name, value in sample.kwargs.items()}
    return sample


def close(got, expected, tolerance):
    """Why two tensors differ, or None."""
    if tuple(got.shape) != tuple(expected.shape):
        return f"shape {list(got.shape)}, expected {list(expected.shape)}"
    if got.dtype != expected.dtype:
        return f"dtype {got.dtype}, expected {expected.dtype}"
    if expected.numel() == 0:
        return None
    if not expected.dtype.is_floating_point:
        unequal = int((got != expected).sum())
        return f"{unequal} of {expected.numel()} elements differ" if unequal else None
    g, e = got.double(), expected.double()
    finite = e[torch.isfinite(e)].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    fine = torch.isclose(g, e, rtol=tolerance, atol=tolerance * max(scale, 1e-30), equal_nan=True)
    # A 16-bit overflow is at the mercy of the order of roundings.
    if expected.dtype in (torch.float16, torch.bfloat16):
        largest = torch.finfo(expected.dtype).max
        fine |= (g.abs() >= largest * 0.98) & (e.abs() >= largest * 0.98) & (torch.sign(g) == torch.sign(e))
    if bool(fine.all()):
        return None
    at = int((~fine).flatten().nonzero()[0])
    return f"element {at} is {float(g.flatten()[at])!r}, expected {float(e.flatten()[at])!r} ({int((~fine).sum())} of {fine.numel()})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fulgurite", default="target/debug/fulgurite")
    parser.add_argument("--op", action="append", default=[])
    parser.add_argument("--dtype", action="append", default=[], choices=list(DTYPES))
    parser.add_argument("--executors")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--show", type=int, default=3, help="differences shown for each operator")
    parser.add_argument("--least", type=float, default=0.98, help="the least share of cases that must agree, e.g. 0.98")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    chosen = counterparts(options.fulgurite)
    database = collections.defaultdict(list)
    for info in invocations.op_db:
        database[info.name].append(info)
    writer, expected, names_seen, skipped = Writer(), {}, set(), collections.Counter()
    for torch_name, row in sorted(chosen.items()):
        if options.op and torch_name not in options.op and row["name"] not in options.op:
            continue
        pairs = parameters(row["signature"])
        for info in database.get(IN_DATABASE.get(torch_name, torch_name), []):
            for dtype_name, dtype in DTYPES.items():
                if options.dtype and dtype_name not in options.dtype:
                    continue
                torch.manual_seed(0)
                # Inputs of a dtype that PyTorch does not support are made by its generators as well; PyTorch then refuses.
                made = list(samples_of(info, dtype))
                try:
                    errors = list(info.error_inputs("cpu")) if dtype_name == "float32" and info.error_inputs_func else []
                except Exception:
                    errors = []
                made += [("error", e.sample_input) for e in errors]
                seen = set()
                for number, (kind, sample) in enumerate(made):
                    name = f"{torch_name}/{info.variant_test_name or 'plain'}/{dtype_name}/{kind}{number}"
                    try:
                        sample = with_gradients(sample)
                        arguments = bound(torch_name, pairs, sample)
                    except Unrepresentable as error:
                        skipped[str(error)] += 1
                        continue
                    except Exception:
                        skipped["sample that cannot be copied"] += 1
                        continue
                    text = json.dumps({k: repr(v) for k, v in arguments.items()}, sort_keys=True)
                    if text in seen:
                        continue
                    seen.add(text)
                    record = {"op": torch_name}
                    grad, cotangents = None, []
                    try:
                        torch.manual_seed(1)
                        try:
                            made_here, cotangents = evaluated(info, sample, arguments, None)
                        except RuntimeError as error:
                            # PyTorch has no gradient of class weights; the outputs are compared.
                            if "not differentiable with respect to argument 'weight'" not in str(error):
                                raise
                            arguments["weight"].requires_grad_(False)
                            made_here, cotangents = evaluated(info, sample, arguments, None)
                        record.update(made_here)
                        if "gradients" in record:
                            grad = {"cotangents": [f"{name}/d{i}" for i in range(len(cotangents))], "inputs": list(record["gradients"])}
                    except Exception as error:
                        record = {"op": torch_name, "refused": f"{type(error).__name__}: {error}"[:200]}
                    if "outputs" in record and dtype.is_floating_point and torch_name not in RANDOM:
                        try:
                            exact = with_gradients(sample)
                            exact.input, exact.args = in_float64(sample.input), tuple(in_float64(a) for a in sample.args)
                            exact.kwargs = {k: in_float64(v) for k, v in sample.kwargs.items()}
                            record["exact"], _ = evaluated(info, exact, bound(torch_name, pairs, exact), cotangents or None)
                        except Exception:
                            pass
                    if any(o.dtype.is_complex or o.dtype in (torch.int8, torch.int16) for o in record.get("outputs", [])):
                        skipped["complex or 8-bit results"] += 1
                        continue
                    draws = arguments.get("training", True) and arguments.get("p", 0.5) if "dropout" in torch_name else arguments.get("dropout_p", 0.0)
                    given = dict(arguments)
                    if draws and any(n == "generator" for n, _ in pairs):
                        given["generator"] = torch.tensor([1, 2])
                        record["random"] = True
                    try:
                        writer.case(name, row["name"], given, grad)
                    except Unrepresentable as error:
                        skipped[str(error)] += 1
                        continue
                    for i, cotangent in enumerate(cotangents):
                        writer.tensors[f"{name}/d{i}"] = cotangent.contiguous()
                    record["arguments"] = {
                        k: (f"{v.dtype}{list(v.shape)}" if isinstance(v, torch.Tensor) else repr(v)[:80]) for k, v in arguments.items()
                    }
                    if torch_name in CHOOSES:
                        record["chosen_from"] = (arguments["input"].detach(), arguments.get("dim", -1))
                    expected[name] = record
                    names_seen.add(torch_name)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        writer.write(folder)
        command = [options.fulgurite, "ops", "run", str(folder), "--out", str(folder / "out")]
        if options.executors:
            command += ["--executors", options.executors]
        ran = subprocess.run(command, capture_output=True, text=True)
        results = folder / "out" / "results.json"
        if not results.exists():
            sys.exit(f"`ops run` left no results: {ran.stderr[-2000:]}")
        reports = {r["id"]: r for r in json.loads(results.read_text())}
        tensors = load_file(folder / "out" / "results.safetensors")
    tally, differences = collections.defaultdict(lambda: [0, 0]), collections.defaultdict(list)
    for name, record in expected.items():
        why = difference(name, record, reports[name], tensors)
        tally[record["op"]][0] += why is None
        tally[record["op"]][1] += 1
        if why is not None:
            differences[record["op"]].append({"case": name, "why": why, "arguments": record["arguments"]})
    agree, total = (sum(t[i] for t in tally.values()) for i in (0, 1))
    for op, (good, of) in sorted(tally.items()):
        print(f"{op}: {good} of {of}")
        for d in differences[op][: options.show]:
            print(f"    {d['case']}: {d['why']}  {d['arguments']}")
    for reason, count in skipped.most_common():
        print(f"not taken, {reason}: {count}")
    share = agree / max(total, 1)
    print(f"{len(names_seen)} operators, {total} cases, {agree} agree: {100 * share:.2f} %")
    if options.report:
        options.report.write_text(json.dumps(differences, indent=1))
    sys.exit(0 if share >= options.least and total > 0 else 1)


def near(got, expected, exact, tolerance):
    """Why a tensor differs from PyTorch's, or None: it may be closer to the exact result instead."""
    why = close(got, expected, tolerance)
    if why is None or exact is None or got.shape != expected.shape or got.dtype != expected.dtype:
        return why
    g, e, x = got.double(), expected.double(), exact.to(got.dtype).double()
    scale = float(x[torch.isfinite(x)].abs().max()) if bool(torch.isfinite(x).any()) else 0.0
    same = (g == e) | (g.isnan() & e.isnan())
    fine = same | ((g - x).abs() <= (e - x).abs() + tolerance * max(scale, 1e-30)) | ((g == x) | (g.isnan() & x.isnan()))
    # A result that is infinite or NaN in PyTorch alone: intermediate results overflowed there.
    fine |= torch.isfinite(g) & ~torch.isfinite(e) & ((g - x).abs() <= 4 * tolerance * x.abs().clamp(min=1e-30))
    return None if bool(fine.all()) else why


def over_equals(values, dim, gradient):
    """The gradient, summed over equal elements along `dim`, at each of them."""
    if values.dim() == 0 or values.numel() == 0:
        return gradient
    values, moved = values.movedim(dim, -1), gradient.movedim(dim, -1).double()
    sums = torch.empty_like(moved)
    for at in torch.cartesian_prod(*(torch.arange(n) for n in values.shape[:-1]), torch.arange(1)).reshape(-1, values.dim()).tolist():
        row = tuple(at[:-1])
        kinds, inverse = values[row].unique(return_inverse=True)
        total = torch.zeros(len(kinds), dtype=torch.float64).index_add(0, inverse, moved[row])
        sums[row] = total[inverse]
    return sums.movedim(-1, dim).to(gradient.dtype)


def difference(name, record, report, tensors):
    """Why a case differs from PyTorch, or None."""
    ok = report["status"] == "ok"
    if "refused" in record:
        if not ok and report["error"]["code"] == "Panic":
            return f"panics: {report['error']['message']}"[:300]
        return f"PyTorch refuses it ({record['refused']}), it runs" if ok else None
    if not ok:
        return f"{report['error']['code']}: {report['error']['message']}"[:300]
    exact = record.get("exact", {})
    random = record["op"] in RANDOM or record.get("random")
    for i, output in enumerate(record["outputs"]):
        got = tensors.get(f"{name}/out{i}")
        if got is None:
            return f"has no output {i}"
        if i == 1 and "chosen_from" in record and got.shape == output.shape and got.dtype == output.dtype:
            values, dim = record["chosen_from"]
            got, output = (values if values.dim() == 0 else values.gather(dim, places) for places in (got, output))
        if random:
            if (tuple(got.shape), got.dtype) != (tuple(output.shape), output.dtype):
                return f"output {i} is {got.dtype}{list(got.shape)}, expected {output.dtype}{list(output.shape)}"
            continue
        why = near(got, output, exact["outputs"][i] if exact else None, TOLERANCE.get(output.dtype, 0.0))
        if why:
            return f"output {i}: {why}"
    if random:
        return None
    for input_name, gradient in record.get("gradients", {}).items():
        got = tensors.get(f"{name}/grad/{input_name}")
        if got is None:
            return f"has no gradient of {input_name}"
        truth = exact.get("gradients", {}).get(input_name)
        if "chosen_from" in record and got.shape == gradient.shape:
            got, gradient, truth = (g if g is None else over_equals(*record["chosen_from"], g) for g in (got, gradient, truth))
        why = near(got, gradient, truth, 4 * TOLERANCE.get(gradient.dtype, 0.0))
        if why:
            return f"gradient of {input_name}: {why}"
    return None


if __name__ == "__main__":
    main()
