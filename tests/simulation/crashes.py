"""Remains of a recorded run after a crash of the process or of the machine.

A killed process loses nothing that a system call has done; the call in progress may have written a part. A machine that
loses power keeps synced data, and any part of the rest: of each file some of the writes since its last fsync, torn or
as zeros; of each directory some of the changes since its last sync, in their order, which file systems preserve (a
journal, a log or copy on write). Files and directories are independent of each other.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final

from tests.simulation.tree import NAMES, SYNC, TRUNCATE, WRITE, Op, Tree

Listing = dict[str, bytes | None]

PAGE_BYTES: Final = 512  # the unit of a write that reaches a disk as a whole


def after_kill(start: Tree, ops: Sequence[Op], step: int) -> Iterator[Listing]:
    """Yields the remains if the process died before operation `step`, or in the middle of it."""
    tree = start.copy()
    for op in ops[:step]:
        tree.apply(op)
    yield tree.listing()
    if step < len(ops) and ops[step].kind == WRITE:
        write = ops[step]
        for size in {1, len(write.data) // 2, len(write.data) - 1} - {0, len(write.data)}:
            torn_tree = tree.copy()
            torn_tree.apply(write._replace(data=write.data[:size]))
            yield torn_tree.listing()


class Unsynced:
    """Operations before a step: the durable ones applied, and the others by inode."""

    def __init__(self, start: Tree, ops: Sequence[Op], step: int) -> None:
        unsynced: dict[tuple[int, bool], list[Op]] = {}
        durable_ids: set[int] = set()
        for op in ops[:step]:
            if op.kind == SYNC:
                for is_names in (False, True):
                    durable_ids.update(map(id, unsynced.pop((op.node, is_names), ())))
            else:
                unsynced.setdefault((op.node, op.kind in NAMES), []).append(op)
        self.data = {node: result for (node, is_names), result in unsynced.items() if not is_names}
        self.names = {node: result for (node, is_names), result in unsynced.items() if is_names}
        self.durable = start.copy()
        for op in ops[:step]:
            if id(op) in durable_ids:
                self.durable.apply(op)

    def __bool__(self) -> bool:
        return bool(self.data or self.names)

    def listing(self, names: dict[int, list[Op]], data: dict[int, list[Op]], zeroed: Sequence[Op] = ()) -> Listing:
        """Returns the listing with some unsynced operations; `zeroed` writes only extend their files with zeros."""
        tree = self.durable.copy()
        for node_ops in names.values():
            for op in node_ops:
                tree.apply(op)
        for node_ops in data.values():
            for op in node_ops:
                tree.apply(op)
        for op in zeroed:
            tree.apply(op._replace(data=bytes(len(op.data))))
        return tree.listing()


def after_power_loss(start: Tree, ops: Sequence[Op], step: int, dice: random.Random, draws: int) -> Iterator[Listing]:
    """Yields the remains after a power loss: the extremes, then `draws` random ones."""
    unsynced = Unsynced(start, ops, step)
    if not unsynced:
        return
    none_left: dict[int, list[Op]] = {}
    yield unsynced.listing(none_left, none_left)
    yield unsynced.listing(unsynced.names, none_left)
    yield unsynced.listing(none_left, unsynced.data)
    writes = [op for ops_of in unsynced.data.values() for op in ops_of if op.kind == WRITE]
    yield unsynced.listing(unsynced.names, none_left, writes)
    for _ in range(draws):
        yield _random_remains(unsynced, dice)


def _random_remains(unsynced: Unsynced, dice: random.Random) -> Listing:
    names = {node: ops[: dice.randint(0, len(ops))] for node, ops in unsynced.names.items()}
    data: dict[int, list[Op]] = {}
    for node, ops in unsynced.data.items():
        kept_ops = ops[: dice.randint(0, len(ops))]
        data[node] = [_with_zeroed_pages(op, dice) for op in kept_ops] if dice.random() < 0.5 else kept_ops
        if len(kept_ops) < len(ops) and ops[len(kept_ops)].kind == WRITE and dice.random() < 0.5:
            torn_write = ops[len(kept_ops)]
            data[node].append(torn_write._replace(data=torn_write.data[: dice.randint(0, len(torn_write.data))]))
    return unsynced.listing(names, data)


def _with_zeroed_pages(op: Op, dice: random.Random) -> Op:
    """Returns a write with some pages lost, which read as zeros."""
    if op.kind == TRUNCATE or dice.random() < 0.5:
        return op
    content = bytearray(op.data)
    for position in range(0, len(content), PAGE_BYTES):
        if dice.random() < 0.5:
            content[position : position + PAGE_BYTES] = bytes(len(content[position : position + PAGE_BYTES]))
    return op._replace(data=bytes(content))
