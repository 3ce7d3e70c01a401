"""Writes src/torch_names.txt, the public functions of PyTorch by their names below `torch.`, and
../command/src/ops_missing/torch_operators.txt, those of them that take or make tensors. Needs PyTorch.

    python3 ops-dsl/torch_names.py

A line of the second file is a name, or `NAME = OTHER` for another name of the same function: an alias, a method, or the form that
writes its operand. Which functions take tensors, and which are aliases, is what torch.overrides and torch's own tests say.
"""

import importlib
import inspect
import pathlib

import torch
import torch._prims
import torch.overrides
from torch.testing._internal.common_methods_invocations import op_db

MODULES = ["", "nn.functional", "special", "linalg", "fft", "nested", "sparse", "signal.windows"]


def functions(prefix, owner):
    for name in dir(owner):
        value = getattr(owner, name, None)
        if not name.startswith("_") and callable(value) and not inspect.isclass(value):
            yield prefix + name


names = set(functions("Tensor.", torch.Tensor))
names.update("ops.prims." + name for name in torch._prims.__all__)
for module in MODULES:
    owner = importlib.import_module(f"torch.{module}") if module else torch
    names.update(functions(f"{module}." if module else "", owner))

path = pathlib.Path(__file__).parent / "src" / "torch_names.txt"
path.write_text("\n".join(sorted(names)) + "\n")
print(f"{len(names)} names of PyTorch {torch.__version__}")


def resolved(name):
    found = torch
    for part in name.split("."):
        found = getattr(found, part)
    return found


TAKING, IGNORED = torch.overrides.get_testing_overrides(), torch.overrides.get_ignored_functions()
ENTRIES = {info.name for info in op_db}
ALIASES = {alias.name: info.name for info in op_db for alias in info.aliases or []}
# Functions that PyTorch has under a second name, which its tests do not say: their documentation does, or their results.
ALIASES |= {
    "slogdet": "linalg.slogdet",
    "pinverse": "linalg.pinv",
    "lu": "linalg.lu_factor",
    "special.modified_bessel_i0": "i0",
    "special.modified_bessel_i1": "special.i1",
    "special.gammainc": "igamma",
    "special.gammaincc": "igammac",
}


def is_operator(name):
    """Whether a function takes tensors, or makes them: those have an element type."""
    # Names of types are callable too.
    if name.startswith("ops.prims.") or name.split(".")[-1][0].isupper():
        return False
    function, base = resolved(name), name.removesuffix("_")
    if function in TAKING or {name, base} & ENTRIES or name in ALIASES or name.startswith(("signal.windows.", "sparse.", "nested.")):
        return True
    if base != name and base in names:
        return is_operator(base)
    signature = (inspect.getdoc(function) or "").split("\n\n")[0]
    return function in IGNORED and ("dtype" in signature or "-> Tensor" in signature)


def links(name):
    """Other names of the same function: what it is an alias of, the form without `_`, the function that a method is."""
    short = name
    for prefix in ("Tensor.", "nn.functional.", "special."):
        short = short.removeprefix(prefix)
    base = name if name.endswith("__") else name.removesuffix("_")
    return {other for other in (ALIASES.get(name), base, short) if other in names and other != name}


def grouped(chosen):
    """Each name with the one that its function is listed by: that of torch's tests, or the shortest."""
    group = {name: {name} for name in chosen}
    for name in chosen:
        for other in links(name) & group.keys():
            if group[name] is not group[other]:
                group[name] |= group[other]
                for member in group[name]:
                    group[member] = group[name]
    rank = lambda name: (name not in ENTRIES, "." in name, name.endswith("_"), len(name), name)
    return {name: min(group[name], key=rank) for name in chosen}


lines = []
for name, other in grouped(sorted(filter(is_operator, names))).items():
    lines.append(name if other == name else f"{name} = {other}")
path = pathlib.Path(__file__).parent.parent / "command" / "src" / "ops_missing" / "torch_operators.txt"
path.parent.mkdir(exist_ok=True)
header = f"# PyTorch {torch.__version__.split('+')[0]}, written by ops-dsl/torch_names.py\n"
path.write_text(header + "\n".join(lines) + "\n")
print(f"{len(lines)} of them take or make tensors")
