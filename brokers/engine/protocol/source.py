"""Builder of Python source: lines, indentation, fresh names, and the constants that the code refers to.

Generated functions read or write one version of one message without a call per field. The source is made from the
declarations in this package only, never from data of a peer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any


class FunctionSource:
    """Source of one function; `constants` become its globals."""

    def __init__(self, constants: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self.constants = dict(constants)
        self._names: dict[Any, str] = {}
        self._depth = 0
        self._fresh_count = 0

    def write_line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Writes `opening` and indents the lines written inside of the `with` block."""
        self.write_line(opening)
        self._depth += 1
        line_count_before = len(self.lines)
        yield
        if len(self.lines) == line_count_before:
            self.write_line("pass")
        self._depth -= 1

    def fresh_name(self, stem: str) -> str:
        """Returns a new variable name."""
        self._fresh_count += 1
        return f"{stem}{self._fresh_count}"

    def constant(self, stem: str, value: Any, key: Any = None) -> str:
        """Returns a global name for a value; equal keys share one name."""
        key = (stem, id(value) if key is None else key)
        name = self._names.get(key)
        if name is None:
            name = f"{stem}_{len(self._names)}"
            self._names[key] = name
            self.constants[name] = value
        return name

    def struct_method(self, method: str, letters: str) -> str:
        """Returns a global name for a method of `Struct(">" + letters)`."""
        return self.constant(method, getattr(Struct(">" + letters), method), letters)

    def compile_function(self, name: str, description: str) -> Any:
        """Executes the source and returns the function that it defines."""
        text = "\n".join(self.lines)
        exec(compile(text, f"<codec: {description}>", "exec"), self.constants)  # noqa: S102  (our own source, see above)
        return self.constants[name]
