"""Compiler of decoders: generates the source of the decoder of one version of one message.

A generated decoder takes `(b, p, e)`: buffer, position, end of the frame. Three rules make hostile input harmless:
* every length and count is compared with the bytes left (`e - p`) before anything is sliced or built;
* fixed-width fields may be read past `e` (the receive buffer is longer than the frame, or `struct` and indexing raise),
  but the next length or the last line detects `p > e`, so that no such message is returned;
* the elements of all arrays together are bounded (`left`), because one byte on the wire may be a hundred in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import calcsize, unpack_from
from struct import error as struct_error
from typing import Any, Final

from brokers.engine.protocol.apis import Api
from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.fields import FIXED, FieldSpec
from brokers.engine.protocol.layout import Slot, is_default_factory, size_min, slots_of, tagged_slots, untagged_slots
from brokers.engine.protocol.lengths import REPLACEMENT_BYTES, TAGGED_FIELDS_MAX, TEXT_BYTES_MAX, rest_of_varint
from brokers.engine.protocol.source import FunctionSource

Decoder = Callable[[bytes | bytearray | memoryview, int, int], Any]
PiecewiseDecoder = Callable[[bytes | bytearray | memoryview, int, int], Generator[None, None, Any]]
# Number of array elements that are decoded between two yields; each takes some microseconds.
ITEMS_PER_PIECE: Final = 300
# Bytes of a string that count as one element: invalid UTF-8 takes 9 ns per byte.
TEXT_BYTES_PER_ITEM: Final = 1_024
# Bytes of a blob that count as one element: copying it and its first use take 0.5 ns per byte.
BLOB_BYTES_PER_ITEM: Final = 8_192


def compile_decoder(cls: type[Any], api: Api, version: int, items_max: int) -> Decoder:
    """Compiles the decoder of `cls` in this version. The decoder raises MalformedRequest only."""
    writer = _DecoderWriter(cls.__name__, version, version >= api.flexible_from, items_max)
    decoder: Decoder = writer.write(cls)
    return decoder


def compile_piecewise_decoder(cls: type[Any], api: Api, version: int, items_max: int) -> PiecewiseDecoder:
    """Compiles the decoder as a generator, for messages with very long arrays."""
    writer = _DecoderWriter(cls.__name__, version, version >= api.flexible_from, items_max, in_pieces=True)
    decoder: PiecewiseDecoder = writer.write(cls)
    return decoder


class _DecoderWriter:
    def __init__(
        self, message: str, version: int, is_flexible: bool, items_max: int, *, in_pieces: bool = False
    ) -> None:
        self.message = message
        self.version = version
        self.is_flexible = is_flexible
        self.items_max = items_max
        self.in_pieces = in_pieces
        self.source = FunctionSource(
            {
                "Malformed": MalformedRequest,
                "StructError": struct_error,
                "unpack_from": unpack_from,
                "rest_of_varint": rest_of_varint,
            }
        )
        # Adjacent fixed-width reads, which are combined in one `unpack`: (format letter, variable).
        self._run: list[tuple[str, str]] = []

    def write(self, cls: type[Any]) -> Any:
        source = self.source
        with source.block("def decode(b, p, e):"):
            with source.block("try:"):
                source.write_line(f"left = {self.items_max}")
                if self.in_pieces:
                    source.write_line(f"rest = {ITEMS_PER_PIECE}")
                result = self._write_struct(cls, self.message)
                with source.block("if p > e:"):
                    source.write_line(f"raise Malformed('{self.message}: the frame ends too early')")
                source.write_line(f"return {result}")
                if self.in_pieces:
                    source.write_line("yield")
            with source.block("except (IndexError, StructError) as error:"):
                source.write_line(f"raise Malformed('{self.message}: the frame ends too early') from error")
        return source.compile_function("decode", f"{self.message} v{self.version} decode")

    def _flush_run(self) -> None:
        if not self._run:
            return
        letters = "".join(letter for letter, _ in self._run)
        names = ", ".join(name for _, name in self._run)
        self.source.write_line(f"{names}, = {self.source.struct_method('unpack_from', letters)}(b, p)")
        self.source.write_line(f"p += {calcsize('>' + letters)}")
        self._run = []

    def _write_struct(self, cls: type[Any], path: str) -> str:
        """Writes code that reads a struct; returns the expression that constructs it."""
        values: dict[str, str] = {}
        for slot in untagged_slots(cls, self.version, self.is_flexible):
            values[slot.name] = self._write_field(slot.spec, f"{path}.{slot.name}")
        tagged = tagged_slots(cls, self.version, self.is_flexible)
        if self.is_flexible:
            self._write_tagged_section(tagged, values, path)
        self._flush_run()
        arguments = [values.get(slot.name) or self._default_expression(slot) for slot in slots_of(cls, self.version)]
        return f"{self.source.constant('new', cls)}({', '.join(arguments)})"

    def _default_expression(self, slot: Slot) -> str:
        if slot.default is list:
            return "[]"
        if is_default_factory(slot.default):
            return f"{self.source.constant('new', slot.default)}()"
        return repr(slot.default)

    def _write_field(self, spec: FieldSpec, path: str) -> str:
        """Writes code that reads a field; returns the name of its variable."""
        if spec.kind in FIXED:
            name = self.source.fresh_name("v")
            self._run.append((FIXED[spec.kind], name))
            return name
        if spec.kind == "array":
            return self._write_array(spec, path)
        if spec.kind == "nested":
            return self._write_nested(spec, path)
        return self._write_sized(spec, path)

    def _write_nested(self, spec: FieldSpec, path: str) -> str:
        source = self.source
        name = source.fresh_name("v")
        if not spec.is_nullable(self.version):
            expression = self._write_struct(spec.inner, path)
            source.write_line(f"{name} = {expression}")
            return name
        marker = source.fresh_name("n")
        self._run.append(("b", marker))
        self._flush_run()
        with source.block(f"if {marker} < 0:"):
            source.write_line(f"{name} = None")
        with source.block("else:"):
            expression = self._write_struct(spec.inner, path)
            source.write_line(f"{name} = {expression}")
        return name

    def _write_length(self, letter: str) -> str:
        """Writes code that reads a length or count, compact or classic; negative means null."""
        name = self.source.fresh_name("n")
        if not self.is_flexible:
            self._run.append((letter, name))
            self._flush_run()
            return name
        self._run.append(("B", name))
        self._flush_run()
        with self.source.block(f"if {name} > 127:"):
            self.source.write_line(f"{name}, p = rest_of_varint(b, p, {name})")
        self.source.write_line(f"{name} -= 1")
        return name

    def _write_null_check(self, spec: FieldSpec, length: str, name: str, path: str) -> None:
        with self.source.block(f"if {length} < 0:"):
            if spec.is_nullable(self.version):
                self.source.write_line(f"{name} = None")
            else:
                self.source.write_line(f"raise Malformed('{path} is null')")

    def _write_sized(self, spec: FieldSpec, path: str) -> str:
        source = self.source
        length = self._write_length("h" if spec.kind == "text" else "i")
        name = source.fresh_name("v")
        self._write_null_check(spec, length, name, path)
        with source.block("else:"):
            source.write_line(f"q = p + {length}")
            with source.block("if q > e:"):
                source.write_line(f"raise Malformed('{path} runs past the frame')")
            if spec.kind == "text":
                self._write_text(length, name, path)
            else:
                source.write_line(f"{name} = bytes(b[p:q])")
                if self.in_pieces:
                    with source.block(f"if {length} >= {BLOB_BYTES_PER_ITEM}:"):
                        source.write_line(f"rest -= {length} // {BLOB_BYTES_PER_ITEM}")
                        self._yield_when_spent()
            source.write_line("p = q")
        return name

    def _write_text(self, length: str, name: str, path: str) -> None:
        source = self.source
        if self.is_flexible:
            with source.block(f"if {length} > {TEXT_BYTES_MAX}:"):
                source.write_line(f"raise Malformed('{path} is longer than {TEXT_BYTES_MAX} bytes')")
        source.write_line(f"{name} = str(b[p:q], 'utf-8', 'replace')")
        may_grow = f"{length} > {TEXT_BYTES_MAX // REPLACEMENT_BYTES}"
        with source.block(f"if {may_grow} and len({name}.encode()) > {TEXT_BYTES_MAX}:"):
            source.write_line(f"raise Malformed('{path} is longer than {TEXT_BYTES_MAX} bytes once it is UTF-8')")
        if self.in_pieces:
            with source.block(f"if {length} >= {TEXT_BYTES_PER_ITEM}:"):
                source.write_line(f"rest -= {length} // {TEXT_BYTES_PER_ITEM}")
                self._yield_when_spent()

    def _yield_when_spent(self) -> None:
        with self.source.block("if rest <= 0:"):
            self.source.write_line(f"rest = {ITEMS_PER_PIECE}")
            self.source.write_line("yield")

    def _write_array(self, spec: FieldSpec, path: str) -> str:
        source, element = self.source, spec.inner
        count = self._write_length("i")
        name = source.fresh_name("v")
        self._write_null_check(spec, count, name, path)
        with source.block("else:"):
            width = max(1, size_min(element, self.version, self.is_flexible))
            with source.block(f"if {count} > (e - p) // {width}:"):
                source.write_line(f"raise Malformed('{path} has more items than the frame can hold')")
            source.write_line(f"left -= {count}")
            with source.block("if left < 0:"):
                source.write_line(f"raise Malformed('{path}: too many items in one message')")
            if element.kind in FIXED and element.kind != "uuid":
                source.write_line(f"{name} = [*unpack_from('>%d{FIXED[element.kind]}' % {count}, b, p)]")
                source.write_line(f"p += {width} * {count}")
            else:
                add = source.fresh_name("add")
                source.write_line(f"{name} = []")
                source.write_line(f"{add} = {name}.append")
                with source.block(f"for _ in range({count}):"):
                    if self.in_pieces:
                        source.write_line("rest -= 1")
                        self._yield_when_spent()
                    value = (
                        self._write_struct(element.inner, path)
                        if element.kind == "nested"
                        else self._write_field(element, path)
                    )
                    self._flush_run()
                    source.write_line(f"{add}({value})")
        return name

    def _write_tagged_section(self, tagged: list[Slot], values: dict[str, str], path: str) -> None:
        """Writes code that reads the tagged fields.

        Unknown fields are skipped; repeated and descending tags are accepted, as by Kafka 3.9.1.
        """
        source = self.source
        count = source.fresh_name("t")
        self._run.append(("B", count))
        self._flush_run()
        for slot in tagged:
            values[slot.name] = source.fresh_name("v")
            source.write_line(f"{values[slot.name]} = {self._default_expression(slot)}")
        tag, size, stop = source.fresh_name("t"), source.fresh_name("t"), source.fresh_name("q")
        with source.block(f"if {count}:"):
            with source.block(f"if {count} > {TAGGED_FIELDS_MAX}:"):
                source.write_line(f"raise Malformed('{path} has more than {TAGGED_FIELDS_MAX} tagged fields')")
            with source.block(f"for _ in range({count}):"):
                for name in (tag, size):
                    source.write_line(f"{name} = b[p]")
                    source.write_line("p += 1")
                    with source.block(f"if {name} > 127:"):
                        source.write_line(f"{name}, p = rest_of_varint(b, p, {name})")
                source.write_line(f"{stop} = p + {size}")
                with source.block(f"if {stop} > e:"):
                    source.write_line(f"raise Malformed('{path}: a tagged field runs past the frame')")
                for slot in tagged:
                    with source.block(f"if {tag} == {slot.spec.tag}:"):
                        value = self._write_field(slot.spec, f"{path}.{slot.name}")
                        self._flush_run()
                        source.write_line(f"{values[slot.name]} = {value}")
                        with source.block(f"if p != {stop}:"):
                            source.write_line(f"raise Malformed('{path}.{slot.name} does not fill its tagged field')")
                source.write_line(f"p = {stop}")
