"""Dotted names in backticks lead somewhere: `storage.log.Log` to a class in a module, `Log.append` to its method."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from tests.shape.test_tidy import name_of, python_files

DOTTED = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`")
CLASS = re.compile(r"^ *class (\w+)(?:\[[^\]]*\])?(?:\(([^)]*)\))?:", re.MULTILINE)
# Names that end so are files.
SUFFIXES = frozenset({"csv", "html", "json", "key", "log", "md", "parquet", "pem", "po", "properties", "py", "txt"})
# Classes of Django, Java and browsers that comments refer to.
FOREIGN = frozenset({"AdminSite", "AppConfig", "Model", "String", "navigator"})
# Settings of Apache Kafka that the code does not have as strings.
KAFKA_SETTINGS = frozenset(
    {
        "connection.failed.authentication.delay.ms",
        "sasl.enabled.mechanisms",
        "sasl.oauthbearer.expected.audience",
        "sasl.server.callback.handler.class",
    }
)
QUOTED = re.compile(r"['\"/]([a-z]\w*(?:\.\w+)+)['\"]")
PROSE = re.compile(r'""".*?"""|#[^\n]*', re.DOTALL)
SELF = "tests/shape/test_dotted_names.py"


class Tree(NamedTuple):
    """Texts of the tree's files by name, and their code by every suffix of a module's name and by class.

    `keys` are dotted names in quotes, such as settings and permissions.
    """

    texts: dict[str, str]
    modules: dict[str, list[str]]
    classes: dict[str, list[str]]
    bases: dict[str, set[str]]
    keys: set[str]

    @classmethod
    def of(cls, texts: dict[str, str]) -> Tree:
        """Indexes files. A package without a text of its own, such as a folder of migrations, resolves too."""
        modules, classes, bases = defaultdict(list), defaultdict(list), defaultdict(set)
        keys: set[str] = set()
        for name, text in texts.items():
            code = PROSE.sub("", text)
            keys |= set(QUOTED.findall(code))
            parts = name.removesuffix(".py").removesuffix("/__init__").split("/")
            for end in range(1, len(parts) + 1):
                for start in range(end):
                    modules[".".join(parts[start:end])] += [code] if end == len(parts) else []
            for class_name, bases_text in CLASS.findall(code):
                classes[class_name].append(code)
                bases[class_name] |= set(re.findall(r"\w+", bases_text))
        return cls(texts, dict(modules), dict(classes), dict(bases), keys)

    def resolves(self, dotted: str, text: str) -> bool:
        """True if a name in the given text leads to a module, a class or a local name of the tree, or outside of it."""
        parts = dotted.split(".")
        if parts[-1] in SUFFIXES or parts[0] in FOREIGN or parts[0] in sys.stdlib_module_names:
            return True
        if dotted in self.keys or dotted in KAFKA_SETTINGS:
            return True
        for length in range(len(parts), 0, -1):
            module = ".".join(parts[:length])
            if module in self.modules:
                codes = self.modules[module]
                if length == len(parts) or any(all(_has(code, part) for part in parts[length:]) for code in codes):
                    return True
        class_at = next((at for at, part in enumerate(parts[:-1]) if part in self.classes), None)
        if class_at is not None:
            return any(_has(text, parts[class_at + 1]) for text in self._texts_of_class(parts[class_at]))
        if parts[0] in self.modules or any(part[:1].isupper() for part in parts):
            return _is_local(parts, text)
        # A setting of Kafka or another program, or an object that this text names.
        return True

    def _texts_of_class(self, name: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        yield from self.classes.get(name, ())
        for base in self.bases.get(name, set()) - seen:
            yield from self._texts_of_class(base, seen | {name})


def _has(text: str, word: str) -> bool:
    return re.search(rf"\b{word}\b", text) is not None


def _is_local(parts: list[str], text: str) -> bool:
    """True if the code around a comment uses the first part as a variable."""
    return re.search(rf"(?<![.\w]){parts[0]}\s*(?:[:,=)]|\.\w)|\bas {parts[0]}\b", PROSE.sub("", text)) is not None


@cache
def tree() -> Tree:
    return Tree.of({name_of(file): file.read_text(encoding="utf-8") for file in python_files()})


def unresolved(tree: Tree) -> list[str]:
    """Returns the dotted names that lead nowhere, with their files."""
    return sorted(
        f"{name}: {dotted}"
        for name, text in tree.texts.items()
        if name != SELF
        for dotted in set(DOTTED.findall(text))
        if not tree.resolves(dotted, text)
    )


def test_dotted_names_in_backticks_lead_somewhere() -> None:
    assert not unresolved(tree()), "write the name as it is now, or leave it out"


LOG = "class Base:\n    def close(self): ...\nclass Log(Base):\n    def append(self): ...\n"


@pytest.mark.parametrize(
    ("comment", "leads"),
    [
        ("`storage.log`", True),
        ("`app.storage.log.Log.append()`", True),
        ("`log.Log`", True),
        ("`Log.append`", True),
        ("`Log.close`", True),
        ("`config.json` and `min.insync.replicas`", True),
        ("`storage.verdicts`", False),
        ("`log.FollowedBatch`", False),
        ("`Log.extend`", False),
        ("`ports.Pool`", False),
    ],
)
def test_a_name_that_leads_nowhere_is_found(comment: str, leads: bool) -> None:
    files = {"app/storage/log.py": LOG, "app/x.py": f"# {comment}\n"}
    assert (not unresolved(Tree.of(files))) is leads
