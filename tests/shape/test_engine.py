"""Shape of the broker's code: short parameter lists, one fair queue, and one way for a coroutine to yield."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

ENGINE: Final = Path(__file__).resolve().parents[2] / "brokers/engine"
PARAMETERS_MAX: Final = 7
# Constructors name each field of a value.
CONSTRUCTORS: Final = frozenset(("__init__", "__new__"))
# The room in which coroutines yield and queues take turns.
SCHEDULING: Final = "scheduling"
# Mappings of a key to a queue that share nothing out between tenants, with the reason. Entries only leave this list.
QUEUES_BY_KEY: Final = {
    "network/handshakes.py": "handshakes of one instance, by address",
    "partitions/leadership_check.py": "a check that waits for a partition's followers",
    "partitions/follower_session.py": "partitions that are ready for one follower, by owner",
    "network/entry_queue.py": "connections of one instance, by address",
}


def trees() -> dict[str, ast.Module]:
    return {path.relative_to(ENGINE).as_posix(): ast.parse(path.read_text()) for path in sorted(ENGINE.rglob("*.py"))}


def functions_with_many_parameters(tree: ast.Module) -> list[str]:
    result = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name in CONSTRUCTORS:
            continue
        names = [parameter.arg for parameter in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        count = len(names) - (names[:1] in (["self"], ["cls"]))
        if count > PARAMETERS_MAX:
            result.append(f"{node.name} has {count}")
    return result


def yields_by_sleeping(tree: ast.Module) -> int:
    """Number of `await …sleep(0)`."""
    return sum(
        isinstance(node, ast.Await)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).rpartition(".")[2] == "sleep"
        and [ast.unparse(argument) for argument in node.value.args[:1]] == ["0"]
        for node in ast.walk(tree)
    )


def queues_by_key(tree: ast.Module) -> list[str]:
    """Attributes and variables that map a key to a queue, and rotations: what a fair queue is made of."""
    result = []
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            kind = ast.unparse(node.annotation)
            if kind.partition("[")[0] in ("dict", "OrderedDict", "defaultdict") and "deque[" in kind:
                result.append(ast.unparse(node.target))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "rotate":
            result.append(ast.unparse(node.func))
    return result


def test_no_function_of_the_engine_has_more_than_seven_parameters() -> None:
    many = {name: result for name, tree in trees().items() if (result := functions_with_many_parameters(tree))}
    assert not many, "parameters that belong together are one value"


def test_coroutines_yield_in_one_module() -> None:
    sleeping = {name for name, tree in trees().items() if yields_by_sleeping(tree)}
    assert sleeping == {f"{SCHEDULING}/time_slice.py"}, "await yield_to_others() instead"


def test_the_engine_has_one_fair_queue() -> None:
    trees_by_name = trees()
    queues = {
        (name, node.name)
        for name, tree in trees_by_name.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and "Fair" in node.name and node.name.endswith("Queue")
    }
    private = {name for name, tree in trees_by_name.items() if queues_by_key(tree)}
    assert queues == {(f"{SCHEDULING}/fair_queue.py", "FairQueue")}
    assert {name for name in private if not name.startswith(f"{SCHEDULING}/")} <= QUEUES_BY_KEY.keys()


def test_mistakes_are_found() -> None:
    many = ast.parse(
        "class A:\n def f(self, a, b, c, d, e, f, g, *, h): ...\n def __init__(self, a, b, c, d, e, f, g, h): ..."
    )
    assert functions_with_many_parameters(many) == ["f has 8"]
    assert (
        yields_by_sleeping(ast.parse("async def f():\n await asyncio.sleep(0)\n await sleep(1)\n time.sleep(0)")) == 1
    )
    private = ast.parse(
        "class A:\n def __init__(self):\n  self._of: dict[str, deque[int]] = {}\n  self._all.rotate(-1)"
    )
    assert queues_by_key(private) == ["self._of", "self._all.rotate"]
