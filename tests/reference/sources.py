"""The product's sources as trees, and what the generated pages find in them: log events and metrics."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from config.environment import BASE_DIR

FOLDERS = ("config", "tenants", "instances", "brokers", "quotas", "billing", "notifications", "archives")
LEVELS = ("debug", "info", "warning", "error", "exception")
EVENT = re.compile(r"[a-z][a-z0-9]*([_.][a-z0-9]+)+")
METRIC = "penstock_"


@dataclass(frozen=True, order=True)
class LogEvent:
    name: str
    level: str
    fields: tuple[str, ...]
    module: str


@dataclass(frozen=True, order=True)
class Metric:
    name: str
    kind: str
    help: str


@cache
def trees() -> list[tuple[Path, ast.Module]]:
    files = sorted(file for folder in FOLDERS for file in (BASE_DIR / folder).rglob("*.py"))
    return [(file, ast.parse(file.read_text(encoding="utf-8"))) for file in files if "migrations" not in file.parts]


def log_events() -> list[LogEvent]:
    """Calls such as `log.info("coordinator_loaded", records=…)` and `contained("watch.instance_failed", …)`."""
    result = set()
    for file, tree in trees():
        module = file.relative_to(BASE_DIR).as_posix()
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            match call:
                case ast.Call(func=ast.Attribute(attr=level), args=[ast.Constant(value=str(event))], keywords=keywords):
                    if level in LEVELS and EVENT.fullmatch(event):
                        fields = tuple(word.arg for word in keywords if word.arg not in (None, "exc_info"))
                        result.add(LogEvent(event, level, tuple(map(str, fields)), module))
                case ast.Call(func=ast.Name(id="contained"), args=[ast.Constant(value=str(event))], keywords=keywords):
                    result.add(LogEvent(event, "exception", tuple(str(word.arg) for word in keywords), module))
    return sorted(result)


@cache
def metrics() -> list[Metric]:
    result: dict[str, Metric] = {}
    for file, tree in trees():
        if METRIC in file.read_text(encoding="utf-8"):
            for metric in _metrics_of(tree):
                result.setdefault(metric.name, metric)
    return sorted(result.values())


def _metrics_of(tree: ast.Module) -> Iterator[Metric]:
    """Calls that name a metric, and rows `(name, help, value)` of the tables that loops make metrics of."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        texts: dict[str, ast.expr] = {}
        for node in sorted(
            (n for n in ast.walk(function) if isinstance(n, ast.expr | ast.stmt)),
            key=lambda n: (n.lineno, n.col_offset),
        ):
            match node:
                case ast.Assign(targets=[ast.Name(id=variable)], value=value):
                    texts[variable] = value
                case ast.For(target=ast.Tuple(elts=[ast.Name(id=variable), *_]), iter=iterated, body=body):
                    rows = texts.get(iterated.id) if isinstance(iterated, ast.Name) else iterated
                    if isinstance(rows, ast.Tuple):
                        yield from _rows(variable, rows, body)
                case ast.Call(args=[ast.Constant(value=str(name)), *others]) if name.startswith(METRIC):
                    if (text := _text(others, texts)) is not None:
                        yield Metric(name, _kind(others), text)


def _rows(variable: str, rows: ast.Tuple, body: list[ast.stmt]) -> Iterator[Metric]:
    calls = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call) and node.args]
    for call in calls:
        for row in rows.elts:
            match row:
                case ast.Tuple(elts=[ast.Constant(value=str(word)), ast.Constant(value=str(text)), *_]):
                    name = _filled(call.args[0], variable, word)
                    if name.startswith(METRIC):
                        yield Metric(name, _kind(call.args[1:]), text)


def _filled(pattern: ast.expr, variable: str, word: str) -> str:
    if isinstance(pattern, ast.Name):
        return word if pattern.id == variable else ""
    if not isinstance(pattern, ast.JoinedStr):
        return ""
    return "".join(str(part.value) if isinstance(part, ast.Constant) else word for part in pattern.values)


def _kind(others: list[ast.expr]) -> str:
    return (
        "counter" if any(isinstance(other, ast.Constant) and other.value == "counter" for other in others) else "gauge"
    )


def _text(others: list[ast.expr], texts: dict[str, ast.expr]) -> str | None:
    for other in others:
        value = texts.get(other.id) if isinstance(other, ast.Name) else other
        match value:
            case ast.Constant(value=str(text)) if text not in ("counter", "gauge"):
                return text
            case ast.JoinedStr(values=parts):
                return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)
    return None
