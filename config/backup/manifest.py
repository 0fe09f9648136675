"""Manifest of a backup: its versions, and size and checksum of each of its files. Pure.

The manifest is written last. A directory without a manifest is no backup.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Final

from config.backup.errors import BackupRefused

MANIFEST_FILE: Final = "manifest.json"
DATABASE_FILE: Final = "database.dump"
TREE_FILE: Final = "zookeeper.jsonl"
# Folder with the files of the state directory, by their relative paths.
STATE_FOLDER: Final = "state"
# Increased when earlier versions cannot read the new format.
FORMAT: Final = 1
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Size and checksum of one file."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Description of a backup.

    `newest_transaction` is the highest transaction id that was seen in ZooKeeper; a restored tree must begin above it,
    because brokers distinguish their incarnations by these ids. `is_consistent` is True if two readings of the tree
    were equal, so that it is the tree of one moment. `outside` names the variables that point at secrets kept
    elsewhere.
    """

    penstock: str
    made_at: str
    postgresql: int
    migrations: Mapping[str, tuple[str, ...]]
    clusters: tuple[str, ...]
    nodes: int
    newest_transaction: int
    is_consistent: bool
    outside: tuple[str, ...]
    files: Mapping[str, FileEntry] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Returns the text of `manifest.json`, with a checksum of its own."""
        body = {"format": FORMAT, **asdict(self)}
        return json.dumps(body | {"checksum": _checksum(body)}, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_json(cls, raw: bytes) -> Manifest:
        """Reads a manifest.

        Raises:
            BackupRefused: it is damaged, or of a format that this version does not know.
        """
        try:
            body = json.loads(raw)
            checksum, version = body.pop("checksum"), body.pop("format")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise _damaged() from error
        if not isinstance(version, int) or checksum != _checksum({"format": version, **body}):
            raise _damaged()
        if version > FORMAT:
            raise BackupRefused(
                f"The backup is of format {version}, and this version of Penstock reads formats up to {FORMAT}.",
                f"Install Penstock {body.get('penstock', '')} or later, and restore with that. Nothing was changed.",
            )
        try:
            entries = {name: FileEntry(**entry) for name, entry in body.pop("files").items()}
            migrations = {app: tuple(names) for app, names in body.pop("migrations").items()}
            clusters, outside = tuple(body.pop("clusters")), tuple(body.pop("outside"))
            known = {name: body[name] for name in _PLAIN_FIELDS}
        except (KeyError, TypeError, AttributeError) as error:
            raise _damaged() from error
        if not all(_is_safe(name) and _DIGEST.fullmatch(entry.sha256) for name, entry in entries.items()):
            raise _damaged()
        if not {DATABASE_FILE, TREE_FILE} <= entries.keys():
            raise _damaged()
        return cls(files=entries, migrations=migrations, clusters=clusters, outside=outside, **known)

    @property
    def state_files(self) -> list[str]:
        """Returns the paths of the files of the state directory, relative to it."""
        return [name.removeprefix(f"{STATE_FOLDER}/") for name in self.files if name.startswith(f"{STATE_FOLDER}/")]

    def unknown_migrations(self, known: Iterable[tuple[str, str]]) -> list[str]:
        """Returns the migrations of the backed up database that the installed code does not have."""
        installed = set(known)
        return [
            f"{app}.{name}"
            for app, names in sorted(self.migrations.items())
            for name in names
            if (app, name) not in installed
        ]


_PLAIN_FIELDS: Final = ("penstock", "made_at", "postgresql", "nodes", "newest_transaction", "is_consistent")


def moment(time: datetime) -> str:
    """Returns a time in the format of manifests."""
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _is_safe(name: str) -> bool:
    """True for a file of the backup itself, or one below `state/`; a path that leads out of it is never followed."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or str(path) != name or "\0" in name:
        return False
    return name in (DATABASE_FILE, TREE_FILE) or (len(path.parts) > 1 and path.parts[0] == STATE_FOLDER)


def _damaged() -> BackupRefused:
    return BackupRefused(
        f"{MANIFEST_FILE} is damaged: it does not match its own checksum.",
        "Restore from another copy of the backup. Nothing was changed.",
    )
