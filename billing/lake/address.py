"""Address of the lake: a `file:` or `s3:` URL, opened by pyarrow's file systems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

SCHEMES = ("file", "s3")


@dataclass(frozen=True, slots=True)
class Lake:
    """File system and the folder of the lake in it."""

    files: FileSystem
    folder: str

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"


def open_lake(url: str) -> Lake:
    """Opens `file:///srv/lake` or `s3://bucket/folder?region=…&endpoint_override=…`, with keys from AWS's environment
    variables.

    Raises:
        ValueError: the URL has another scheme, or no folder.
    """
    from pyarrow.fs import FileSystem

    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or (not parts.path.strip("/") and parts.scheme == "file"):
        raise ValueError(f"the lake's address is file: or s3:, not {url!r}")
    files, folder = FileSystem.from_uri(url)
    return Lake(files, folder.rstrip("/"))
