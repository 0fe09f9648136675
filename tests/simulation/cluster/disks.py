"""Disks of a simulated cluster, each recorded by `tests.simulation.disk` and breakable by itself.

The functions of `os` are replaced once for a whole run; they use the disk of the process that is running.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

from tests.simulation.cluster.clock import Killed, ProcessLoop, World
from tests.simulation.crashes import Unsynced
from tests.simulation.disk import PORT, Disk
from tests.simulation.tree import SYNC, WRITE, Op, materialise

Real = Callable[..., Any]


class ProcessDisk(Disk):
    """Disk of a process. After `dies_in` operations the process is killed, in the middle of a write; None for never.

    With `fails` the next fsync raises EIO.
    """

    def __init__(self, top: Path) -> None:
        super().__init__(top)
        self.dies_in: int | None = None
        self.is_dead = False
        self.fails = False
        self.process: ProcessLoop | None = None

    def _die(self) -> NoReturn:
        self.is_dead = True
        if self.process is not None:
            self.process.is_dying = True
        raise Killed

    def _name_of(self, node: int) -> str:
        return f"inode {node}"

    def _perform(self, op: Op, act: Callable[[], Any]) -> Any:
        self._check_alive(op)
        answer = act()
        self.tree.apply(op)
        self.ops.append(op)
        return answer

    def _check_alive(self, op: Op) -> None:
        """Raises the error or death that replaces an operation, if any."""
        if self.is_dead:
            raise Killed
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in < 0:
                self._die()
        if self.fails and op.kind == SYNC:
            raise OSError(errno.EIO, "simulated")

    def _write(self, real: Real, fd: int, data: Any) -> int:
        if self.dies_in == 0 and len(data) > 1 and fd in self._nodes and not self.is_dead:
            # The last operation of this process, of which it does half.
            self.dies_in = None
            super()._write(real, fd, bytes(data)[: len(data) // 2])
            self._die()
        return super()._write(real, fd, data)


class Disks:
    """Context manager in which the functions of `os` use the disk of the running process, or `current` for checkers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.current: ProcessDisk | None = None
        self._real: dict[str, Real] = {}

    def __enter__(self) -> Disks:
        for name in PORT:
            real = self._real[name] = getattr(os, name)
            act = getattr(ProcessDisk, f"_{'rename' if name == 'replace' else name}")
            setattr(os, name, self._routed(act, real))
        return self

    def __exit__(self, *_: object) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)

    def _routed(self, act: Real, real: Real) -> Real:
        world = self._world

        def call(*arguments: Any, **more: Any) -> Any:
            disk = self.current
            if disk is None and world.turn is not None:
                disk = world.turn.disk
            return real(*arguments, **more) if disk is None else act(disk, real, *arguments, **more)

        return call


NOTHING_KEPT: Final = 0.3


def after_power_cut(disk: ProcessDisk, dice: random.Random, home: Path) -> ProcessDisk:
    """Returns the disk after a power cut, in a directory of its own.

    Unsynced changes may be left in part: of each file and of each directory the first ones.
    """
    unsynced = Unsynced(disk.start, disk.ops, len(disk.ops))
    names: dict[int, list[Op]] = {}
    data: dict[int, list[Op]] = {}
    if dice.random() > NOTHING_KEPT:
        names = {node: ops[: dice.randint(0, len(ops))] for node, ops in unsynced.names.items()}
        data = {node: ops[: dice.randint(0, len(ops))] for node, ops in unsynced.data.items()}
        for node, kept in data.items():
            lost = unsynced.data[node][len(kept) :]
            if lost and lost[0].kind == WRITE and dice.random() < 0.5:
                torn = lost[0]
                data[node] = [*kept, torn._replace(data=torn.data[: dice.randint(0, len(torn.data))])]
    listing = unsynced.listing(names, data)
    shutil.rmtree(disk.top)
    materialise(listing, home)
    return ProcessDisk(home)
