"""Files of a backup: readable by their owner only, fsynced, and checked before any use."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from config.backup.errors import BackupRefused
from config.backup.limits import MANIFEST_BYTES_MAX, SECRET_FILE_BYTES_MAX, SECRET_FILES_MAX
from config.backup.manifest import MANIFEST_FILE, STATE_FOLDER, FileEntry, Manifest
from config.environment import SECRETS_DIR
from config.supervisor.state import SHAPE_FILE

CHUNK_BYTES: Final = 1024 * 1024


class BackupDirectory:
    """Directory of one backup."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def prepare(self) -> None:
        """Creates the directory.

        Raises:
            BackupRefused: it cannot be created, or is not empty.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_empty = not any(self.directory.iterdir())
        except OSError as error:
            raise BackupRefused(
                f"{self.directory} cannot be used: {error.strerror or error}.", "Name a directory that can be made."
            ) from error
        if not is_empty:
            raise BackupRefused(
                f"{self.directory} is not empty.", "Name a new directory: a backup is never written over another one."
            )

    def create(self, name: str) -> BinaryIO:
        """Creates a file that only its owner can read, and opens it; it must not exist."""
        file = self.directory / name
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb")

    def copy_state(self, state_dir: Path) -> None:
        """Copies the secrets and the addresses of a state directory."""
        for source in _state_files(state_dir):
            if source.stat().st_size > SECRET_FILE_BYTES_MAX:
                raise BackupRefused(
                    f"{source} is larger than {SECRET_FILE_BYTES_MAX} bytes: it is no secret of Penstock's.",
                    "Move it out of secrets/.",
                )
            with self.create(f"{STATE_FOLDER}/{source.relative_to(state_dir).as_posix()}") as target:
                target.write(source.read_bytes())

    def entries(self) -> dict[str, FileEntry]:
        """Returns size and checksum of every file, after an fsync."""
        result = {}
        for file in sorted(path for path in self.directory.rglob("*") if path.is_file()):
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
            result[file.relative_to(self.directory).as_posix()] = _entry(file)
        return result

    def complete(self, manifest: Manifest) -> str:
        """Writes the manifest, which completes the backup. Returns the checksum of the manifest."""
        raw = manifest.to_json()
        draft = self.directory / f".{MANIFEST_FILE}"
        with self.create(draft.name) as stream:
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        draft.rename(self.directory / MANIFEST_FILE)
        _sync_directory(self.directory)
        return hashlib.sha256(raw).hexdigest()

    def discard(self) -> None:
        """Removes all files of the backup, the manifest first."""
        (self.directory / MANIFEST_FILE).unlink(missing_ok=True)
        for path in sorted(self.directory.rglob("*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink()

    def verify(self, expected_sha256: str | None = None) -> Manifest:
        """Checks every file against the manifest, and returns it.

        Raises:
            BackupRefused: there is no backup, it is incomplete, or it was changed since it was made.
        """
        file = self.directory / MANIFEST_FILE
        if not file.is_file():
            raise BackupRefused(
                f"{self.directory} has no {MANIFEST_FILE}: it is no backup, or one that was interrupted.",
                "Name the directory of a complete backup.",
            )
        if file.stat().st_size > MANIFEST_BYTES_MAX:
            raise BackupRefused(f"{file} is too large for a manifest.", "Name the directory of a backup.")
        raw = file.read_bytes()
        if expected_sha256 is not None and hashlib.sha256(raw).hexdigest() != expected_sha256.lower():
            raise BackupRefused(
                f"{MANIFEST_FILE} does not have the checksum {expected_sha256}: this is not the backup that was meant.",
                "Compare with what `manage.py backup` printed. Nothing was changed.",
            )
        manifest = Manifest.from_json(raw)
        for name, entry in manifest.files.items():
            path = self.directory / name
            if path.is_symlink() or not path.is_file() or _entry(path) != entry:
                raise BackupRefused(
                    f"{name} is not the file that was backed up: size or checksum do not match.",
                    "Restore from another copy of the backup. Nothing was changed.",
                )
        return manifest


def _state_files(state_dir: Path) -> Iterator[Path]:
    """Yields the files of a state directory that no service can recreate. Names of drafts begin with a dot."""
    shape = state_dir / SHAPE_FILE
    if shape.is_file():
        yield shape
    secrets = sorted(
        path
        for path in (state_dir / SECRETS_DIR).rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(state_dir).parts)
    )
    if len(secrets) > SECRET_FILES_MAX:
        raise BackupRefused(f"{state_dir / SECRETS_DIR} has more than {SECRET_FILES_MAX} files.", "Tidy it up.")
    yield from secrets


def _entry(file: Path) -> FileEntry:
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return FileEntry(size, digest.hexdigest())


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
