"""Writes src/torch_names.txt: the public functions of PyTorch, by their names below `torch.`. Needs PyTorch.

    python3 ops-dsl/torch_names.py
"""

import importlib
import inspect
import pathlib

import torch
import torch._prims

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
