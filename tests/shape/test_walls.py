"""The walls of pyproject.toml name everything they are about: lists of packages go stale when a package comes."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from config.environment import BASE_DIR

CONTROL_PLANE = "The control plane knows the contract, not the engine"
PURE = "What the engine takes from the apps is pure"
ENGINE = BASE_DIR / "brokers" / "engine"
# What both sides of the wall may import beside the pure modules.
SHARED = ("brokers.contract", "brokers.native")

IMPORT_WITHOUT_DJANGO = """
import importlib, sys
absent = ("django", "rest_framework", "celery", "redis", "psycopg", "kazoo")
sys.modules.update(dict.fromkeys(absent))  # an import of one of these fails as if it were not installed
for name in sys.argv[1:]:
    importlib.import_module(name)
apps = ("config", "tenants", "billing", "notifications", "archives")
print(*sorted(name for name in sys.modules if name.split(".")[0] in apps))
"""


@cache
def linter() -> dict[str, Any]:
    settings = tomllib.loads((BASE_DIR / "pyproject.toml").read_text(encoding="utf-8"))
    importlinter: dict[str, Any] = settings["tool"]["importlinter"]
    return importlinter


def sources(contract: str) -> set[str]:
    """The modules the contract of this name is about."""
    return next({*entry["source_modules"]} for entry in linter()["contracts"] if entry["name"] == contract)


def modules_in(folder: Path) -> set[str]:
    """Modules and packages right below a package, `__init__` aside."""
    files = {file.stem for file in folder.glob("*.py")} - {"__init__"}
    return files | {entry.name for entry in folder.iterdir() if any(entry.rglob("*.py"))}


def imports_of(file: Path) -> Iterator[str]:
    """Every module a file imports; of `from package import module` the module."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            package = BASE_DIR.joinpath(*node.module.split("."))
            yield from (f"{node.module}.{alias.name}" if package.is_dir() else node.module for alias in node.names)


def test_the_control_plane_is_all_of_the_product_but_the_engine() -> None:
    apps = {*linter()["root_packages"]} - {"brokers"}
    rooms = {f"brokers.{name}" for name in modules_in(BASE_DIR / "brokers")} - {"brokers.engine"}
    assert sources(CONTROL_PLANE) == apps | rooms


def test_the_pure_modules_are_those_the_engine_imports() -> None:
    apps = tuple(f"{name}." for name in linter()["root_packages"])
    imported = {name for file in ENGINE.rglob("*.py") for name in imports_of(file) if name.startswith(apps)}
    assert {name for name in imported if not name.startswith(("brokers.engine", *SHARED))} == sources(PURE)


def test_the_pure_modules_are_importable_without_django() -> None:
    modules = [*sorted(sources(PURE)), *SHARED, "brokers.contract.documents", "brokers.contract.usage"]
    command = [sys.executable, "-c", IMPORT_WITHOUT_DJANGO, *modules]
    run = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout.split()) == (0, []), run.stderr


def test_no_business_rule_is_a_signal() -> None:
    """A call that must go up goes through an interface, where a reader can follow it; none of ours is sent."""
    files = [file for name in linter()["root_packages"] for file in (BASE_DIR / name).rglob("*.py")]
    senders = [file.as_posix() for file in files if "django.dispatch" in file.read_text(encoding="utf-8")]
    assert not senders
