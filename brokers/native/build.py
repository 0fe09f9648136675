"""`python -m brokers.native.build`: compiles the hot modules; needs mypy(c), a C compiler and Python's headers."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

from brokers.native.modules import BUILDS, COMPLETE, MODULES, ROOT, build_directory

BUILD_TIMEOUT_S: Final = 900
# Everything the compiled modules mention is type-checked with them.
PACKAGES: Final = ("brokers/contract", "brokers/engine", "quotas", "instances")
SETUP: Final = """
import sys
from mypyc.build import mypycify
from setuptools import setup

setup(
    name="penstock-native",
    packages=[],
    ext_modules=mypycify(
        ["--ignore-missing-imports", "--follow-imports=silent", *sys.argv.pop().split(",")],
        opt_level="1",
        debug_level="0",
    ),
)
"""


class NotPossible(Exception):
    """What is missing on this machine, in one line."""


def check_tools() -> None:
    """Raises NotPossible."""
    try:
        import mypyc.build  # noqa: F401
        import setuptools  # noqa: F401
    except ImportError as error:
        raise NotPossible(f"{error.name} is not installed (make setup-dev installs it)") from None
    compiler = os.environ.get("CC") or (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        raise NotPossible(f"there is no C compiler ({compiler})")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        raise NotPossible("Python's headers are missing (Python.h)")


def build() -> Path:
    """The directory of the complete build; makes it unless it is there. Builds of other sources are removed.

    Raises:
        NotPossible: a tool is missing, or the compiler refused (its output is part of the message).
    """
    directory = build_directory()
    if (directory / COMPLETE).exists():
        return directory
    check_tools()
    with tempfile.TemporaryDirectory(prefix="penstock-native-") as scratch:
        _compile(Path(scratch))
        shutil.rmtree(BUILDS, ignore_errors=True)
        shutil.copytree(Path(scratch, "out"), directory)
    (directory / COMPLETE).touch()
    return directory


def _compile(scratch: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, scratch / package, ignore=shutil.ignore_patterns("__pycache__", "migrations"))
    shutil.copy(ROOT / "brokers/__init__.py", scratch / "brokers")
    (scratch / "setup.py").write_text(SETUP)
    sources = ",".join(f"{module.replace('.', '/')}.py" for module in MODULES)
    outcome = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", "out", sources],
        cwd=scratch, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False,
    )  # fmt: skip
    if outcome.returncode:
        raise NotPossible(f"the compiler refused:\n{outcome.stdout[-4000:]}{outcome.stderr[-4000:]}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m brokers.native.build", description="Compiles the hot modules.")
    parser.add_argument("--if-possible", action="store_true", help="end well on a machine without the tools for it")
    given = parser.parse_args()
    try:
        print(f"compiled: {build().relative_to(ROOT)}")  # noqa: T201
    except NotPossible as reason:
        print(f"not compiled: {reason}", file=sys.stderr)  # noqa: T201
        return 0 if given.if_possible else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
