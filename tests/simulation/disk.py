"""Disk that records all changes, so that any crash can be replayed afterwards (LOG-41, TST-1).

The storage uses real files through the functions of `os`. While `recording`, these functions also record each change as
an operation on inodes and directory entries. The remains of a crash are then a choice among these operations
(`tests.simulation.crashes`). `before` is called before every operation and may raise an error of the disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

from tests.simulation.tree import CREATE, MKDIR, RENAME, SYNC, TOP, TRUNCATE, UNLINK, WRITE, Op, Tree

# All functions with which the storage changes a disk (tests/shape/test_storage_port.py).
PORT: Final = (
    "open", "close", "write", "pwrite", "ftruncate", "fsync", "fdatasync",
    "rename", "replace", "unlink", "mkdir", "rmdir",
)  # fmt: skip
ELSEWHERE: Final = (-1, "")

Real = Callable[..., Any]


class Disk:
    """A recorded directory `top`; `ops` are the changes since `start`, in order."""

    def __init__(self, top: Path) -> None:
        """Begins with the contents of the existing directory `top`, which count as durable."""
        self.top = top
        self.ops: list[Op] = []
        self.before_operation: Callable[[Op], None] | None = None
        self.tree = Tree()
        self._last_node = TOP
        self._nodes: dict[int, int] = {}  # inodes of open descriptors
        self._load_directory(top, TOP)
        self.start = self.tree.copy()

    def _load_directory(self, path: Path, node: int) -> None:
        for entry in sorted(path.iterdir()):
            child = self.tree.directories[node][entry.name] = self._new_node()
            if entry.is_dir():
                self.tree.directories[child] = {}
                self._load_directory(entry, child)
            else:
                self.tree.files[child] = bytearray(entry.read_bytes())

    def _new_node(self) -> int:
        self._last_node += 1
        return self._last_node

    def end_process(self) -> None:
        """Closes all descriptors, as the end of a process does."""
        for fd in list(self._nodes):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._nodes.clear()

    @contextlib.contextmanager
    def recording(self) -> Iterator[Disk]:
        """Replaces the functions of `os` in PORT; changes outside of `top` are not recorded."""
        with contextlib.ExitStack() as patches:
            for name in PORT:
                act = getattr(self, f"_{'rename' if name == 'replace' else name}")
                patches.enter_context(mock.patch.object(os, name, _with_real(act, getattr(os, name))))
            yield self

    # -- finding things -----------------------------------------------------------------------------------------------

    def _locate(self, path: Any, dir_fd: int | None = None) -> tuple[int, str]:
        """Returns (directory, name) of a path, ELSEWHERE if it is not below `top`."""
        if dir_fd is not None:
            return self._nodes.get(dir_fd, -1), os.fspath(path)
        text, top = os.fspath(path), os.fspath(self.top)
        if text == top:
            return TOP, ""
        if not isinstance(text, str) or not text.startswith(top + "/"):
            return ELSEWHERE
        *parents, name = text[len(top) + 1 :].split("/")
        node = TOP
        for part in parents:
            node = self.tree.directories.get(node, {}).get(part, -1)
        return node, name

    def _node_at(self, place: tuple[int, str]) -> int:
        node, name = place
        return self.tree.directories.get(node, {}).get(name, -1) if name else node

    def _perform(self, op: Op, act: Callable[[], Any]) -> Any:
        if self.before_operation is not None:
            self.before_operation(op)
        answer = act()
        self.tree.apply(op)
        self.ops.append(op)
        return answer

    # -- the port -----------------------------------------------------------------------------------------------------

    def _open(self, real: Real, path: Any, flags: int, *mode: int, dir_fd: int | None = None) -> int:
        def act() -> int:
            return real(path, flags, *mode, dir_fd=dir_fd)

        place = self._locate(path, dir_fd)
        if place[0] < 0:
            return act()
        node = self._node_at(place)
        if node < 0 and flags & os.O_CREAT:
            node = self._new_node()
            fd = self._perform(Op(CREATE, place[0], place[1], node), act)
        elif self.tree.files.get(node) and flags & os.O_TRUNC:
            fd = self._perform(Op(TRUNCATE, node, place[1]), act)
        else:
            fd = act()
        self._nodes[fd] = node
        return fd

    def _close(self, real: Real, fd: int) -> None:
        self._nodes.pop(fd, None)
        real(fd)

    def _write(self, real: Real, fd: int, data: Any) -> int:
        node = self._nodes.get(fd)
        if node is None:
            return real(fd, data)
        # The storage only appends: to a log (O_APPEND), or to a file that it has just truncated.
        return self._record_write(node, len(self.tree.files[node]), data, lambda: real(fd, data))

    def _pwrite(self, real: Real, fd: int, data: Any, position: int) -> int:
        node = self._nodes.get(fd)
        if node is None:
            return real(fd, data, position)
        return self._record_write(node, position, data, lambda: real(fd, data, position))

    def _record_write(self, node: int, position: int, data: Any, act: Callable[[], int]) -> int:
        op = Op(WRITE, node, self._name_of(node), position=position, data=bytes(data))
        return self._perform(op, act) if data else act()

    def _ftruncate(self, real: Real, fd: int, length: int) -> None:
        node = self._nodes.get(fd)
        if node is None or len(self.tree.files[node]) == length:
            real(fd, length)
        else:
            self._perform(Op(TRUNCATE, node, self._name_of(node), position=length), lambda: real(fd, length))

    def _fsync(self, real: Real, fd: int) -> None:
        node = self._nodes.get(fd)
        if node is None:
            real(fd)
        else:
            self._perform(Op(SYNC, node, self._name_of(node)), lambda: None)

    _fdatasync = _fsync

    def _rename(self, real: Real, source: Any, target: Any) -> None:
        (node, name), (target_node, target_name) = self._locate(source), self._locate(target)
        if node < 0:
            real(source, target)
        else:
            op = Op(RENAME, node, name, target_node=target_node, target=target_name)
            self._perform(op, lambda: real(source, target))

    def _unlink(self, real: Real, path: Any, *, dir_fd: int | None = None) -> None:
        node, name = self._locate(path, dir_fd)
        if node < 0:
            real(path, dir_fd=dir_fd)
        else:
            self._perform(Op(UNLINK, node, name), lambda: real(path, dir_fd=dir_fd))

    _rmdir = _unlink

    def _mkdir(self, real: Real, path: Any, *mode: int) -> None:
        node, name = self._locate(path)
        if node < 0:
            real(path, *mode)
        else:
            self._perform(Op(MKDIR, node, name, self._new_node()), lambda: real(path, *mode))

    def _name_of(self, node: int) -> str:
        """Returns the name of an inode for the history."""
        for entries in self.tree.directories.values():
            for name, child in entries.items():
                if child == node:
                    return name
        return "an unnamed file" if node in self.tree.files else "the root"


def _with_real(act: Callable[..., Any], real: Real) -> Callable[..., Any]:
    return lambda *arguments, **more: act(real, *arguments, **more)
