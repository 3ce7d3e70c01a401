"""Compares operators with PyTorch on PyTorch's own sample, reference and error inputs (its OpInfo database).

    python tests/opinfo/opinfo.py [--fulgurite target/debug/fulgurite] [--op NAME ...] [--dtype float32 ...] [--report FILE] [--show N]

Needs torch (CPU), numpy and safetensors, and a built `fulgurite` command. For every operator that names its PyTorch counterpart, and
for each of float32, bfloat16, float16, int64 and bool, it takes PyTorch's inputs, computes outputs and gradients (for random
cotangents) with PyTorch, has `fulgurite ops run` compute the same, and compares:

- where PyTorch returns, shapes and dtypes must be equal, and values must be close (see `TOLERANCE`), or at least as close to
  PyTorch's result in float64 as PyTorch's own result is;
- where PyTorch refuses, `fulgurite` must refuse too; where PyTorch refuses the gradient alone, that is a case by itself;
- where PyTorch's host has no kernel for 16 bits, there is nothing to compare with, and such a case is not counted;
- random results are compared by shape and dtype alone; operators here take an explicit generator, which is added to such calls;
- positions of equal elements, whose order PyTorch leaves open, are compared by the elements there (see `CHOOSES`).

`known.json` beside this file lists the cases that differ, each with its reason. A difference that it does not list, and one that it
lists and that is not found, are errors. What PyTorch's call has and a case cannot have is counted and printed with its reason.

It prints a line for each operator and the share of cases that agree. The exit code is 1 if that share is less than `--least`, or if
the differences are not those of `known.json`. `--known FILE` compares with another list.
"""

import argparse
import collections
import json
import math
import re
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.testing._internal import common_methods_invocations as invocations

sys.path.insert(0, str(Path(__file__).parent.parent))
import cases  # noqa: E402
from cases import Parameters  # noqa: E402

USUAL = ["float32", "bfloat16", "float16", "int64", "bool"]
# What `--dtype` takes besides: integers that are computed as int64 is, and complex numbers, which few operators take.
DTYPES = {name: getattr(torch, name) for name in [*USUAL, "uint8", "int8", "int16", "int32", "complex64"]}
# Complex numbers that files of tensors do not hold.
NOT_HELD = (torch.complex32, torch.complex128)

# Relative and absolute tolerance of outputs; the absolute one is a part of the largest element. PyTorch computes some 16-bit
# results with intermediate roundings of its own, so that two roundings of the result's type are allowed.
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-9, torch.bfloat16: 2.0**-6, torch.float16: 2.0**-9}
TOLERANCE |= {torch.complex64: 2e-5}

# Operators of one run of the command: the tensors of their cases are in memory together.
AT_ONCE = 6

# Names in the database that differ from the operator's PyTorch name. `Tensor.` is left out by itself, and aliases are found.
IN_DATABASE = {name: f"nn.functional.{name}" for name in ("celu", "prelu", "relu", "selu")}
IN_DATABASE |= {f"Tensor.{name}_": name for name in ("exponential", "geometric", "log_normal", "cauchy")}

# Operators that return positions, too: PyTorch has an argument for it.
POOLS = [f"nn.functional.{kind}max_pool{rank}d" for kind in ("", "adaptive_") for rank in (1, 2, 3)]
IN_DATABASE |= {f"{name}_with_indices": name for name in POOLS}

# PyTorch's functions of one name that are several operators here: the one of all elements, and the one of two tensors.
OVERLOADS = {"max": ("amax", "maximum"), "min": ("amin", "minimum")}
OVERLOADS |= {name: (f"{name}_of_all", None) for name in ("median", "nanmedian")}

