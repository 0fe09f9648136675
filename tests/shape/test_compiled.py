"""Code that mypyc compiles with another meaning than Python's stays out of compiled modules (decision 12)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from brokers.native.modules import MODULES, ROOT, source_of

CASES = {
    "for i in range(count): count = 3": True,
    "for i in range(count):\n for count in x: pass": True,
    "for i in range(count):\n (count,) = f()": True,
    "for i in range(count - 1): count = 3": False,
    "for i in range(count): other = 3": False,
    "class A:\n b = property(f)": True,
    "class A:\n @property\n def b(self): ...": False,
    'class A:\n __slots__ = ("a", "__weakref__")': True,
    "data[slice(*pair)]": True,
    "data[pair[0]:pair[1]]": False,
    "def outer(a):\n def inner(): return a\n return inner": True,
    "def outer(a):\n return partial(inner, a)": False,
}


def suspicions(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and _moves_its_own_end(node):
            yield f"line {node.lineno}: the end of a range is assigned in its loop; compiled, the loop would follow it"
        if isinstance(node, ast.ClassDef):
            for line in node.body:
                if isinstance(line, ast.Assign) and isinstance(line.value, ast.Call) and _is(line.value, "property"):
                    yield f"line {line.lineno}: property(...) as a value; compiled, it would be a plain attribute"
        if isinstance(node, ast.Constant) and node.value == "__weakref__":
            yield f"line {node.lineno}: a slot for weak references; compiled, there are none"
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Call) and _is(node.slice, "slice"):
            yield f"line {node.lineno}: [slice(...)]; compiled, it would be taken for an index"
    for function in _nested(tree):
        yield f"line {function.lineno}: a function in a function; compiled, each call leaves a cycle to be collected"


def _nested(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for outer in ast.walk(tree):
        if isinstance(outer, functions):
            yield from (node for node in ast.walk(outer) if isinstance(node, functions) and node is not outer)


def _is(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == name


def _moves_its_own_end(loop: ast.For) -> bool:
    if not (isinstance(loop.iter, ast.Call) and _is(loop.iter, "range")):
        return False
    ends = {argument.id for argument in loop.iter.args if isinstance(argument, ast.Name)}
    return any(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in ends
        for line in loop.body
        for node in ast.walk(line)
    )


@pytest.mark.parametrize("code", CASES)
def test_the_suspicions_are_the_right_ones(code: str) -> None:
    assert bool(list(suspicions(ast.parse(code)))) is CASES[code]


def test_no_compiled_module_says_what_the_compiler_misunderstands() -> None:
    result = {name: list(suspicions(ast.parse(source_of(name).read_text()))) for name in MODULES}
    assert {name: lines for name, lines in result.items() if lines} == {}


# Classes of these kinds are plain Python also where their module is compiled.
_PLAIN = {"NamedTuple", "Protocol", "Enum", "IntEnum", "Exception", "TypedDict"}


def _classes(tree: ast.Module) -> dict[str, set[str]]:
    """Returns the classes of a module by name, with the names of their bases."""
    return {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def test_no_plain_class_inherits_from_a_compiled_one() -> None:
    """It would be refused when it is made, and so only where there is a compiler."""
    compiled = {
        (name, made)
        for name in MODULES
        for made, bases in _classes(ast.parse(source_of(name).read_text())).items()
        if not bases & _PLAIN
    }
    own = {source_of(name) for name in MODULES}
    heirs = []
    for path in sorted((ROOT / "brokers").rglob("*.py")):
        if path in own:
            continue
        tree = ast.parse(path.read_text())
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if (node.module, alias.name) in compiled
        }
        heirs += [f"{path}: {name}" for name, bases in _classes(tree).items() if bases & imported]
    assert heirs == []


COMPILED = frozenset(MODULES)
# Bases whose subclasses mypyc leaves to the interpreter.
OPEN_BASES = frozenset(("Protocol", "Exception", "IntEnum", "IntFlag", "Enum", "NamedTuple", "TypedDict"))


def base_names(node: ast.ClassDef) -> list[str]:
    bases = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    return [base.id for base in bases if isinstance(base, ast.Name)]


def closed_classes(module: str) -> set[str]:
    """Classes of a compiled module from which no class of a plain module can inherit."""
    tree = ast.parse(source_of(module).read_text(encoding="utf-8"))
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {node.name for node in classes if OPEN_BASES.isdisjoint(base_names(node))}


def inherits_from_compiled(tree: ast.AST) -> list[str]:
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in COMPILED
        for alias in node.names
        if alias.name in closed_classes(node.module)
    }
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not imported.isdisjoint(base_names(node))
    ]


def test_no_class_of_a_plain_module_inherits_from_a_compiled_one() -> None:
    """The interpreter refuses such a class when it makes an object, in compiled brokers alone."""
    found = {}
    compiled = {source_of(name) for name in MODULES}
    for file in (ROOT / "brokers/engine").rglob("*.py"):
        if file not in compiled and (names := inherits_from_compiled(ast.parse(file.read_text(encoding="utf-8")))):
            found[file.relative_to(ROOT).as_posix()] = names
    assert not found, "hold the object instead"


def test_a_class_that_inherits_from_a_compiled_one_is_found() -> None:
    mistake = "from brokers.engine.scheduling.fair_queue import InstanceQueue, QueueFull\n"
    assert inherits_from_compiled(ast.parse(mistake + "class A(InstanceQueue[None]): ...")) == ["A"]
    assert inherits_from_compiled(ast.parse(mistake + "class A(QueueFull): ...")) == []
