"""Model of files and directories as inodes and entries, and of single changes to them."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

CREATE, MKDIR, UNLINK, RENAME = "create", "mkdir", "unlink", "rename"
WRITE, TRUNCATE, SYNC = "write", "truncate", "sync"
NAMES: Final = frozenset({CREATE, MKDIR, UNLINK, RENAME})
TOP: Final = 0


class Op(NamedTuple):
    """One change. `node` is the written inode, or the directory with the entry `name`."""

    kind: str
    node: int
    name: str = ""
    child: int = -1  # the new inode of CREATE and MKDIR
    position: int = 0  # position of a WRITE, length after a TRUNCATE
    data: bytes = b""
    target_node: int = -1
    target: str = ""  # new name of a RENAME

    def __str__(self) -> str:
        names = f"{self.name}{' -> ' + self.target if self.target else ''}"
        extent = f" at {self.position}, {len(self.data)} bytes" if self.kind == WRITE else ""
        return f"{self.kind} {names}{extent}".strip()


class Tree:
    """Inodes with the bytes of files and the entries of directories. `apply` ignores impossible operations."""

    def __init__(self) -> None:
        self.files: dict[int, bytearray] = {}
        self.directories: dict[int, dict[str, int]] = {TOP: {}}

    def copy(self) -> Tree:
        other = Tree()
        other.files = {node: bytearray(data) for node, data in self.files.items()}
        other.directories = {node: dict(entries) for node, entries in self.directories.items()}
        return other

    def apply(self, op: Op) -> None:
        if op.kind == WRITE:
            self.put(op.node, op.position, op.data)
        elif op.kind == CREATE:
            self.files.setdefault(op.child, bytearray())
            self._entries(op.node)[op.name] = op.child
        elif op.kind == MKDIR:
            self._entries(op.child)
            self._entries(op.node)[op.name] = op.child
        elif op.kind == UNLINK:
            self._entries(op.node).pop(op.name, None)
        elif op.kind == RENAME:
            child = self._entries(op.node).pop(op.name, None)
            if child is not None:
                self._entries(op.target_node)[op.target] = child
        elif op.kind == TRUNCATE:
            self.resize(op.node, op.position)

    def _entries(self, node: int) -> dict[str, int]:
        """Returns the entries of a directory, whose own name may not be durable."""
        return self.directories.setdefault(node, {})

    def resize(self, node: int, size: int) -> None:
        data = self.files.setdefault(node, bytearray())
        del data[size:]
        data.extend(bytes(size - len(data)))

    def put(self, node: int, position: int, content: bytes) -> None:
        data = self.files.setdefault(node, bytearray())
        if len(data) < position:
            data.extend(bytes(position - len(data)))
        data[position : position + len(content)] = content

    def listing(self, node: int = TOP, prefix: str = "") -> dict[str, bytes | None]:
        """Returns the content of each path, None for a directory."""
        result: dict[str, bytes | None] = {}
        for name, child in sorted(self.directories[node].items()):
            if child in self.directories:
                result[prefix + name] = None
                result.update(self.listing(child, f"{prefix}{name}/"))
            else:
                result[prefix + name] = bytes(self.files.get(child, b""))
        return result


def materialise(listing: dict[str, bytes | None], top: Path) -> None:
    """Writes a listing as real files into the empty or missing directory `top`."""
    top.mkdir(parents=True, exist_ok=True)
    for name, content in listing.items():
        if content is None:
            (top / name).mkdir()
        else:
            (top / name).write_bytes(content)
