"""The name of what a benchmark runs on."""

import platform
from pathlib import Path

import torch


def processor(device: str) -> str:
    """The GPU where `device` is `cuda`, and else the processor, as the system names it."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()
