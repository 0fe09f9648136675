"""Number of Hypothesis examples of the log in `make test-long`, counted from the tests' settings; shorter runs reach as
many over several days with fresh seeds (decision 85).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hypothesis import settings

from config.environment import BASE_DIR

SUITES = ("records", "storage", "partitions", "inspect")
EXAMPLES_MIN = 10_000


def _value(node: ast.expr, names: dict[str, int]) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    return names.get(node.id) if isinstance(node, ast.Name) else None


def _constants(tree: ast.Module) -> dict[str, int]:
    """Module constants; of `depth.number_from(NAME, short=…, long=…)` the last, which counts in a long run."""
    result: dict[str, int] = {}
    for node in tree.body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and node.value is not None:
            last = [part for part in ast.walk(node.value) if isinstance(part, ast.Constant | ast.Name)]
            values = [value for part in last if (value := _value(part, result)) is not None]
            if values:
                result[target.id] = values[-1]
    return result


def _asked(tree: ast.Module) -> Iterator[int]:
    """Yields `max_examples` of each drawing test; a state machine has them in the settings of its test case."""
    names = _constants(tree)

    def sent(call: ast.expr) -> int | None:
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "settings":
            return next((_value(word.value, names) for word in call.keywords if word.arg == "max_examples"), None)
        return None

    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            decorators = [call for call in node.decorator_list if isinstance(call, ast.Call)]
            if any(getattr(call.func, "id", "") == "given" for call in decorators):
                yield next(
                    (count for call in decorators if (count := sent(call))),
                    settings.get_profile("default").max_examples,
                )
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            yield sent(node.value) or 0


def test_a_long_run_tries_the_log_with_ten_thousand_examples() -> None:
    counts: Counter[str] = Counter()
    for suite in SUITES:
        for path in sorted(Path(BASE_DIR, "tests/unit/brokers/engine", suite).rglob("test_*.py")):
            counts[f"{suite}/{path.name}"] += sum(_asked(ast.parse(path.read_text(encoding="utf-8"))))
    sent = "\n".join(f"{count:6} {name}" for name, count in counts.most_common() if count)
    print(f"{counts.total()} examples\n{sent}")
    assert counts.total() >= EXAMPLES_MIN, sent
