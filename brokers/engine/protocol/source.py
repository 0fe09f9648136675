"""Python source under construction: lines, indentation, fresh names, and the constants the code refers to.

Generated functions read and write one version of one message without a call per field; `exec` runs them once. Their
only inputs are our own declarations, never anything a peer sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any


class Source:
    """A function being written. `constants` become its globals."""

    def __init__(self, constants: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self.constants = dict(constants)
        self._names: dict[Any, str] = {}
        self._depth = 0
        self._fresh = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Write `opening` and indent what is written inside."""
        self.line(opening)
        self._depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """A variable name not used yet."""
        self._fresh += 1
        return f"{stem}{self._fresh}"

    def constant(self, stem: str, value: Any, key: Any = None) -> str:
        """A global name for a value; equal keys share one name."""
        key = (stem, id(value) if key is None else key)
        name = self._names.get(key)
        if name is None:
            name = f"{stem}_{len(self._names)}"
            self._names[key] = name
            self.constants[name] = value
        return name

    def struct_method(self, method: str, letters: str) -> str:
        """A global name for `Struct(">letters").method`."""
        return self.constant(method, getattr(Struct(">" + letters), method), letters)

    def function(self, name: str, where: str) -> Any:
        """Run the source and answer the function it defines."""
        text = "\n".join(self.lines)
        exec(compile(text, f"<codec: {where}>", "exec"), self.constants)  # noqa: S102  (our own source, see above)
        return self.constants[name]
