"""A Produce and a Fetch are read from top to bottom: no stage is handed the next one as a callback."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

HANDLERS = Path(__file__).resolve().parents[2] / "brokers/engine/handlers"
MODULES = [path for room in ("fetch", "produce") for path in sorted((HANDLERS / room).glob("*.py"))]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_stage_takes_a_callback_to_the_next(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names
    }
    parameters = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    assert not imported & {"functools", "partial"}
    assert not {name for name in parameters if name.startswith("on_")}
