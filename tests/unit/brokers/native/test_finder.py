"""A broker uses the compiled modules when they were made of exactly its sources, and the plain ones otherwise."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from brokers.native import build, finder, modules

SAY = "from brokers.native import finder; print(finder.install()); import quotas.rates; print(quotas.rates.__file__)"


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(modules, "BUILDS", tmp_path / "builds")
    monkeypatch.setenv(finder.SWITCH, "1")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    sys.meta_path[:] = [item for item in sys.meta_path if not isinstance(item, finder.CompiledModules)]
    return tmp_path / "builds"


def lay(directory: Path, *names: str) -> None:
    for name in names:
        file = directory / f"{name.replace('.', '/')}{EXTENSION_SUFFIXES[0]}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def test_without_a_build_the_plain_modules_are_used(builds: Path) -> None:
    assert not finder.install()
    assert not finder.is_installed()


def test_an_interrupted_build_is_not_used(builds: Path) -> None:
    lay(modules.build_directory(), "quotas.rates")
    assert not finder.install()


def test_a_complete_build_comes_before_the_sources(builds: Path) -> None:
    directory = modules.build_directory()
    lay(directory, "quotas.rates", "0123__mypyc")
    (directory / modules.COMPLETE).touch()

    assert finder.install()
    assert finder.is_installed()
    spec = sys.meta_path[0].find_spec("quotas.rates", None)
    assert spec is not None
    assert spec.origin == str(directory / f"quotas/rates{EXTENSION_SUFFIXES[0]}")
    assert sys.meta_path[0].find_spec("0123__mypyc", None) is not None
    assert sys.meta_path[0].find_spec("quotas.precedence", None) is None


def test_it_can_be_switched_off(builds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = modules.build_directory()
    lay(directory, "quotas.rates")
    (directory / modules.COMPLETE).touch()
    monkeypatch.setenv(finder.SWITCH, finder.OFF)
    assert not finder.install()


@pytest.mark.parametrize(
    ("module", "is_another"),
    [
        ("quotas.rates", True),
        ("brokers.contract.connections", True),  # has constants that the compiler inlines
        ("brokers.engine.records.compression", True),
        ("brokers.engine.handlers.fetch.waits", True),
        ("brokers.contract.instance_limits", True),  # imported by a module that is imported
        ("brokers.engine.assembly.broker", False),
        ("instances.models", False),
    ],
)
def test_a_build_of_other_sources_is_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, is_another: bool
) -> None:
    before = modules.digest()
    changed = tmp_path / "changed.py"
    changed.write_bytes(modules.source_of(module).read_bytes() + b"\n")
    real = modules.source_of
    monkeypatch.setattr(modules, "source_of", lambda name: changed if name == module else real(name))
    assert (modules.digest() != before) is is_another


def test_every_import_of_the_sources_is_found() -> None:
    for module, source in modules.sources().items():
        known = modules.imported_names(source)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, module
                assert {f"{node.module}.{alias.name}" for alias in node.names} <= known, module
            elif isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} <= known, module


def test_every_module_to_be_compiled_exists() -> None:
    assert [name for name in modules.MODULES if not modules.source_of(name).exists()] == []
    assert list(modules.MODULES) == sorted(set(modules.MODULES))


def test_a_machine_without_a_compiler_gets_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(build.NotPossible, match="no C compiler"):
        build.check_tools()


def test_a_fresh_process_gets_what_the_switch_says() -> None:
    spoken = subprocess.run(
        [sys.executable, "-c", SAY],
        cwd=modules.ROOT,
        env={finder.SWITCH: finder.OFF},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    assert spoken == ["False", str(modules.ROOT / "quotas/rates.py")]
