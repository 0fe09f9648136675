"""Files and directories as inodes and entries, and the single changes that a disk goes through."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

CREATE, MKDIR, UNLINK, RENAME = "create", "mkdir", "unlink", "rename"
WRITE, TRUNCATE, SYNC = "write", "truncate", "sync"
NAMES: Final = frozenset({CREATE, MKDIR, UNLINK, RENAME})
TOP: Final = 0


class Op(NamedTuple):
    """One change. `node` is the inode that is written, or the directory that holds `name`."""

    kind: str
    node: int
    name: str = ""
    child: int = -1  # the inode that CREATE and MKDIR name
    position: int = 0  # of a WRITE; the length after a TRUNCATE
    data: bytes = b""
    target_node: int = -1
    target: str = ""  # the name after a RENAME

    def __str__(self) -> str:
        what = f"{self.name}{' -> ' + self.target if self.target else ''}"
        where = f" at {self.position}, {len(self.data)} bytes" if self.kind == WRITE else ""
        return f"{self.kind} {what}{where}".strip()


class Tree:
    """Inodes: bytes of files, entries of directories. `apply` does one operation, or leaves out what it cannot."""

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
            moved = self._entries(op.node).pop(op.name, None)
            if moved is not None:
                self._entries(op.target_node)[op.target] = moved
        elif op.kind == TRUNCATE:
            self.resize(op.node, op.position)

    def _entries(self, node: int) -> dict[str, int]:
        """Of a directory, which may itself not have a name that is durable."""
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
        """Path -> content, None for a directory: what a person would see."""
        result: dict[str, bytes | None] = {}
        for name, child in sorted(self.directories[node].items()):
            if child in self.directories:
                result[prefix + name] = None
                result.update(self.listing(child, f"{prefix}{name}/"))
            else:
                result[prefix + name] = bytes(self.files.get(child, b""))
        return result


def materialise(listing: dict[str, bytes | None], top: Path) -> None:
    """Makes real files of a listing in the empty or missing directory `top`."""
    top.mkdir(parents=True, exist_ok=True)
    for name, content in listing.items():
        if content is None:
            (top / name).mkdir()
        else:
            (top / name).write_bytes(content)
