"""A Produce is read from top to bottom: no stage is handed the next one as a callback (issue 40)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PRODUCE = Path(__file__).resolve().parents[2] / "brokers/engine/handlers/produce"


@pytest.mark.parametrize("path", sorted(PRODUCE.glob("*.py")), ids=lambda path: path.name)
def test_no_stage_takes_a_callback_to_the_next(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names
    }
    parameters = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    assert not imported & {"functools", "partial"}
    assert not {name for name in parameters if name.startswith("on_")}
