"""Location of the unix socket of an embedded service, in a private directory."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from config.embedded.process import StartFailed

# Size of `sun_path` without the terminating byte.
SOCKET_PATH_BYTES_MAX = 107
PRIVATE_DIRECTORY = 0o700


def socket_directory(directory: Path, file_name: str) -> Path:
    """Returns a directory beside the data if the socket's path is short enough, otherwise a temporary one named after
    it.
    """
    data_socket_directory = directory / "socket"
    if len(os.fsencode(data_socket_directory / file_name)) <= SOCKET_PATH_BYTES_MAX:
        return data_socket_directory
    name = f"penstock-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}"
    for folder in (Path(tempfile.gettempdir()), Path("/tmp")):  # noqa: S108 (`make_private` checks its owner)
        if len(os.fsencode(folder / name / file_name)) <= SOCKET_PATH_BYTES_MAX:
            return folder / name
    raise StartFailed(
        f"There is no directory for the socket {file_name} whose path has at most {SOCKET_PATH_BYTES_MAX} bytes.",
        "Choose a shorter --state-dir.",
    )


def make_private(directory: Path, owner: tuple[int, int] | None = None) -> None:
    """Makes a directory private to `owner` (user and group), by default to us; creates it if needed.

    Raises:
        StartFailed: another user owns a file or a directory of that name.
    """
    directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    status = directory.lstat()
    allowed = {os.geteuid()} | ({owner[0]} if owner else set())
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in allowed:
        raise StartFailed(
            f"{directory} belongs to somebody else.",
            f"Remove it, or choose a --state-dir whose sockets fit into it (paths of {SOCKET_PATH_BYTES_MAX} bytes).",
        )
    if owner is not None and owner != (status.st_uid, status.st_gid):
        os.chown(directory, *owner, follow_symlinks=False)
    directory.chmod(PRIVATE_DIRECTORY)
