"""Declaration of an endpoint, which the base view enforces and the schema publishes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers

from tenants.api.strict import StrictSerializer
from tenants.limits import PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX, PAGE_TOKEN_CHARS_MAX

SerializerClass = type[serializers.Serializer]

SAFE_METHODS = frozenset({"get", "head", "options"})
ANYBODY = "anybody"  # in place of a scope: no authentication required
SIGNED_IN = "signed-in"  # in place of a scope: any token or session suffices


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Declaration of one method of a resource; `endpoint` describes the fields."""

    name: str
    scope: str
    summary: str
    description: str
    body: SerializerClass | None
    query: SerializerClass | None
    returns: SerializerClass | None
    page_item: SerializerClass | None
    status: int
    secret_fields: tuple[str, ...]
    requires_if_match: bool
    dry_run: bool
    other_responses: tuple[tuple[int, SerializerClass], ...]
    text_media_type: str
    errors: tuple[int, ...]
    examples: tuple[OpenApiExample, ...]


def endpoint(
    name: str,
    scope: str,
    *,
    body: SerializerClass | None = None,
    query: SerializerClass | None = None,
    returns: SerializerClass | None = None,
    page_item: SerializerClass | None = None,
    status: int = 200,
    secret_fields: tuple[str, ...] = (),
    requires_if_match: bool = False,
    dry_run: bool = True,
    other_responses: tuple[tuple[int, SerializerClass], ...] = (),
    text_media_type: str = "",
    errors: tuple[int, ...] = (),
    examples: tuple[OpenApiExample, ...] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares a method of an `ApiView`.

    `name` is the operationId (snake_case, unique in the API). `scope` is a `Scope`, `SIGNED_IN` or `ANYBODY`. `body`
    and `query` are `StrictSerializer`s; the handler reads validated values from `self.body` and `self.query`. `returns`
    describes the response; `page_item` its items if it is a list (page_size and page_token are then accepted). `status`
    is that of success. `secret_fields` names response fields that are never repeated. `requires_if_match` means that
    If-Match is enforced (the handler calls `self.require_match`). `dry_run` is False for a method without dry run.
    `other_responses` are further successful responses as (status, serializer). `text_media_type` is the media type of a
    response that is not JSON. `errors` are further statuses of this endpoint, in addition to those that follow from the
    other arguments. `examples` are shown in the schema. The handler docstring's first line becomes the summary, the
    rest the description.
    """

    def declare(handler: Callable[..., Any]) -> Callable[..., Any]:
        summary, _, description = (handler.__doc__ or name).strip().partition("\n")
        declared = Endpoint(
            name=name,
            scope=str(scope),
            summary=summary.rstrip("."),
            description=_unindented(description),
            body=body,
            query=query,
            returns=returns,
            page_item=page_item,
            status=status,
            secret_fields=secret_fields,
            requires_if_match=requires_if_match,
            dry_run=dry_run and handler.__name__ not in SAFE_METHODS,
            other_responses=other_responses,
            text_media_type=text_media_type,
            errors=errors,
            examples=examples,
        )

        @functools.wraps(handler)
        def run(self: Any, request: Any, **path: Any) -> Any:
            return self.run_endpoint(declared, functools.partial(handler, self, request, **path))

        run.endpoint = declared  # type: ignore[attr-defined]
        return run

    return declare


class PageQuery(StrictSerializer):
    """Query parameters of every list."""

    page_size = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=PAGE_SIZE_MAX,
        default=PAGE_SIZE_DEFAULT,
        help_text="Maximum number of items in the response.",
    )
    page_token = serializers.CharField(
        required=False,
        max_length=PAGE_TOKEN_CHARS_MAX,
        help_text="`next_page_token` of the page before. It belongs to one list with one set of filters.",
    )


class DryRunQuery(StrictSerializer):
    """Query parameter of every mutation that supports a dry run."""

    dry_run = serializers.ChoiceField(
        choices=("true", "false"), required=False, help_text="`true`: validate and answer as usual, but change nothing."
    )


@functools.cache
def query_serializer(declared: Endpoint) -> SerializerClass:
    """Returns a serializer of all query parameters of the endpoint; others are refused."""
    bases: list[SerializerClass] = [declared.query] if declared.query else []
    bases += [PageQuery] if declared.page_item else []
    bases += [DryRunQuery] if declared.dry_run else []
    return type(f"{declared.name}_query", tuple(bases) or (StrictSerializer,), {})


@functools.cache
def page_serializer(item: SerializerClass) -> SerializerClass:
    """Returns the serializer of a page of `item`."""
    name = item.__name__.removesuffix("Out")
    members = {
        "__doc__": f"One page of {name}.",
        "items": item(many=True),
        "next_page_token": serializers.CharField(allow_null=True, help_text="Token of the next page; null at the end."),
    }
    return type(f"{name}Page", (serializers.Serializer,), members)


def _unindented(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())
