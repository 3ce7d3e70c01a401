"""Makes PyTorch golden vectors for operators: outputs, and gradients for random cotangents.

    fulgurite ops samples --out CASES                      # writes CASES/cases.json and CASES/tensors.safetensors
    python tests/golden/operators.py CASES [--out FOLDER]  # writes golden.json and golden.safetensors.gz, here by default

Needs torch (CPU) and safetensors. The same cases and the same PyTorch give the same files, byte for byte.

A case:

    {"id": "gelu/0", "op": "gelu", "torch": "nn.functional.gelu",
     "args": {"input": {"tensor": "gelu/0/input"}, "approximate": "tanh"},
     "grad": {"cotangents": ["gelu/0/d0"], "inputs": ["input"]}}

`torch` is a name under `torch.` or one of `ADAPTERS`; "Tensor.NAME" is the method, called on the argument `self` or `input`.
Arguments have PyTorch's names. A value is {"tensor": KEY}, {"dtype": "float32"}, {"number": "inf" | "-inf" | "nan"}, a number,
a boolean, a string, null, or a list of values. `grad` may be missing. A cotangent that the cases' tensors do not hold is drawn
here, standard normal, from the case's id; outputs that do not depend on the inputs of `grad` have none.

golden.safetensors.gz holds ID/out0, ID/out1, ... in the order of PyTorch's results, cotangents ID/d0, ... by output, and
gradients ID/grad/INPUT (ID/grad/INPUT.0, ... where the argument is a list of tensors).

golden.json says which PyTorch made them, and for each case a digest of what went in, so that a changed sample is found stale;
and it lists the cases without vectors, with the reason. The digest is the SHA-256 of `id`, `torch`, `args`, and `grad.inputs`
(null without `grad`), one after the other, each as: null `n`; a boolean `b0`, `b1`; an integer `i` DECIMAL `;`; another number `f`
and its f64, little-endian; a text `s` BYTES `;` and its UTF-8; a list `l` LENGTH `;` and its items; a map `m` LENGTH `;` and, by
key, the key as a text and the value; but {"tensor": KEY} is `t`, the torch dtype as a text, the shape as a list, and the
values' bytes, row-major, little-endian.
"""

import argparse
import gzip
import hashlib
import json
import struct
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch.optim.adamw import adamw as adamw_step

VERSION = 1


class CaseError(Exception):
    """A case that does not follow the format: a fault of the exporter, which ends the run."""


# Functions whose Python signature does not take its arguments by name, or that torch has only as a part of something else.


def adamw(param, grad, exp_avg, exp_avg_sq, step, lr, beta1, beta2, eps, weight_decay):
    """One AdamW step, `step` counted from 1. Results: weight, first moment, second moment."""
    state = [t.clone() for t in (param, exp_avg, exp_avg_sq)]
    adamw_step(
        [state[0]], [grad], [state[1]], [state[2]], [], [torch.tensor(float(step - 1))],
        foreach=False, capturable=False, differentiable=False, fused=False, amsgrad=False,
        beta1=beta1, beta2=beta2, lr=lr, weight_decay=weight_decay, eps=eps, maximize=False,
    )  # fmt: skip
    return tuple(state)


ADAPTERS = {
    "einsum": lambda equation, operands: torch.einsum(equation, *operands),
    "block_diag": lambda tensors: torch.block_diag(*tensors),
    "broadcast_tensors": lambda tensors: torch.broadcast_tensors(*tensors),
    "meshgrid": lambda tensors, indexing="ij": torch.meshgrid(*tensors, indexing=indexing),
    "Tensor.type_as": lambda input, other: input.type_as(other),
    "optim.AdamW": adamw,
}
RANDOM = {"nn.functional.dropout", "rand", "randn", "randint", "randperm", "bernoulli", "multinomial", "normal"}


