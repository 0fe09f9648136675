"""Compiler of encoders: generates the source of the encoder of one version of one message.

A generated encoder takes the message and returns its body, which is collected in a list and joined once. Adjacent
fixed-width fields, and the length of a classic string or array after them, are written by one `pack`. A value that does
not fit its field raises `struct.error`, which is a bug of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import pack
from typing import Any, Final

from brokers.engine.protocol.apis import Api
from brokers.engine.protocol.fields import FIXED, FieldSpec
from brokers.engine.protocol.layout import Slot, is_default_factory, tagged_slots, untagged_slots
from brokers.engine.protocol.source import FunctionSource
from brokers.engine.wire.varints import SHORT_UNSIGNED, encode_unsigned

Encoder = Callable[[Any], bytes]
# A generator that yields after each piece and returns the body.
PiecewiseEncoder = Callable[[Any], Generator[None, None, bytes]]
# A generator that yields after each piece and returns the parts of the body; long blobs are parts without a copy.
PartsEncoder = Callable[[Any], Generator[None, None, list[bytes]]]
# Number of writes between two yields; a write is a field or a run of fixed-width fields.
WRITES_PER_PIECE: Final = 1_000
# Total size between two yields of strings and blobs that are at least LONG_BYTES long.
LONG_BYTES: Final = 1_024
LONG_BYTES_PER_PIECE: Final = 1024 * 1024


def compile_encoder(cls: type[Any], api: Api, version: int) -> Encoder:
    """Compiles the encoder of `cls` in this version."""
    encoder: Encoder = _EncoderWriter(version, version >= api.flexible_from).write(cls)
    return encoder


def compile_piecewise_encoder(cls: type[Any], api: Api, version: int) -> PiecewiseEncoder:
    """Compiles the encoder as a generator, for messages with very long arrays."""
    encoder: PiecewiseEncoder = _EncoderWriter(version, version >= api.flexible_from, in_pieces=True).write(cls)
    return encoder


def compile_parts_encoder(cls: type[Any], api: Api, version: int) -> PartsEncoder:
    """Compiles the encoder as a generator like `compile_piecewise_encoder`, without joining the parts of the body."""
    is_flexible = version >= api.flexible_from
    encoder: PartsEncoder = _EncoderWriter(version, is_flexible, in_pieces=True, is_joined=False).write(cls)
    return encoder


class _EncoderWriter:
    def __init__(self, version: int, is_flexible: bool, *, in_pieces: bool = False, is_joined: bool = True) -> None:
        self.version = version
        self.is_flexible = is_flexible
        self.in_pieces = in_pieces
        self.is_joined = is_joined
        self.source = FunctionSource(
            {"pack": pack, "SHORT": SHORT_UNSIGNED, "unsigned": encode_unsigned, "join": b"".join}
        )
        # Adjacent fixed-width writes, which are combined in one `pack`: (format letter, expression); x is a zero byte.
        self._run: list[tuple[str, str]] = []
        self._out = "out"

    def write(self, cls: type[Any]) -> Any:
        source = self.source
        with source.block("def encode(m):"):
            source.write_line("out = []")
            source.write_line("w_out = out.append")
            if self.in_pieces:
                source.write_line("pieces = []")
                source.write_line("long_bytes = 0")
            self._write_struct(cls, "m")
            self._flush_run()
            if self.in_pieces:
                source.write_line("pieces.append(join(out))")
                source.write_line("return join(pieces)" if self.is_joined else "return pieces")
                source.write_line("yield")
            else:
                source.write_line("return join(out)")
        return source.compile_function("encode", f"{cls.__name__} v{self.version} encode")

    def _write(self, expression: str) -> None:
        self._flush_run()
        self.source.write_line(f"w_{self._out}({expression})")

    def _flush_run(self) -> None:
        if not self._run:
            return
        letters = "".join(letter for letter, _ in self._run)
        values = ", ".join(value for letter, value in self._run if letter != "x")
        self.source.write_line(f"w_{self._out}({self.source.struct_method('pack', letters)}({values}))")
        self._run = []

    def _write_struct(self, cls: type[Any], variable: str) -> None:
        for slot in untagged_slots(cls, self.version, self.is_flexible):
            self._write_field(slot.spec, f"{variable}.{slot.name}")
        if self.is_flexible:
            tagged = tagged_slots(cls, self.version, self.is_flexible)
            if tagged:
                self._write_tagged_section(tagged, variable)
            else:
                self._run.append(("x", ""))

    def _write_field(self, spec: FieldSpec, expression: str) -> None:
        if spec.kind in FIXED:
            self._run.append((FIXED[spec.kind], expression))
        elif spec.kind == "array":
            self._write_array(spec, expression)
        elif spec.kind == "nested":
            self._write_nested(spec, expression)
        else:
            self._write_sized(spec, expression)

    def _write_nested(self, spec: FieldSpec, expression: str) -> None:
        source = self.source
        name = source.fresh_name("s")
        source.write_line(f"{name} = {expression}")
        if not spec.is_nullable(self.version):
            self._write_struct(spec.inner, name)
            return
        self._flush_run()
        with source.block(f"if {name} is None:"):
            self._write("b'\\xff'")
        with source.block("else:"):
            self._write("b'\\x01'")
            self._write_struct(spec.inner, name)
            self._flush_run()

    def _write_length(self, letter: str, length: str) -> None:
        """Writes code for the length or count in the variable `length`, -1 for null."""
        if not self.is_flexible:
            self._run.append((letter, length))
            return
        self._write(f"SHORT[{length} + 1] if {length} < 127 else unsigned({length} + 1)")

    def _write_sized(self, spec: FieldSpec, expression: str) -> None:
        source = self.source
        name, length = source.fresh_name("x"), source.fresh_name("n")
        source.write_line(f"{name} = {expression}")
        bytes_of = f"{name}.encode()" if spec.kind == "text" else name
        if spec.is_nullable(self.version):
            with source.block(f"if {name} is None:"):
                source.write_line(f"{name} = b''")
                source.write_line(f"{length} = -1")
            with source.block("else:"):
                source.write_line(f"{name} = {bytes_of}")
                source.write_line(f"{length} = len({name})")
        else:
            if spec.kind == "text":
                source.write_line(f"{name} = {bytes_of}")
            source.write_line(f"{length} = len({name})")
        self._write_length("h" if spec.kind == "text" else "i", length)
        if not self.is_joined and spec.kind != "text" and self._out == "out":
            self._flush_run()
            with source.block(f"if {length} >= {LONG_BYTES_PER_PIECE}:"):
                source.write_line("pieces.append(join(out))")
                source.write_line("out.clear()")
                source.write_line(f"pieces.append({name})")
                source.write_line(f"{name} = b''")
        self._write(name)
        if self.in_pieces:
            with source.block(f"if {length} >= {LONG_BYTES}:"):
                source.write_line(f"long_bytes += {length}")

    def _write_array(self, spec: FieldSpec, expression: str) -> None:
        source, element = self.source, spec.inner
        name, count = source.fresh_name("x"), source.fresh_name("n")
        source.write_line(f"{name} = {expression}")
        if spec.is_nullable(self.version):
            with source.block(f"if {name} is None:"):
                source.write_line(f"{name} = ()")
                source.write_line(f"{count} = -1")
            with source.block("else:"):
                source.write_line(f"{count} = len({name})")
        else:
            source.write_line(f"{count} = len({name})")
        self._write_length("i", count)
        if element.kind in FIXED and element.kind != "uuid":
            self._write(f"pack('>%d{FIXED[element.kind]}' % len({name}), *{name})")
            return
        self._flush_run()
        value = source.fresh_name("y")
        with source.block(f"for {value} in {name}:"):
            if element.kind == "nested":
                self._write_struct(element.inner, value)
            else:
                self._write_field(element, value)
            self._flush_run()
            if self.in_pieces:
                with source.block(f"if len(out) > {WRITES_PER_PIECE} or long_bytes > {LONG_BYTES_PER_PIECE}:"):
                    source.write_line("long_bytes = 0")
                    source.write_line("pieces.append(join(out))")
                    source.write_line("out.clear()")
                    source.write_line("yield")

    def _write_tagged_section(self, tagged: list[Slot], variable: str) -> None:
        """Writes code for the tagged fields that differ from their defaults, in ascending order of tags."""
        self._flush_run()
        source, outer = self.source, self._out
        section, count = source.fresh_name("tags"), source.fresh_name("n")
        source.write_line(f"{section} = []")
        source.write_line(f"{count} = 0")
        for slot in tagged:
            inner = source.fresh_name("out")
            expression = f"{variable}.{slot.name}"
            with source.block(f"if {self._differs(slot, expression)}:"):
                source.write_line(f"{inner} = []")
                source.write_line(f"w_{inner} = {inner}.append")
                self._out = inner
                self._write_field(slot.spec, expression)
                self._flush_run()
                self._out = outer
                source.write_line(f"{inner} = join({inner})")
                source.write_line(f"{section} += (unsigned({slot.spec.tag}), unsigned(len({inner})), {inner})")
                source.write_line(f"{count} += 1")
        self._write(f"unsigned({count})")
        source.write_line(f"{self._out} += {section}")

    def _differs(self, slot: Slot, expression: str) -> str:
        if slot.default is None:
            return f"{expression} is not None"
        if slot.default is list:
            return f"{expression} is None or len({expression})"
        if is_default_factory(slot.default):
            return f"{expression} != {self.source.constant('default', slot.default(), slot.default)}"
        return f"{expression} != {slot.default!r}"
