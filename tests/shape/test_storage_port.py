"""The storage changes a disk only in ways that the recording disk sees, or the crash matrix would not try them."""

from __future__ import annotations

import ast
from pathlib import Path

from config.environment import BASE_DIR
from tests.simulation.disk import PORT

STORAGE = BASE_DIR / "brokers/engine/storage"
CHANGES_NOTHING = {
    "O_APPEND", "O_CLOEXEC", "O_CREAT", "O_DIRECTORY", "O_RDONLY", "O_RDWR", "O_TRUNC", "O_WRONLY",
    "SEEK_CUR", "fspath", "fstat", "path", "pread", "scandir", "stat", "environ", "getpid", "nice", "cpu_count",
    "sched_getaffinity", "getppid", "setsid", "devnull",
}  # fmt: skip
# Of `Path`: reading, and what goes through the functions of `os` itself.
PATH_WRITES = {"write_bytes", "write_text", "touch", "symlink_to", "hardlink_to", "chmod"}
# A time stamp; what it says is only a hint for retention of records without times.
MEANT = {("compaction/writing.py", "utime")}


def test_the_storage_changes_a_disk_only_through_the_port() -> None:
    strange = []
    for path in sorted(STORAGE.rglob("*.py")):
        name = path.relative_to(STORAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Attribute):
                continue
            if isinstance(node.value, ast.Name) and node.value.id == "os":
                if node.attr not in {*PORT, *CHANGES_NOTHING} and (name, node.attr) not in MEANT:
                    strange.append(f"{name}:{node.lineno}: os.{node.attr}")
            elif node.attr in PATH_WRITES or (node.attr == "open" and _writes(path, node)):
                strange.append(f"{name}:{node.lineno}: {node.attr}")
    assert not strange, strange


def _writes(path: Path, node: ast.Attribute) -> bool:
    """True if `Path(...).open(...)` gets a mode that writes."""
    line = path.read_text(encoding="utf-8").splitlines()[node.lineno - 1]
    return any(f'"{mode}' in line for mode in ("w", "a", "x", "r+"))
