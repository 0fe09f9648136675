"""Parsing of JSON bodies: UTF-8, no duplicate keys, no NaN, limited depth, and no text that PostgreSQL cannot store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any

from rest_framework.parsers import BaseParser

from tenants.errors import DomainError
from tenants.limits import JSON_DEPTH_MAX


class StrictJSONParser(BaseParser):
    """Parser of `application/json` that refuses ambiguous documents with a reason."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        try:
            text = stream.read().decode("utf-8")
            if not text.strip():
                return {}
            value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_without_duplicates)
        except RecursionError:
            raise _malformed(f"The body is nested deeper than {JSON_DEPTH_MAX}.") from None
        except UnicodeDecodeError:
            raise _malformed("The body is not UTF-8.") from None
        except json.JSONDecodeError as error:
            raise _malformed(f"{error.msg} at line {error.lineno}, column {error.colno}.") from None
        except ValueError as error:
            raise _malformed(str(error)) from None
        _check(value, 1)
        return value


def _check(value: Any, depth: int) -> None:
    if isinstance(value, str):
        if "\x00" in value or any("\ud800" <= character <= "\udfff" for character in value):
            raise _malformed("A string holds U+0000 or half of a surrogate pair.")
    elif isinstance(value, dict | list):
        if depth > JSON_DEPTH_MAX:
            raise _malformed(f"The body is nested deeper than {JSON_DEPTH_MAX}.")
        children = [*value, *value.values()] if isinstance(value, dict) else value
        for child in children:
            _check(child, depth + 1)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("A key appears twice in one object.")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON.")


def _malformed(detail: str) -> DomainError:
    return DomainError(detail, code="malformed_json", title="The body is not the JSON we can read")
