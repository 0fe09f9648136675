"""What tells a process from every other one that has, or had, its pid. Without Django, for whoever starts before it."""

from __future__ import annotations

from pathlib import Path

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
# In /proc/PID/stat behind the name, which may hold anything: the ticks between the machine's start and the process'.
BORN_AT_FIELD = 19


def identity_of(pid: int) -> str:
    """The start of the machine and the ticks since: no other process with this pid has it, no change of the clock
    moves it. Raises `OSError` when there is no such process.
    """
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return f"{BOOT_ID_FILE.read_text().strip()} {fields[BORN_AT_FIELD]}"