# Results are random: shapes and dtypes are compared.
RANDOM = {"nn.functional.dropout", "multinomial", "bernoulli", "normal", "nn.functional.gumbel_softmax", "empty", "empty_like"}
RANDOM |= {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like"}
RANDOM |= {f"Tensor.{name}_" for name in ("exponential", "geometric", "log_normal", "cauchy")}
RANDOM |= {f"nn.functional.{name}" for name in ("dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")}

# The statistics that PyTorch writes are results here.
CHANGES = {"nn.functional.batch_norm", "nn.functional.instance_norm"}

# Operators that choose among equal elements of `input` along `dim`: the output of this number gives positions, which are compared by
# the elements there, and gradients by their sums over equal elements. The order is left open unless the call asks for a stable one.
CHOOSES = {"topk": 1, "sort": 1, "argsort": 0, "kthvalue": 1, "msort": None, "median": 1, "nanmedian": 1, "mode": 1}

# The database calls these functions through a lambda with another order of arguments.
ORDER = {"where": ["input", "condition", "other"], "nn.functional.embedding": ["weight", "input"], "einsum": ["operands", "equation"]}
ORDER |= {"nn.functional.embedding_bag": ["weight", "input", "offsets"], "bernoulli": ["input", "p"], "normal": ["mean", "std", "size"]}
ORDER |= {"rand_like": ["input"], "randn_like": ["input"], "randn": ["size"], "Tensor.exponential_": ["input", "lambd"]}
ORDER |= {"multinomial": ["input", "num_samples", "replacement"], "polygamma": ["input", "n"]}
ORDER |= {"Tensor.log_normal_": ["input", "mean", "std"], "Tensor.cauchy_": ["input", "median", "sigma"]}

# The database calls these functions through a lambda that leaves out results.
WHOLE = {"linalg.lstsq": torch.linalg.lstsq}

# Variants of which the database's function computes the argument from the sample's: the function, and its argument.
PREPARED = {("linalg.pinv", "singular"): (torch.linalg.pinv, lambda a, b: a @ b.mT)}

# Names of arguments that differ from those of the operator's parameters.
RENAMED = {
    "scatter": {"value": "src"},
    "vander": {"N": "n"},
    "linalg.vander": {"N": "n"},
    **{f"linalg.{name}": {"UPLO": "uplo"} for name in ("eigh", "eigvalsh")},
}

# Arguments of PyTorch that no operator here has, and why a case goes without them. One that the operator has is not dropped.
DROPPED = {
    "requires_grad": "a tensor does not know whether it is differentiated: the transform is given the arguments",
    "pin_memory": "memory of the host is not pinned by operators",
    "layout": "tensors are strided",
    "non_blocking": "whether a copy waits changes no value",
    "copy": "whether memory is shared changes no value",
    "device": "where nothing is made from nothing, the device is that of the tensors",
}


def settled(vectors, dim):
    """The signs that make the first element of at least 0.4142 of the largest magnitude positive, as they are here."""
    size = vectors.detach().abs()
    if not size.numel():
        return torch.ones_like(size.sum(dim, keepdim=True))
    first = (size >= 0.4142 * size.amax(dim, keepdim=True)).int().argmax(dim, keepdim=True)
    return vectors.detach().gather(dim, first).sign()


def with_settled_signs(torch_name, op):
    """PyTorch's eigenvectors and singular vectors with our signs, which LAPACK leaves open."""

    def eigh(*args, **kwargs):
        values, vectors = op(*args, **kwargs)
        return values, vectors * settled(vectors, -2)

    def svd(*args, **kwargs):
        u, s, vh = op(*args, **kwargs)
        columns = torch_name == "svd"
        vh = vh.transpose(-2, -1) if columns else vh
        signs, k = settled(vh, -1), s.shape[-1]
        # Columns of U that belong to no row have signs of their own.
        own = torch.cat([signs[..., :k, 0].unsqueeze(-2), settled(u[..., k:], -2)], -1)
        if not bool(vh.detach().any()):
            return u, s, vh.transpose(-2, -1) if columns else vh
        vh = vh * signs
        return u * own, s, vh.transpose(-2, -1) if columns else vh

    return {"linalg.eigh": eigh, "linalg.svd": svd, "svd": svd}.get(torch_name, op)


def counterparts(fulgurite):
    """The operator for each PyTorch name, a composite rather than a prim; and all operators by their own names."""
    listed = cases.operators(fulgurite)
    chosen = {}
    for row in listed:
        name = row["torch"]
        if name is None or row["kind"] == "symbol":
            continue
        if name not in chosen or row["kind"] == "composite":
            chosen[name] = row
    return chosen, {row["name"]: row for row in listed}


class Unrepresentable(Exception):
    """The call cannot be written as a case, e.g. a complex number or a Python object."""


class Writer:
    """Cases and their tensors."""

    def __init__(self):
        self.cases, self.tensors = [], {}

    def value(self, key, value):
        if isinstance(value, torch.Tensor):
            if value.dtype in NOT_HELD or value.layout != torch.strided:
                raise Unrepresentable(f"a tensor of {value.dtype}")
            if value.device.type != "cpu":
                raise Unrepresentable(f"a tensor of the device {value.device.type}")
            self.tensors[key] = value.detach().clone().resolve_conj().contiguous()
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


def positional(torch_name, parameters, given):
    """The parameters that PyTorch's positional arguments are, and these arguments: a list where several of them are one."""
    names, types = ORDER.get(torch_name, parameters.names), parameters.types
    if torch_name.removesuffix("_with_indices") in POOLS:
        return [*names, "return_indices"], given
    if torch_name == "Tensor.to":
        # `to(device, dtype, ...)`, `to(dtype, ...)` and `to(other, ...)`.
        rest = given[2:] if isinstance(given[1], str) else given[1:]
        dtype = rest[0].dtype if isinstance(rest[0], torch.Tensor) else rest[0]
        return ["input", "dtype", "non_blocking", "copy"], [given[0], dtype, *rest[1:]]
    # `randint(high, size)` and `randint_like(input, high)`: the lower bound is 0.
    if torch_name == "randint" and len(given) == 2:
        return ["low", "high", "size"], [0, *given]
    if torch_name == "randint_like" and len(given) == 2:
        return ["input", "low", "high"], [given[0], 0, given[1]]
    if "unbiased" in names and len(given) > 1 and type(given[1]) is bool:
        return ["input", "unbiased"], given
    if "unbiased" in names and len(given) > 2 and type(given[2]) is bool:
        return ["input", "dim", "unbiased", "keepdim"], given
    # `permute(x, 0, 1)` and `permute(x, (0, 1))` are one call; in `movedim(x, 0, 1)` both are parameters.
    lists = [types[name] in ("int[]", "size[]") for name in names[1:3]]
    several = len(given) > 2 and not torch_name.startswith("nn.functional.")
    if several and lists[:1] == [True] and lists[1:] != [True] and all(type(g) is int for g in given[1:]):
        return names, [given[0], tuple(given[1:])]
    # So are `block_diag(x, y)` and `block_diag((x, y))`.
    if types[names[0]] == "tensor[]" and all(isinstance(g, torch.Tensor) for g in given):
        return names, [tuple(given)]
    return names, given


def bound(torch_name, parameters, sample, dropped):
    """The arguments of a sample by the names of the operator's parameters. What is left out is counted in `dropped`."""
    names, given = positional(torch_name, parameters, [sample.input, *sample.args])
    if len(given) > len(names):
        raise Unrepresentable(f"{torch_name}: more positional arguments than parameters")
    arguments = dict(zip(names, given))
    for name, value in sample.kwargs.items():
        name = RENAMED.get(torch_name, {}).get(name, name)
        if name in arguments:
            raise Unrepresentable(f"'{name}' twice")
        arguments[name] = value
    if not any(isinstance(value, torch.Tensor) for value in flat_values(arguments.values())) and "input" in arguments:
        raise Unrepresentable("a call on numbers alone")
    if "out" in arguments:
        raise Unrepresentable("`out=`")
    if arguments.pop("memory_format", torch.preserve_format) != torch.preserve_format:
        raise Unrepresentable("a memory format")
    for name in DROPPED.keys() & arguments.keys() - set(parameters.names):
        if {"layout": (None, torch.strided), "device": (None, "cpu", torch.device("cpu"))}.get(name, [arguments[name]]).count(arguments[name]):
            del arguments[name]
            dropped[name] += 1
    if any(isinstance(value, torch.Tensor) and parameters.types.get(name) == "sections" for name, value in arguments.items()):
        raise Unrepresentable("positions in a tensor, which the shapes of the results depend on")
    if torch_name.removesuffix("_with_indices") in POOLS:
        if arguments.pop("return_indices", False) != torch_name.endswith("_with_indices"):
            raise Unrepresentable("positions of a pool, which are another operator's, or their absence")
    # None says that a parameter is absent, which another default says here.
    for name, value in list(arguments.items()):
        kind = parameters.types.get(name, "?")
        if value is None and not kind.endswith("?") and name in parameters.defaults:
            del arguments[name]
    return arguments


def flat_values(values):
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from flat_values(value)
        else:
            yield value


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
    return [(name, value) for name, value in named if differentiable(value.dtype) and value.requires_grad]


def differentiable(dtype):
    return dtype.is_floating_point or dtype.is_complex


def in_float64(value):
    """The value with tensors of floating-point types in float64 and of complex ones in complex128, as leaves."""
    if isinstance(value, torch.Tensor):
        dtype = torch.complex128 if value.dtype.is_complex else torch.float64 if value.dtype.is_floating_point else value.dtype
        return with_leaf(value.detach().to(dtype))
    if isinstance(value, (list, tuple)):
        return type(value)(in_float64(item) for item in value)
    return value


def with_leaf(value):
    return value.requires_grad_() if differentiable(value.dtype) else value


def evaluated(op, sample, arguments, cotangents):
    """PyTorch's outputs, gradients by names, and cotangents (made if `cotangents` is None)."""
    outputs = flat(op(sample.input, *sample.args, **sample.kwargs))
    record = {"outputs": [o.detach().resolve_conj() for o in outputs]}
    floating = [o for o in outputs if differentiable(o.dtype)]
    inputs = differentiable_inputs(arguments)
    if not inputs or not any(o.requires_grad for o in floating):
        return record, []
    if cotangents is None:
        cotangents = [torch.randn(o.shape, dtype=o.dtype if o.dtype.is_complex else None).to(o.dtype) for o in floating]
    through = [(o, c.to(o.dtype)) for o, c in zip(floating, cotangents) if o.requires_grad]
    try:
        gradients = torch.autograd.grad([o for o, _ in through], [v for _, v in inputs], [c for _, c in through], allow_unused=True)
    except Exception as error:
        record["no gradient"] = f"{type(error).__name__}: {error}"[:200]
        return record, cotangents
    known = [torch.zeros_like(v) if g is None else g.detach().resolve_conj() for (_, v), g in zip(inputs, gradients)]
    record["gradients"] = dict(zip((n for n, _ in inputs), known))
    return record, cotangents


def evaluated_where_differentiable(op, sample, arguments, without):
    """As `evaluated`. An argument of which PyTorch has no gradient, which it refuses, is taken as a constant and counted."""
    while True:
        try:
            return evaluated(op, sample, arguments, None)
        except RuntimeError as error:
            named = re.search(r"not differentiable with respect to argument '(\w+)'", str(error))
            if not named or not arguments[named.group(1)].requires_grad:
                raise
            arguments[named.group(1)].requires_grad_(False)
            without[named.group(1)] += 1


def samples_of(info, dtype):
    """PyTorch's inputs: (kind, sample)."""
    floating = differentiable(dtype)
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
            return with_leaf(value.detach().clone())
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
    if expected.dtype.is_complex:
        return close(torch.view_as_real(got), torch.view_as_real(expected), tolerance)
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


def inputs_of(database, torch_name):
    """PyTorch's entries for a function, each with the function: of that name, or of another one that it is an alias of."""
    name = IN_DATABASE.get(torch_name, torch_name)
    for known in (name, torch_name.removeprefix("Tensor.")):
        found = [(info, WHOLE.get(known, info.op)) for info in database if info.name == known]
        found = found or [(info, alias.op) for info in database for alias in info.aliases or [] if alias.name == known]
        if found:
            return found
    return []


class Collected:
    """The cases of some operators, what PyTorch says of them, and what was left out."""

    def __init__(self, chosen, own):
        self.chosen, self.own, self.writer, self.expected = chosen, own, Writer(), {}
        self.skipped, self.dropped, self.without = (collections.Counter() for _ in range(3))

    def overload(self, torch_name, sample):
        """The operator for a call: that of the name, unless PyTorch has several functions of it."""
        if torch_name in OVERLOADS:
            of_all, of_two = OVERLOADS[torch_name]
            if sample.args and isinstance(sample.args[0], torch.Tensor) or "other" in sample.kwargs:
                return self.own[of_two]
            if not sample.args and "dim" not in sample.kwargs:
                return self.own[of_all]
        if torch_name == "nn.functional.ctc_loss" and any(isinstance(given, (list, tuple)) for given in sample.args[1:3]):
            return self.own["ctc_loss_of_lengths"]
        coordinates = sample.kwargs.get("spacing") if torch_name == "gradient" else None
        if isinstance(coordinates, (list, tuple)) and isinstance(coordinates[0], torch.Tensor):
            return self.own["gradient_at"]
        return self.chosen[torch_name]

    def take(self, name, torch_name, op, sample, dtype, seen):
        row = self.overload(torch_name, sample)
        parameters = Parameters(row["signature"])
        dropped, without = collections.Counter(), collections.Counter()
        try:
            sample = with_gradients(sample)
            arguments = bound(torch_name, parameters, sample, dropped)
        except Unrepresentable as error:
            self.skipped[str(error)] += 1
            return
        except Exception:
            self.skipped["sample that cannot be copied"] += 1
            return
        text = row["name"] + json.dumps({k: repr(v) for k, v in arguments.items()}, sort_keys=True)
        if text in seen:
            return
        seen.add(text)
        record, cotangents, op = {"op": torch_name}, [], with_settled_signs(torch_name, op)
        if torch_name.endswith("_"):
            # PyTorch writes its operand, and no leaf that requires a gradient.
            written = op
            op = lambda input, *args, **kwargs: written(input.clone(), *args, **kwargs)
        # PyTorch writes these operands; ours are as they were before.
        for changed in [n for n in ("running_mean", "running_var") if torch_name in CHANGES and n in arguments]:
            if isinstance(arguments[changed], torch.Tensor):
                arguments[changed] = arguments[changed].requires_grad_(False).clone()
        try:
            torch.manual_seed(1)
            made, cotangents = evaluated_where_differentiable(op, sample, arguments, without)
            record.update(made)
            if "gradients" in record and torch_name in CHANGES:
                running = [arguments.get(n) for n in ("running_mean", "running_var")]
                channels = torch.zeros(arguments["input"].shape[1], dtype=dtype)
                cotangents += [torch.zeros_like(channels if own is None else own) for own in running]
        except Exception as error:
            if isinstance(error, NotImplementedError) and re.search(r"not implemented for '(BFloat16|Half)'", str(error)):
                self.skipped["16 bits, of which PyTorch's host has no kernel: its other devices have"] += 1
                return
            record["refused"] = f"{type(error).__name__}: {error}"[:200]
        floating = any(isinstance(v, torch.Tensor) and differentiable(v.dtype) for v in flat_values(arguments.values()))
        if "outputs" in record and floating and torch_name not in RANDOM:
            try:
                exact = with_gradients(sample)
                exact.input, exact.args = in_float64(sample.input), tuple(in_float64(a) for a in sample.args)
                exact.kwargs = {k: in_float64(v) for k, v in sample.kwargs.items()}
                of_exact = bound(torch_name, parameters, exact, collections.Counter())
                for constant in without:
                    of_exact[constant].requires_grad_(False)
                record["exact"], _ = evaluated(op, exact, of_exact, cotangents or None)
            except Exception:
                pass
        if any(o.dtype in NOT_HELD for o in record.get("outputs", [])):
            self.skipped["complex results that files do not hold"] += 1
            return
        draws = arguments.get("training", True) and arguments.get("p", 0.5) if "dropout" in torch_name else arguments.get("dropout_p", 0.0)
        draws = draws or (torch_name == "nn.functional.rrelu" and arguments.get("training", False))
        draws = draws or (torch_name in RANDOM and "dropout" not in torch_name)
        given = dict(arguments)
        if draws and "generator" in parameters.names:
            given["generator"] = torch.tensor([1, 2])
            record["random"] = True
        record["arguments"] = {
            k: (f"{v.dtype}{list(v.shape)}" if isinstance(v, torch.Tensor) else repr(v)[:80]) for k, v in arguments.items()
        }
        if torch_name in CHOOSES and not arguments.get("stable") and not row["name"].endswith("_of_all"):
            dim = 0 if torch_name == "msort" else arguments.get("dim", -1)
            record["chosen_from"] = (arguments["input"].detach(), dim, CHOOSES[torch_name])
        grad = {"cotangents": [f"{name}/d{i}" for i in range(len(cotangents))]}
        try:
            if "no gradient" in record:
                # The outputs are one case, and that there is no gradient is another.
                refused = {"op": torch_name, "refused": record.pop("no gradient"), "arguments": record["arguments"]}
                inputs = [n for n, _ in differentiable_inputs(arguments)]
                self.writer.case(f"{name}/gradient", row["name"], given, {**grad, "inputs": inputs})
                self.expected[f"{name}/gradient"] = refused
            with_grad = {**grad, "inputs": list(record["gradients"])} if "gradients" in record else None
            self.writer.case(name, row["name"], given, with_grad)
        except Unrepresentable as error:
            self.skipped[str(error)] += 1
            return
        for i, cotangent in enumerate(cotangents):
            self.writer.tensors[f"{name}/d{i}"] = cotangent.contiguous()
        self.expected[name] = record
        self.dropped.update(dropped)
        self.without.update(f"{torch_name}, {argument}" for argument in without)

    def take_all(self, torch_name, found, dtypes):
        for info, op in found:
            for dtype_name in dtypes:
                dtype = DTYPES[dtype_name]
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
                    if (torch_name, info.variant_test_name) in PREPARED:
                        op, prepare = PREPARED[torch_name, info.variant_test_name]
                        with torch.no_grad():
                            sample.input, sample.args = prepare(sample.input, *sample.args), ()
                    name = f"{torch_name}/{info.variant_test_name or 'plain'}/{dtype_name}/{kind}{number}"
                    self.take(name, torch_name, op, sample, dtype, seen)

    def results(self, fulgurite, executors):
        """What `fulgurite ops run` says of the cases, and its tensors."""
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            self.writer.write(folder)
            return cases.run(fulgurite, folder, executors), load_file(folder / "out" / "results.safetensors")


def as_known(known, differences, whole):
    """Gives each difference the reason that the list `known` has for it, and returns what the list says and was not found."""
    counts = collections.Counter()
    for op, found in differences.items():
        for d in found:
            for i, entry in enumerate(known):
                if entry["op"] == op and re.search(entry["why"], d["why"]):
                    d["because"] = entry["because"]
                    counts[i] += 1
                    break
    if not whole:
        return []
    return [
        f"{entry['op']}: {counts[i]} cases, known are {entry['cases']}: {entry['why']}"
        for i, entry in enumerate(known)
        if entry["op"] in differences and counts[i] != entry["cases"]
    ]


def kind_of(why):
    """How a case differs, in a word for the summary."""
    for kind, pattern in {"refused by PyTorch alone": r"^PyTorch refuses", "in gradients": r"^(gradient of|has no gradient)"}.items():
        if re.search(pattern, why):
            return kind
    return "in outputs" if re.search(r"^(output \d|has no output)", why) else "refused here alone"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fulgurite", default="target/debug/fulgurite")
    parser.add_argument("--op", action="append", default=[], help="a name, PyTorch's or the operator's, or several with commas")
    parser.add_argument("--dtype", action="append", default=[], choices=list(DTYPES))
    parser.add_argument("--executors")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--show", type=int, default=3, help="differences shown for each operator")
    parser.add_argument("--least", type=float, default=0.98, help="the least share of cases that must agree, e.g. 0.98")
    parser.add_argument("--known", type=Path, default=Path(__file__).parent / "known.json", help="differences that have a reason")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    chosen, own = counterparts(options.fulgurite)
    only = {name for names in options.op for name in names.split(",")}
    found = {
        name: inputs_of(invocations.op_db, name) for name, row in sorted(chosen.items()) if not only or only & {name, row["name"]}
    }
    names = [name for name in found if found[name]]
    agree, tested, differences = collections.Counter(), collections.Counter(), {}
    skipped, dropped, without = (collections.Counter() for _ in range(3))
    for first in range(0, len(names), AT_ONCE):
        collected = Collected(chosen, own)
        for name in names[first : first + AT_ONCE]:
            collected.take_all(name, found[name], options.dtype or USUAL)
        reports, tensors = collected.results(options.fulgurite, options.executors)
        for name in names[first : first + AT_ONCE]:
            differences[name] = []
        for case, record in collected.expected.items():
            why = difference(case, record, reports[case], tensors)
            tested[record["op"]] += 1
            agree[record["op"]] += why is None
            if why is not None:
                differences[record["op"]].append({"case": case, "why": why, "arguments": record["arguments"]})
        for total, part in ((skipped, collected.skipped), (dropped, collected.dropped), (without, collected.without)):
            total.update(part)
    known = json.loads(options.known.read_text())
    changed = as_known(known, differences, whole=not options.dtype)
    for op in names:
        print(f"{op}: {agree[op]} of {tested[op]}")
        for d in sorted(differences[op], key=lambda d: "because" in d)[: options.show]:
            print(f"    {d['case']}: {d['why']}  {d['arguments']}" + (f"  known: {d['because']}" if "because" in d else ""))
    print(f"not in PyTorch's database: {', '.join(name for name in found if not found[name]) or 'none'}")
    for reason, count in skipped.most_common():
        print(f"not taken, {reason}: {count}")
    for name, count in dropped.most_common():
        print(f"compared without `{name}`, as {DROPPED[name]}: {count}")
    for name, count in without.most_common():
        print(f"compared without a gradient that PyTorch does not have, {name}: {count}")
    all_of = [d for found in differences.values() for d in found]
    kinds = collections.Counter(kind_of(d["why"]) for d in all_of)
    unknown = [d for d in all_of if "because" not in d]
    for op in names:
        count = sum("because" not in d for d in differences[op])
        if count:
            print(f"not known: {op}: {count} cases")
    for text in changed:
        print(f"not as known: {text}")
    total = sum(tested.values())
    share = sum(agree.values()) / max(total, 1)
    print("; ".join(f"{kind}: {count}" for kind, count in kinds.most_common()) or "nothing differs")
    print(
        f"{len(names)} operators, {total} cases, {sum(agree.values())} agree: {100 * share:.2f} %; "
        f"{len(all_of) - len(unknown)} differ for known reasons, {len(unknown)} for others"
    )
    if options.report:
        options.report.write_text(json.dumps(differences, indent=1))
    sys.exit(0 if share >= options.least and total > 0 and not unknown and not changed else 1)


def near(got, expected, exact, tolerance):
    """Why a tensor differs from PyTorch's, or None: it may be closer to the exact result instead."""
    why = close(got, expected, tolerance)
    if why is None or exact is None or got.shape != expected.shape or got.dtype != expected.dtype:
        return why
    if got.dtype.is_complex:
        got, expected, exact = (torch.view_as_real(t) for t in (got, expected, exact.to(got.dtype)))
    g, e, x = got.double(), expected.double(), exact.to(got.dtype).double()
    scale = float(x[torch.isfinite(x)].abs().max()) if bool(torch.isfinite(x).any()) else 0.0
    same = (g == e) | (g.isnan() & e.isnan())
    fine = same | ((g - x).abs() <= (e - x).abs() + tolerance * max(scale, 1e-30)) | ((g == x) | (g.isnan() & x.isnan()))
    # A result that is infinite or NaN in PyTorch alone: intermediate results overflowed there.
    fine |= torch.isfinite(g) & ~torch.isfinite(e) & ((g - x).abs() <= 4 * tolerance * x.abs().clamp(min=1e-30))
    return None if bool(fine.all()) else why


def at_positions(values, dim, places):
    """The elements of `values` at positions along `dim`, of which the result may have lost the dimension."""
    if values.dim() == 0:
        return values
    return values.gather(dim, places if places.dim() == values.dim() else places.unsqueeze(dim))


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
        truth = exact["outputs"][i] if exact else None
        if "chosen_from" in record and i == record["chosen_from"][2] and got.shape == output.shape and got.dtype == output.dtype:
            values, dim, _ = record["chosen_from"]
            got, output, truth = at_positions(values, dim, got), at_positions(values, dim, output), None
        if random:
            if (tuple(got.shape), got.dtype) != (tuple(output.shape), output.dtype):
                return f"output {i} is {got.dtype}{list(got.shape)}, expected {output.dtype}{list(output.shape)}"
            continue
        why = near(got, output, truth, TOLERANCE.get(output.dtype, 0.0))
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
            got, gradient, truth = (g if g is None else over_equals(*record["chosen_from"][:2], g) for g in (got, gradient, truth))
        why = near(got, gradient, truth, 4 * TOLERANCE.get(gradient.dtype, 0.0))
        if why:
            return f"gradient of {input_name}: {why}"
    return None


if __name__ == "__main__":
    main()
