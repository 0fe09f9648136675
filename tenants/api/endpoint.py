"""What an endpoint declares about itself, once: the base view enforces it and the schema publishes it."""

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
ANYBODY = "anybody"  # in place of a scope: no token needed
SIGNED_IN = "signed-in"  # in place of a scope: any token or session will do


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The declaration of one method of one resource; `endpoint` explains the members."""

    name: str
    scope: str
    summary: str
    description: str
    body: SerializerClass | None
    query: SerializerClass | None
    returns: SerializerClass | None
    page: SerializerClass | None
    status: int
    once: tuple[str, ...]
    match: bool
    dry_run: bool
    also: tuple[tuple[int, SerializerClass], ...]
    text: str
    errors: tuple[int, ...]
    examples: tuple[OpenApiExample, ...]


def endpoint(
    name: str,
    scope: str,
    *,
    body: SerializerClass | None = None,
    query: SerializerClass | None = None,
    returns: SerializerClass | None = None,
    page: SerializerClass | None = None,
    status: int = 200,
    once: tuple[str, ...] = (),
    match: bool = False,
    dry_run: bool = True,
    also: tuple[tuple[int, SerializerClass], ...] = (),
    text: str = "",
    errors: tuple[int, ...] = (),
    examples: tuple[OpenApiExample, ...] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a method of an `ApiView`.

    `name` is the operationId (snake_case, unique in the API). `scope` is a `Scope`, `SIGNED_IN` or `ANYBODY`.
    `body` and `query` are `StrictSerializer`s; the handler finds the checked values in `self.body` and `self.query`.
    `returns` describes the answer; `page` its items when it is a list (page_size and page_token are then taken).
    `once` names fields of the answer that are never repeated (secrets). `match` says that If-Match is honoured (the
    handler calls `self.require_match`). `also` are further good answers as (status, serializer). `dry_run` False says
    the method has no dry run. `text` is the media type of an answer that is no JSON. `errors` are further statuses this
    endpoint may answer with, beyond those that follow from the above. The docstring's first line becomes the summary,
    the rest the description.
    """

    def declare(handler: Callable[..., Any]) -> Callable[..., Any]:
        summary, _, description = (handler.__doc__ or name).strip().partition("\n")
        declared = Endpoint(
            name=name, scope=str(scope), summary=summary.rstrip("."), description=_unindented(description), body=body,
            query=query, returns=returns, page=page, status=status, once=once, match=match,
            dry_run=dry_run and handler.__name__ not in SAFE_METHODS, also=also, text=text, errors=errors,
            examples=examples,
        )  # fmt: skip

        @functools.wraps(handler)
        def run(self: Any, request: Any, **path: Any) -> Any:
            return self.run_endpoint(declared, functools.partial(handler, self, request, **path))

        run.endpoint = declared  # type: ignore[attr-defined]
        return run

    return declare


class PageQuery(StrictSerializer):
    """The two query parameters of every list."""

    page_size = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=PAGE_SIZE_MAX,
        default=PAGE_SIZE_DEFAULT,
        help_text="Most items in the answer.",
    )
    page_token = serializers.CharField(
        required=False,
        max_length=PAGE_TOKEN_CHARS_MAX,
        help_text="`next_page_token` of the page before. It belongs to one list with one set of filters.",
    )


class DryRunQuery(StrictSerializer):
    """The query parameter of every mutation."""

    dry_run = serializers.ChoiceField(
        choices=("true", "false"), required=False, help_text="`true`: check everything, answer as if, change nothing."
    )


@functools.cache
def query_serializer(declared: Endpoint) -> SerializerClass:
    """All query parameters the endpoint takes, as one serializer; others are refused."""
    bases: list[SerializerClass] = [declared.query] if declared.query else []
    bases += [PageQuery] if declared.page else []
    bases += [DryRunQuery] if declared.dry_run else []
    return type(f"{declared.name}_query", tuple(bases) or (StrictSerializer,), {})


@functools.cache
def page_serializer(item: SerializerClass) -> SerializerClass:
    """The envelope of a list of `item`."""
    name = item.__name__.removesuffix("Out")
    members = {
        "__doc__": f"One page of {name}.",
        "items": item(many=True),
        "next_page_token": serializers.CharField(
            allow_null=True, help_text="Ask for the next page with it; null at the end."
        ),
    }
    return type(f"{name}Page", (serializers.Serializer,), members)


def _unindented(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())
