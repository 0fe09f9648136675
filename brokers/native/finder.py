"""Imports the compiled copies of the hot modules instead of their sources, if they were built from exactly these
sources.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

from brokers.native.modules import COMPLETE, build_directory

SWITCH: Final = "PENSTOCK_NATIVE"
OFF: Final = "0"


class CompiledModules(MetaPathFinder):
    """Finds the extension modules of one build directory by their full names."""

    def __init__(self, directory: Path) -> None:
        suffix = EXTENSION_SUFFIXES[0]
        self.files = {
            ".".join(file.relative_to(directory).parts).removesuffix(suffix): str(file)
            for file in directory.rglob(f"*{suffix}")
        }

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self.files.get(fullname)
        if file is None:
            return None
        return spec_from_file_location(fullname, file, loader=ExtensionFileLoader(fullname, file))


def usable_build() -> Path | None:
    """Returns the build directory of exactly these sources; None if there is none or compiled modules are
    switched off.
    """
    directory = build_directory()
    if os.environ.get(SWITCH) == OFF or not (directory / COMPLETE).exists():
        return None
    return directory


def install() -> bool:
    """Installs the finder if there is a usable build; returns True if it did. Must be called before any of the modules
    is imported.
    """
    directory = usable_build()
    if directory is None:
        return False
    sys.meta_path.insert(0, CompiledModules(directory))
    return True


def is_installed() -> bool:
    return any(isinstance(finder, CompiledModules) for finder in sys.meta_path)