def resolve(name):
    """The callable of a `torch` field, taking keyword arguments."""
    if name in ADAPTERS:
        return ADAPTERS[name]
    found = torch
    for part in name.split("."):
        if not hasattr(found, part):
            raise LookupError(f"torch has no {name}")
        found = getattr(found, part)
    if not name.startswith("Tensor."):
        return found

    def method(**arguments):
        receiver = "self" if "self" in arguments else "input"
        return found(arguments.pop(receiver), **arguments)

    return method


def value_of(value, tensors):
    """A case's argument as Python has it; tensors are copied."""
    if isinstance(value, list):
        return [value_of(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"tensor": str(key), **rest} if not rest:
            if key not in tensors:
                raise CaseError(f"tensors.safetensors has no {key!r}")
            return tensors[key].clone()
        case {"dtype": str(name), **rest} if not rest and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        case {"number": "inf" | "-inf" | "nan" as text, **rest} if not rest:
            return float(text)
    raise CaseError(f"{json.dumps(value)} is no value")


def tensor_bytes(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def feed(digest, value, tensors):
    """Feeds a value to a digest; the encoding is described at the top."""

    def text(content):
        content = content.encode()
        digest.update(b"s%d;" % len(content) + content)

    match value:
        case None:
            digest.update(b"n")
        case bool():
            digest.update(b"b%d" % value)
        case int():
            digest.update(b"i%d;" % value)
        case float():
            digest.update(b"f" + struct.pack("<d", value))
        case str():
            text(value)
        case list():
            digest.update(b"l%d;" % len(value))
            for item in value:
                feed(digest, item, tensors)
        case {"tensor": key}:
            tensor = value_of(value, tensors)
            digest.update(b"t")
            text(str(tensor.dtype).removeprefix("torch."))
            feed(digest, list(tensor.shape), tensors)
            digest.update(tensor_bytes(tensor))
        case dict():
            digest.update(b"m%d;" % len(value))
            for key in sorted(value):
                text(key)
                feed(digest, value[key], tensors)


def digest_of(case, tensors):
    digest = hashlib.sha256()
    for value in (case["id"], case["torch"], case["args"], (case.get("grad") or {}).get("inputs")):
        feed(digest, value, tensors)
    return digest.hexdigest()


def flatten(result):
    """Results in order: a function may return a tensor, a number or nested tuples."""
    if isinstance(result, (tuple, list)):
        return [tensor for item in result for tensor in flatten(item)]
    return [result if isinstance(result, torch.Tensor) else torch.as_tensor(result)]


def run(case, tensors):
    """Outputs, cotangents and gradients of one case under their names in the file."""
    case_id, grad = case["id"], case.get("grad") or {}
    # A copy for each place: a function may work in place, and a tensor given twice is two inputs.
    arguments = {name: value_of(value, tensors) for name, value in case["args"].items()}
    inputs = {}
    for name in grad.get("inputs", []):
        if name not in arguments:
            raise CaseError(f"`grad.inputs` names {name!r}, which is no argument")
        value = arguments[name]
        places = {f"{name}.{i}": item for i, item in enumerate(value)} if isinstance(value, list) else {name: value}
        if not all(isinstance(item, torch.Tensor) for item in places.values()):
            raise CaseError(f"`grad.inputs` names {name!r}, which is no tensor or list of tensors")
        inputs |= places
    for leaf in inputs.values():
        leaf.requires_grad_()
    outputs = flatten(resolve(case["torch"])(**arguments))
    results = {f"{case_id}/out{i}": output for i, output in enumerate(outputs)}
    if inputs:
        differentiable = [(i, output) for i, output in enumerate(outputs) if output.requires_grad]
        if not differentiable:
            raise RuntimeError("no output depends on the inputs to differentiate by")
        cotangents, names = [], grad.get("cotangents", [])
        generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(case_id.encode()).digest()[:7], "little"))
        for i, output in differentiable:
            drawn = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype)
            given = tensors.get(names[i]) if i < len(names) else None
            if given is not None and (given.shape, given.dtype) != (output.shape, output.dtype):
                raise CaseError(f"the cotangent {names[i]!r} is {given.dtype} {list(given.shape)}, the output is not")
            cotangents.append(drawn if given is None else given)
            results[f"{case_id}/d{i}"] = cotangents[-1]
        leaves = list(inputs.values())
        gradients = torch.autograd.grad([output for _, output in differentiable], leaves, cotangents, allow_unused=True)
        for name, leaf, gradient in zip(inputs, leaves, gradients):
            results[f"{case_id}/grad/{name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    for name, result in results.items():
        if result.is_complex() or result.is_sparse:
            raise RuntimeError(f"{name} is {result.dtype}, {result.layout}")
    # Of their own storage: safetensors writes no views.
    return {name: result.detach().clone(memory_format=torch.contiguous_format) for name, result in results.items()}


def read_cases(folder):
    """The cases and their tensors, checked as far as they do not concern torch."""
    path = folder / "cases.json"
    try:
        content = json.loads(path.read_text())
        tensors = load_file(folder / "tensors.safetensors")
    except (OSError, ValueError, RuntimeError) as error:
        sys.exit(f"{folder}: {error}")
    except Exception as error:  # the type that safetensors raises is not a public name everywhere
        sys.exit(f"{folder / 'tensors.safetensors'}: {error}")
    if not isinstance(content, dict) or content.get("version") != VERSION or not isinstance(content.get("cases"), list):
        sys.exit(f"{path}: expected a map with version {VERSION} and a list of cases")
    seen = set()
    for index, case in enumerate(content["cases"]):
        kinds = {"id": str, "op": str, "args": dict}
        wrong = [key for key, kind in kinds.items() if not isinstance(case, dict) or not isinstance(case.get(key), kind)]
        if wrong:
            sys.exit(f"{path}: case {index}: {', '.join(wrong)} missing or of the wrong type")
        if case["id"] in seen:
            sys.exit(f"{path}: case {index}: the id {case['id']!r} appears twice")
        seen.add(case["id"])
    return content["cases"], tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, help="folder with cases.json and tensors.safetensors")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write to")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    cases, tensors = read_cases(arguments.cases)
    made, skipped, vectors = {}, {}, {}
    for case in sorted(cases, key=lambda case: case["id"]):
        name = case.get("torch")
        if not name or name in RANDOM:
            skipped[case["id"]] = "draws random numbers" if name else "mirrors no torch function"
            continue
        try:
            digest = digest_of(case, tensors)
            results = run(case, tensors)
        except CaseError as error:
            sys.exit(f"{arguments.cases / 'cases.json'}: case {case['id']!r}: {error}")
        except Exception as error:  # whatever torch raises for arguments it does not take
            skipped[case["id"]] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
            continue
        made[case["id"]] = digest
        vectors |= results

    arguments.out.mkdir(parents=True, exist_ok=True)
    packed = gzip.compress(save(vectors), compresslevel=9, mtime=0)

    def lines(entries):
        return ",\n".join(f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())

    # A case a line, so that a diff shows which ones changed.
    listing = (
        f'{{\n  "version": {VERSION},\n  "torch": {json.dumps(torch.__version__)},\n'
        f'  "cases": {{\n{lines(made)}\n  }},\n  "skipped": {{\n{lines(skipped)}\n  }}\n}}\n'
    )
    for name, content in (("golden.safetensors.gz", packed), ("golden.json", listing.encode())):
        partial = arguments.out / (name + ".partial")
        partial.write_bytes(content)
        partial.replace(arguments.out / name)
    print(f"{len(made)} cases, {len(vectors)} tensors, {len(packed)} bytes; {len(skipped)} skipped")
    for case_id, reason in skipped.items():
        print(f"  skipped {case_id}: {reason}")


if __name__ == "__main__":
    main()
