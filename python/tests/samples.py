"""The samples of all operators, as `fulgurite ops samples` writes them."""

import json
import math
import os
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).parents[2]


def folder():
    """A folder with samples; `None`, with the reason, if there is no command to write them."""
    given = os.environ.get("FULGURITE_SAMPLES")
    if given:
        return pathlib.Path(given), ""
    command = pathlib.Path(os.environ.get("FULGURITE", ROOT / "target/debug/fulgurite"))
    if not command.is_file():
        return None, f"{command} is not there: cargo build --workspace --bins"
    out = pathlib.Path(tempfile.mkdtemp())
    subprocess.run([command, "ops", "samples", "--out", out], check=True, stdout=subprocess.DEVNULL)
    return out, ""


class Samples:
    """Cases with their tensors, as tensors of PyTorch."""

    def __init__(self, path):
        import torch

        self.cases = json.loads((path / "cases.json").read_text())["cases"]
        data = (path / "tensors.safetensors").read_bytes()
        size = int.from_bytes(data[:8], "little")
        self._header = json.loads(data[8 : 8 + size])
        self._data = bytearray(data[8 + size :])
        self._dtypes = {"BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I32": torch.int32, "I64": torch.int64,
                        "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64,
                        "C64": torch.complex64}

    def tensor(self, key):
        import torch

        entry = self._header[key]
        dtype, shape, (begin, end) = self._dtypes[entry["dtype"]], entry["shape"], entry["data_offsets"]
        if begin == end:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self._data[begin:end], dtype=dtype).reshape(shape).clone()

    def value(self, value):
        """An argument as PyTorch takes it."""
        import torch

        if isinstance(value, list):
            return [self.value(item) for item in value]
        if not isinstance(value, dict):
            return value
        ((kind, what),) = value.items()
        if kind == "tensor":
            return self.tensor(what)
        if kind == "dtype":
            return getattr(torch, what)
        return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}.get(what, what)
