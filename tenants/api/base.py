"""Base class `ApiView` of every REST resource. An endpoint is a few lines.

    class TopicCollection(ApiView):
        tag = "Topics"

        @endpoint("list_topics", Scope.TOPICS_READ, page_item=TopicOut)
        def get(self, request, instance_id):
            \"\"\"List topics.\"\"\"
            instance = access.instance(self.actor, instance_id)
            return self.page(selectors.topics(instance), TopicOut, order=("name",))

        @endpoint("create_topic", Scope.TOPICS_WRITE, body=TopicIn, returns=TopicOut, status=201)
        def post(self, request, instance_id):
            \"\"\"Create a topic.\"\"\"
            instance = access.instance(self.actor, instance_id, lock=True)
            topic = services.create_topic(acting=self.actor, instance=instance, **self.body, dry_run=self.dry_run)
            return self.one(topic, TopicOut, status=201, location=f"{self.request.path}/{topic.name}")

A mutation runs in one transaction, which a dry run rolls back: services only need to consider `dry_run` if they have
external effects before `on_commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpResponseBase
from rest_framework import exceptions as drf
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from tenants import access, audit
from tenants.actors import Actor
from tenants.api import idempotency, pages
from tenants.api.authentication import ConsoleAuthentication, TokenAuthentication
from tenants.api.charging import ChargedView
from tenants.api.endpoint import ANYBODY, SIGNED_IN, Endpoint, SerializerClass, endpoint, query_serializer
from tenants.api.etags import etag_of, require_match, require_no_version
from tenants.api.parsing import StrictJSONParser
from tenants.api.problems import PROBLEM_TYPE, exception_handler, validation_error
from tenants.api.schema import ApiSchema
from tenants.errors import FieldError, Invalid, OutcomeUnknown, PermissionDenied, Unauthenticated
from tenants.models import Tenant

__all__ = ["ANYBODY", "API_ROOT", "SIGNED_IN", "ApiView", "endpoint"]

API_ROOT = "/api/v1"
DRY_RUN_HEADER = "Dry-Run"
# Meaningless after a dry run: nothing exists at that address, and no resource has that version.
HEADERS_REMOVED_BY_DRY_RUN = ("Location", "ETag")


class Negotiation(DefaultContentNegotiation):
    """Content negotiation that answers JSON, also to callers that accept only problem+json."""

    settings = SimpleNamespace(URL_FORMAT_OVERRIDE=None)  # the Accept header chooses; there is no ?format=

    def get_accept_list(self, request: Request) -> list[str]:
        accepted = super().get_accept_list(request)
        return ["application/json" if kind.startswith(PROBLEM_TYPE) else kind for kind in accepted]


class ApiView(ChargedView):
    """Base of every REST resource. Methods are declared with `@endpoint`; they use `actor`, `tenant`, `body`, `query`,
    `dry_run`.
    """

    tag = "General"
    # Scheme of requests that are signed instead of carrying a token, "" for none.
    signature_scheme = ""
    authentication_classes = (TokenAuthentication, ConsoleAuthentication)
    permission_classes = ()
    throttle_classes = ()
    parser_classes = (StrictJSONParser,)
    renderer_classes = (JSONRenderer,)
    content_negotiation_class = Negotiation
    schema = ApiSchema()

    body: Mapping[str, Any]
    query: Mapping[str, Any]
    dry_run: bool

    def get_exception_handler(self) -> Callable[..., Any]:
        return exception_handler

    # --- actor ----------------------------------------------------------------------------------------------------

    @property
    def actor(self) -> Actor:
        """Acting user or token; raises `Unauthenticated` for a caller without credentials."""
        if not isinstance(self.request.auth, Actor):
            raise Unauthenticated("Send the header Authorization: Bearer <token>.")
        return self.request.auth

    @property
    def tenant(self) -> Tenant:
        """Tenant of the actor."""
        return access.tenant_of(self.actor)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticates, then charges the rate limit; a failed authentication is charged to the client's network."""
        self.format_kwarg = None
        if request.method.lower() in self.http_method_names and hasattr(self, request.method.lower()):
            request.accepted_renderer, request.accepted_media_type = self.perform_content_negotiation(request)
        else:
            raise drf.MethodNotAllowed(request.method)
        try:
            actor = request.auth if request.user is not None else None
        except (Unauthenticated, PermissionDenied):
            self._charge(request, None)
            raise
        self._charge(request, actor)

    def options(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        """Refuses OPTIONS; the schema documents the methods of a resource."""
        raise drf.MethodNotAllowed(request.method)

    @property
    def allowed_methods(self) -> list[str]:
        return [name.upper() for name in self.http_method_names if name != "options" and hasattr(self, name)]

    def finalize_response(
        self, request: Request, response: HttpResponseBase, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        final = super().finalize_response(request, response, *args, **kwargs)
        final.headers.setdefault("Cache-Control", "no-store")
        return final

    # --- running --------------------------------------------------------------------------------------------------

    def run_endpoint(self, declared: Endpoint, handle: Callable[[], Response]) -> Response:
        """Checks scope, query and body as declared, then runs the handler; mutations in a transaction."""
        if declared.scope == SIGNED_IN:
            _ = self.actor
        elif declared.scope != ANYBODY:
            access.require(self.actor, declared.scope)
        if not declared.requires_if_match and self.request.method not in ("GET", "HEAD"):
            require_no_version(self.request.headers.get("If-Match"))
        self.query = self._validated_query(declared)
        self.dry_run = self.query.get("dry_run") == "true"
        self.declared = declared
        if self.request.method in ("GET", "HEAD"):
            return handle()
        key = idempotency.key_of(self.request) if self.request.method == "POST" else None
        if key:
            # Django keeps the raw body, which `idempotency` hashes, only if it is read before DRF consumes the stream.
            _ = self.request._request.body
        self.body = self._validated_body(declared)
        try:
            with transaction.atomic():
                if key and not self.dry_run:
                    response = idempotency.run_once(self.request, self.actor, key, handle, declared.secret_fields)
                else:
                    response = handle()
                if self.dry_run:
                    transaction.set_rollback(True)
                    response[DRY_RUN_HEADER] = "true"
                    for name in HEADERS_REMOVED_BY_DRY_RUN:
                        response.headers.pop(name, None)
        except OutcomeUnknown as error:
            audit.record_unknown_outcome(error)
            raise
        return response

    def _validated_query(self, declared: Endpoint) -> Mapping[str, Any]:
        repeated = [name for name, values in self.request.query_params.lists() if len(values) > 1]
        if repeated:
            detail = "Give a parameter once."
            raise Invalid(
                detail, errors=[FieldError(parameter=name, detail=detail, code="repeated") for name in repeated]
            )
        serializer = query_serializer(declared)(data=dict(self.request.query_params.items()))
        if not serializer.is_valid():
            raise validation_error(serializer.errors, in_query=True)
        return serializer.validated_data

    def _validated_body(self, declared: Endpoint) -> Mapping[str, Any]:
        if declared.body is None:
            return {}
        serializer = declared.body(data=self.request.data, context={"actor": self.request.auth, "view": self})
        if not serializer.is_valid():
            raise validation_error(serializer.errors)
        return serializer.validated_data

    # --- responses ------------------------------------------------------------------------------------------------

    def one(
        self, thing: Any, out: SerializerClass, *, status: int = 200, location: str | None = None, etag: Any = None
    ) -> Response:
        """Returns one resource. `etag` is the value of its ETag; a `Versioned` row provides its own."""
        response = Response(out(thing, context={"view": self, "actor": self.actor}).data, status=status)
        if etag is not None or hasattr(thing, "version"):
            response["ETag"] = etag_of(thing if etag is None else etag)
        if location:
            response["Location"] = location
        return response

    def accepted(self, operation: Any, out: SerializerClass) -> Response:
        """Returns 202 with the address of an operation."""
        return self.one(operation, out, status=202, location=f"{API_ROOT}/operations/{operation.pk}")

    def nothing(self) -> Response:
        """Returns 204."""
        return Response(status=204)

    def page(self, rows: QuerySet[Any], out: SerializerClass, *, order: Sequence[str]) -> Response:
        """Returns a page of a queryset, in an order whose last field is unique."""
        result, token = pages.page_of_rows(rows, order=order, **self._page_parameters())
        return self._page(result, token, out)

    def page_items(self, items: Iterable[Any], out: SerializerClass, *, key: Callable[[Any], str]) -> Response:
        """Returns a page of items that are not rows, ordered by a unique string key."""
        result, token = pages.page_of_items(items, key=key, **self._page_parameters())
        return self._page(result, token, out)

    def _page_parameters(self) -> dict[str, Any]:
        paging = ("page_token", "page_size")
        filters = sorted((name, value) for name, value in self.request.query_params.items() if name not in paging)
        return {
            "page_size": self.query["page_size"],
            "page_token": self.query.get("page_token"),
            "binding": f"{self.request.path} {filters}",
        }

    def _page(self, rows: Sequence[Any], token: str | None, out: SerializerClass) -> Response:
        items = out(rows, many=True, context={"view": self, "actor": self.actor}).data
        return Response({"items": items, "next_page_token": token})

    def require_match(self, thing: Any) -> None:
        """Enforces If-Match: `thing` is the locked row, or the value of the ETag."""
        require_match(self.request.headers.get("If-Match"), etag_of(thing))
