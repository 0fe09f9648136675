"""Our codec against other codecs: the same bytes, the same values, the same schema."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import APIS
from brokers.engine.protocol.fields import OWN_TAGS_FROM, UUID_ZERO, FieldSpec, fields_of, message_class

from . import oracles
from .samples import VARIANTS, Direction, every_message, name_of, sample

Message = tuple[int, int, Direction]

# kio has only the versions of Kafka 4; kafka-python has no calls between brokers.
WITHOUT_ORACLE = {(56, 0, "request"), (56, 0, "response"), (56, 1, "request"), (56, 1, "response")}
# Calls between our own brokers, and of the control plane.
OURS = ((20_001, 0), (20_001, 1), (20_002, 0), (20_003, 0), (20_004, 0), (20_005, 0))
WITHOUT_ORACLE |= {(key, version, direction) for key, version in OURS for direction in ("request", "response")}


def encode(message: Message, value: Any) -> bytes:
    api_key, version, direction = message
    write = codec.encode_request if direction == "request" else codec.encode_response
    return write(api_key, version, value)


def decode(message: Message, body: bytes) -> Any:
    api_key, version, direction = message
    if direction == "request":
        return codec.decode_request(api_key, version, body, 0, len(body))
    return codec.decode_response(api_key, version, body)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("message", list(every_message()), ids=name_of)
def test_every_version_is_byte_for_byte_what_other_codecs_write(message: Message, variant: Any) -> None:
    value = sample(*message, variant)
    body = encode(message, value)
    assert decode(message, body) == value

    by_kio = oracles.through_kio(*message, body)
    by_kafka_python = oracles.through_kafka_python(*message, body)
    if by_kio is not None:
        written, read = by_kio
        assert written == body
        _assert_same_values(oracles.plain(value), read)
    if by_kafka_python is not None:
        assert by_kafka_python == body
    if by_kio is None and by_kafka_python is None:
        assert message in WITHOUT_ORACLE


def _assert_same_values(ours: Any, theirs: Any) -> None:
    """Check that every field of `theirs` has our name, our order and our value."""
    if isinstance(theirs, dict):
        assert [name for name in ours if name in theirs] == list(theirs)
        for name, value in theirs.items():
            _assert_same_values(ours[name], value)
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for our_item, their_item in zip(ours, theirs, strict=True):
            _assert_same_values(our_item, their_item)
    elif theirs is None:
        assert ours in (None, -1)  # kio decodes a date of -1 as None
    else:
        assert ours == theirs


def _range(text: str) -> tuple[int, int]:
    if text == "none":
        return (1 << 15, 1 << 15)
    first, _, last = text.partition("-")
    if text.endswith("+"):
        return int(text[:-1]), 1 << 15
    return int(first), int(last or first)


# Fields that kafka-python changed from the published schema.
SHORTENED = "authorized_operations"
OTHER_DEFAULT = {"assignments"}


def _assert_same_schema(cls: type[Any], theirs: list[dict[str, Any]], version_max: int) -> None:
    known = {field["name"].lower(): field for field in theirs if _range(field["versions"])[0] <= version_max}
    ours = {
        name.replace("_", ""): (spec, default)
        for name, spec, default in fields_of(cls)
        if spec.tag is None or spec.tag < OWN_TAGS_FROM
    }
    whole = next((name for name in ours if name.endswith("authorizedoperations")), "")
    by_name = {whole if name == SHORTENED else name: field for name, field in known.items()}
    assert set(ours) == set(by_name)
    for name, (spec, default) in ours.items():
        _assert_same_field(name, spec, default, by_name[name], version_max)


def _assert_same_field(name: str, spec: FieldSpec, default: Any, field: dict[str, Any], version_max: int) -> None:
    for version in range(version_max + 1):
        first, last = _range(field["versions"])
        # The versions of a field do not matter inside a struct that the version lacks.
        assert not spec.exists(version) or first <= version <= last, (name, version)
        if spec.exists(version):
            first, last = _range(field.get("nullableVersions", "none"))
            assert spec.is_nullable(version) == (first <= version <= last), (name, version)
    assert spec.tag == field.get("tag"), name
    written = field.get("default")
    if spec.kind in ("array", "nested"):
        assert (default is None) == (written == "null") or name in OTHER_DEFAULT, name
    elif written == "null":
        assert default is None, name
    elif written is not None and spec.kind != "text":
        assert default == (written in ("true", True) if spec.kind == "boolean" else int(str(written), 0)), name
    elif spec.kind == "uuid":
        assert default == UUID_ZERO, name
    struct = spec.inner.inner if spec.kind == "array" else spec.inner
    if struct is not None and field.get("fields"):
        _assert_same_schema(struct, field["fields"], version_max)


@pytest.mark.parametrize("key", sorted(key for key in oracles.kafka_python_classes() if key[0] in APIS), ids=str)
def test_versions_nulls_tags_and_defaults_are_those_of_the_published_schema(key: tuple[int, Direction]) -> None:
    api_key, direction = key
    api = APIS[api_key]
    schema = oracles.kafka_python_classes()[key].json
    common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", [])}

    def resolved(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {**field, "fields": resolved(field.get("fields") or common.get(field["type"].removeprefix("[]"), []))}
            for field in fields
        ]

    _assert_same_schema(message_class(api_key, direction), resolved(schema["fields"]), api.version_max)
    assert _range(schema["flexibleVersions"])[0] == api.flexible_from
