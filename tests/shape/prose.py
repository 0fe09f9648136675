"""Docstrings and names of tests that have no subject, and the committed list of docstrings still to be mended.

`python -m tests.shape.prose` takes entries off the list that no longer offend. It refuses to add one: a docstring that
is new or changed begins with what the thing is or does.
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from config.environment import BASE_DIR
from tests.shape.test_tidy import python_files

LIST = Path(__file__).parent / "prose_offenders.txt"
COMMAND = "python -m tests.shape.prose"

OPENING = re.compile(r"`|(?:Of|As|What|Who|Whoever|How|Whether|By|The same)\b", re.IGNORECASE)
FIRST_SENTENCE = re.compile(r".+?(?:[.!?](?=\s)|(?=\n\s*\n)|\Z)", re.DOTALL)
HASH_LENGTH = 8
# Words that made sentences hard to read: each stands for a noun or a number.
RETIRED = re.compile(r"\b(?:whoever|told|so many)\b", re.IGNORECASE)
# Names of tests that have no subject, or in which a word stands for a noun or a number.
TEST_NAME = re.compile(
    r"test_(?:of|as|by|what|whatever|who|whom|whose|how|whether|which)_"
    r"|test_(?:\w+_)?(?:told|whoever|whomever|so_(?:many|much|often)|as_many_as)(?:_|$)"
)

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def first_sentence(docstring: str) -> str:
    """Returns the first sentence of a docstring on one line."""
    sentence = FIRST_SENTENCE.match(docstring.strip())
    return " ".join(sentence[0].split()) if sentence else ""


def is_offence(sentence: str) -> bool:
    """True if the sentence opens with a word or a sign that cannot be its subject."""
    return OPENING.match(sentence) is not None


def retired_words(text: str) -> list[str]:
    """Returns the retired words in docstrings and comments of a file, with their lines."""
    if not RETIRED.search(text):
        return []
    places = [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    tree = ast.parse(text)
    places += [(1, ast.get_docstring(tree) or "")]
    places += [(node.lineno, ast.get_docstring(node) or "") for _, node in documented(tree)]
    return [f"line {line}: {match[0]}" for line, prose in sorted(places) for match in RETIRED.finditer(prose)]


def misnamed_tests(text: str) -> list[str]:
    """Returns the names of a file's tests that are no sentence with a subject, in their order."""
    names = [node.name for _, node in documented(ast.parse(text)) if not isinstance(node, ast.ClassDef)]
    return [name for name in names if TEST_NAME.match(name)]


def entry(path: str, qualified_name: str, sentence: str) -> str:
    """Line of the list; its hash changes with the sentence, so that a changed docstring is a new offender."""
    digest = hashlib.sha256(sentence.encode()).hexdigest()[:HASH_LENGTH]
    return f"{path}:{qualified_name} {digest}"


def documented(node: ast.AST, outer: str = "") -> Iterator[tuple[str, Definition]]:
    """Yields everything below a node that may have a docstring, with its qualified name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{outer}.{child.name}" if outer else child.name
            yield name, child
            yield from documented(child, name)
        else:
            yield from documented(child, outer)


def offences(path: str, text: str) -> dict[str, str]:
    """Offending first sentences of one file, by their entry of the list."""
    tree = ast.parse(text)
    result = {}
    for name, node in [("<module>", tree), *documented(tree)]:
        sentence = first_sentence(ast.get_docstring(node) or "")
        if is_offence(sentence):
            result[entry(path, name, sentence)] = sentence
    return result


def offences_of_tree(root: Path, files: Iterable[Path]) -> dict[str, str]:
    """Offending first sentences of several files, by their entry of the list."""
    result: dict[str, str] = {}
    for file in files:
        result |= offences(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))
    return result


def read_list(file: Path) -> list[str]:
    """Returns the lines of a list of offenders."""
    return file.read_text(encoding="utf-8").splitlines()


def complaints(found: dict[str, str], lines: list[str]) -> list[str]:
    """Returns what keeps a tree and its list of offenders from agreeing, a line for each fault."""
    listed = set(lines)
    new = [f"{place.rpartition(' ')[0]}: begin with what it is or does: {found[place]}" for place in found]
    result = [line for place, line in zip(found, new, strict=True) if place not in listed]
    result += [f"{line}: mended or gone, run `{COMMAND}`" for line in sorted(listed - found.keys())]
    if lines != sorted(listed):
        result.append(f"the list is not sorted or names an offender twice, run `{COMMAND}`")
    return sorted(result)


def shrink(found: dict[str, str], file: Path) -> list[str]:
    """Rewrites the list without entries that no longer offend, and returns the offenders that it does not take up."""
    lines = sorted(found.keys() & set(read_list(file)))
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return complaints(found, lines)


def main() -> int:
    """Shrinks the committed list; the exit code is 1 if docstrings offend that are not on it."""
    left = shrink(offences_of_tree(BASE_DIR, python_files()), LIST)
    for line in left:
        sys.stderr.write(f"{line}\n")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
