"""Compiler of the hot modules: `python -m brokers.native.build`. Needs mypyc, a C compiler and Python's headers."""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import psutil

from brokers.native.modules import COMPLETE, MODULES, PACKAGES, ROOT, build_directory

# Exit codes, besides 0 for a complete build.
EXIT_NOT_POSSIBLE: Final = 1
EXIT_REFUSED: Final = 4
LOCK_FILE: Final = "lock"
# Names left by builds of other sources and by interrupted builds.
REMOVABLE_NAMES: Final = re.compile(r"[0-9a-f]{16}(\.log)?|scratch-.*")
NICENESS: Final = 19
# As in config.embedded.niceness: where the kernel groups processes by session, the session has a niceness of its own.
SESSION_FILE: Final = Path("/proc/self/autogroup")
# Loads every module of a build, so that a module that cannot be loaded is found here and not by a broker.
LOAD_CHECK: Final = """
import importlib, pathlib, sys
from brokers.native.finder import CompiledModules
sys.meta_path.insert(0, CompiledModules(pathlib.Path(sys.argv[1])))
for name in sys.argv[2:]:
    if not importlib.import_module(name).__file__.startswith(sys.argv[1]):
        sys.exit(f"{name} is not compiled")
"""
SETUP_SCRIPT: Final = """
import sys
from mypyc.build import mypycify
from pybind11.setup_helpers import ParallelCompile
from setuptools import setup

ParallelCompile().install()

setup(
    name="penstock-native",
    packages=[],
    ext_modules=mypycify(
        ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent", *sys.argv.pop().split(",")],
        opt_level="1",
        debug_level="0",
        multi_file=True,
    ),
)
"""


class NotPossible(Exception):
    """Raised if a build is not possible on this machine at present; the message is one line."""


class CompilationRefused(NotPossible):
    """Raised if the compiler refuses these sources; its output is in a file."""


def check_tools() -> None:
    """Raises NotPossible if a tool is missing. Finds the tools without loading them, because a start waits for the
    result.
    """
    for package in ("mypyc", "pybind11", "setuptools"):
        if find_spec(package) is None:
            raise NotPossible(f"{package} is not installed (make setup installs it)")
    compiler = os.environ.get("CC", "").split() or (sysconfig.get_config_var("CC") or "cc").split()
    if shutil.which(compiler[0]) is None:
        raise NotPossible(f"there is no C compiler ({compiler[0]})")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        raise NotPossible("Python's headers are missing (Python.h)")


def check_builds_directory() -> None:
    """Raises NotPossible if builds cannot be stored."""
    builds_directory = build_directory().parent
    existing = next(path for path in (builds_directory, *builds_directory.parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise NotPossible(f"{builds_directory} cannot be written to; PENSTOCK_NATIVE_DIR names another place")


def failure_log() -> Path:
    """Returns the file of the compiler's output for exactly these sources; it exists only if they were refused."""
    return build_directory().with_suffix(".log")


def build() -> Path:
    """Returns the directory of the complete build; builds it if it does not exist. Builds of other sources are removed.

    Two processes of one checkout build one after the other, and the second finds the result of the first.

    Raises:
        NotPossible: a tool is missing, the directory is not writable, or the sources changed meanwhile.
        CompilationRefused: the compiler refused the sources, or its output cannot be loaded.
    """
    directory = build_directory()
    if (directory / COMPLETE).exists():
        return directory
    check_tools()
    check_builds_directory()
    with _build_lock(directory.parent):
        if not (directory / COMPLETE).exists():
            _compile(directory)
    return directory


@contextmanager
def _build_lock(builds_directory: Path) -> Iterator[None]:
    try:
        builds_directory.mkdir(parents=True, exist_ok=True)
        lock_file = (builds_directory / LOCK_FILE).open("ab")
    except OSError as error:
        raise NotPossible(f"{builds_directory} cannot be written to ({error.strerror})") from None
    with lock_file:
        # The lock is held until the file is closed, which the kernel does for a killed process.
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield


def _compile(directory: Path) -> None:
    builds_directory, log = directory.parent, failure_log()
    for leftover in builds_directory.iterdir():
        if REMOVABLE_NAMES.fullmatch(leftover.name):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=builds_directory) as folder:
        scratch = Path(folder)
        _copy_sources(scratch)
        sources = ",".join(f"{module.replace('.', '/')}.py" for module in MODULES)
        command = ["setup.py", "--quiet", "build_ext", "--build-lib", "out", sources]
        _run_python(command, scratch, log)
        if build_directory() != directory:
            raise NotPossible("the sources changed while they were compiled")
        _run_python(["-c", LOAD_CHECK, str(scratch / "out"), *MODULES], ROOT, log)
        (scratch / "out" / COMPLETE).touch()
        (scratch / "out").rename(directory)


def _copy_sources(scratch: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, scratch / package, ignore=shutil.ignore_patterns("__pycache__", "migrations"))
    shutil.copy(ROOT / "brokers/__init__.py", scratch / "brokers")
    (scratch / "setup.py").write_text(SETUP_SCRIPT)


def _run_python(command: Sequence[str], folder: Path, log: Path) -> None:
    result = subprocess.run(
        [sys.executable, *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if result.returncode < 0:  # a terminated compiler did not judge the sources
        raise NotPossible(f"the compiler was ended by signal {-result.returncode}")
    if result.returncode:
        log.write_bytes(result.stdout)
        raise CompilationRefused(f"the compiler refused the sources; see {log}")


def lower_priority() -> None:
    """Lowers the priority of this process, and of the compilers it starts, so that other programs are not affected."""
    os.nice(NICENESS)
    try:
        if os.getsid(0) == os.getpid():
            SESSION_FILE.write_text(str(NICENESS))
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (OSError, AttributeError, psutil.Error):
        return  # not Linux, or not permitted


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m brokers.native.build", description="Compiles the hot modules.")
    parser.add_argument("--if-possible", action="store_true", help="end well on a machine without the tools for it")
    parser.add_argument("--give-way", action="store_true", help="at the lowest priority")
    arguments = parser.parse_args()
    if arguments.give_way:
        lower_priority()
    try:
        print(f"compiled: {build()}")  # noqa: T201
    except NotPossible as reason:
        print(f"not compiled: {reason}", file=sys.stderr)  # noqa: T201
        if arguments.if_possible:
            return 0
        return EXIT_REFUSED if isinstance(reason, CompilationRefused) else EXIT_NOT_POSSIBLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
