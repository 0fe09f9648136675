"""Identity of an operating system process, unique among all processes that had its pid.

Does not use Django, because it runs before Django starts.
"""

from __future__ import annotations

from pathlib import Path

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
# In /proc/PID/stat after the name, which may contain any character: ticks from the boot to the start of the process.
START_TICKS_FIELD = 19


def identity_of(pid: int) -> str:
    """Returns the boot id and the ticks from boot to the start of the process: unique among processes with this pid,
    and independent of clock changes. Raises `OSError` if there is no such process.
    """
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return f"{BOOT_ID_FILE.read_text().strip()} {fields[START_TICKS_FIELD]}"
