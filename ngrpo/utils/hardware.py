"""The hardware that a process computes on, in words."""

import os
import platform
from pathlib import Path

import torch


def hardware(accelerator: str, processes: int) -> str:
    """Returns what a run computes on: "2 x NVIDIA H200 (141 GB)", or "Intel Xeon, 8 cores".

    Args:
        accelerator: of the trainer: cpu leaves a GPU alone, auto takes one.
        processes: of the training; one a GPU.
    """
    if accelerator == "cpu" or not torch.cuda.is_available():
        return f"{_cpu_name()}, {_count(_usable_cores(), 'core')}"
    found = torch.cuda.get_device_properties(0)
    return f"{processes} x {found.name} ({found.total_memory / 1e9:z.0f} GB)"


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
