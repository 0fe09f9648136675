"""The environment line above all figures: the machine and versions on which they were measured."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

from brokers.native import finder


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _memory_gib() -> int:
    kib = int(Path("/proc/meminfo").read_text().split("MemTotal:")[1].split()[0])
    return round(kib / 1024 / 1024)


def _broker() -> str:
    return "compiled broker (make native)" if finder.usable_build() else "broker of plain modules"


def line() -> str:
    """Returns one line: cores, CPU, memory, kernel, Python, and the libraries of the hot path and of the load."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("uvloop", "crc32c", "confluent-kafka"))
    return (
        f"environment: {os.cpu_count()} × {_cpu_model()}, {_memory_gib()} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}, {libraries}, {_broker()}; client and server share the cores"
    )
