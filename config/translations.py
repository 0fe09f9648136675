"""Translation catalogs: `.po` files compiled to the `.mo` files of Django, without the gettext programs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def catalogs(folders: Iterable[Path]) -> list[Path]:
    """Returns every `.po` file below locale folders in a stable order."""
    return sorted(file for folder in folders for file in folder.glob("*/LC_MESSAGES/*.po"))


def compile_stale(folders: Iterable[Path]) -> list[Path]:
    """Compiles the catalogs whose `.mo` is missing or older. Returns the files written."""
    written = []
    for source in catalogs(folders):
        target = source.with_suffix(".mo")
        if target.exists() and target.stat().st_mtime_ns >= source.stat().st_mtime_ns:
            continue
        import polib  # only needed when a catalog changed

        draft = target.with_name(f".{target.name}.{os.getpid()}")
        polib.pofile(str(source)).save_as_mofile(str(draft))
        draft.rename(target)
        written.append(target)
    return written
