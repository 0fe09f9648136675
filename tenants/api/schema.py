"""OpenAPI schema, generated from the declarations of endpoints: parameters, headers and problems are
written only once.
"""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse
from rest_framework import serializers

from tenants.api.endpoint import ANYBODY, SIGNED_IN, Endpoint, page_serializer, query_serializer
from tenants.api.problems import PROBLEM_TYPE, STATUS_TITLES
from tenants.api.schema_components import SECURITY_DEFINITION, SECURITY_SCHEME
from tenants.limits import IDEMPOTENCY_KEY_CHARS_MAX


class ProblemPlace(serializers.Serializer):
    """Wrong place in the request."""

    pointer = serializers.CharField(required=False, help_text="JSON pointer into the body.")
    parameter = serializers.CharField(required=False, help_text="Name of a query parameter.")
    header = serializers.CharField(required=False, help_text="Name of a request header.")
    code = serializers.CharField()
    detail = serializers.CharField()


class Problem(serializers.Serializer):
    """Problem details (RFC 9457). Programs compare `code`; `title` and `detail` are for people."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField()
    detail = serializers.CharField(required=False)
    errors = ProblemPlace(many=True, required=False)
    request_id = serializers.CharField()


EXTRA_STATUS_TITLES: dict[int, tuple[str, str]] = {
    402: ("payment_required", "The tenant has an unpaid invoice"),
    409: ("conflict", "The current state does not allow this"),
    412: ("precondition_failed", "The resource has changed"),
    422: ("idempotency_key_reused", "The request cannot be carried out"),
}


class TokenScheme(OpenApiAuthenticationExtension):
    """Security scheme `Authorization: Bearer`. The console's session is internal and not published."""

    target_class = "tenants.api.authentication.TokenAuthentication"
    name = SECURITY_SCHEME

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return dict(SECURITY_DEFINITION)


class ApiSchema(AutoSchema):
    """Schema of a view method from its `Endpoint`."""

    @property
    def declared(self) -> Endpoint | None:
        handler = getattr(self.view, self.method.lower(), None)
        return getattr(handler, "endpoint", None)

    def is_excluded(self) -> bool:
        return self.declared is None

    def get_operation_id(self) -> str:
        return self.declared.name if self.declared else super().get_operation_id()

    def get_tags(self) -> list[str]:
        return [self.view.tag]

    def get_summary(self) -> str | None:
        return self.declared.summary if self.declared else None

    def get_description(self) -> str:
        declared = self.declared
        if declared is None:
            return ""
        needs = "" if declared.scope in (ANYBODY, SIGNED_IN) else f"Needs the scope `{declared.scope}`."
        return "\n\n".join(part for part in (declared.description, needs) if part)

    def get_operation(self, *args: Any, **kwargs: Any) -> dict[str, Any] | None:
        operation: dict[str, Any] | None = super().get_operation(*args, **kwargs)
        if operation is not None:
            operation.setdefault("security", [])  # says that nothing is needed; the library leaves it out
        return operation

    def get_auth(self) -> list[dict[str, Any]]:
        declared = self.declared
        if declared is None or declared.scope == ANYBODY:
            scheme: str = self.view.signature_scheme
            return [{scheme: []}] if scheme else []
        return [{SECURITY_SCHEME: [] if declared.scope == SIGNED_IN else [declared.scope]}]

    def _is_list_view(self, serializer: Any = None) -> bool:
        return False  # pages are envelopes, declared explicitly

    def map_renderers(self, attribute: str) -> list[Any]:
        # The Accept header chooses (see Negotiation); otherwise a second renderer would add a parameter `format`.
        return [] if attribute == "format" else super().map_renderers(attribute)

    def get_filter_backends(self) -> list[Any]:
        return []

    def get_request_serializer(self) -> Any:
        return self.declared.body if self.declared else None

    def get_examples(self) -> list[OpenApiExample]:
        return list(self.declared.examples) if self.declared else []

    def get_response_serializers(self) -> Any:
        declared = self.declared
        assert declared is not None
        serializer = page_serializer(declared.page_item) if declared.page_item else declared.returns
        responses: dict[Any, Any] = {
            declared.status: serializer() if serializer else OpenApiResponse(description="Done; there is no body.")
        }
        if declared.text_media_type:
            responses = {(declared.status, declared.text_media_type): OpenApiTypes.STR}
        responses |= {status: serializer() for status, serializer in declared.other_responses}
        for status in self._problem_statuses(declared):
            responses[(status, PROBLEM_TYPE)] = _problem_response(status)
        return responses

    def _problem_statuses(self, declared: Endpoint) -> list[int]:
        statuses = {400, 406, 429, 500, *declared.errors}
        if declared.scope != ANYBODY:
            statuses |= {401, 403}
        if "{" in self.path:
            statuses.add(404)
        if self.method != "GET":
            statuses |= {402, 413}
        if declared.body:
            statuses.add(415)
        if self.method == "POST":
            statuses |= {409, 422}
        if declared.requires_if_match:
            statuses.add(412)
        return sorted(statuses)

    def get_override_parameters(self) -> list[Any]:
        declared = self.declared
        if declared is None:
            return []
        query_class = query_serializer(declared)
        parameters: list[Any] = [query_class] if query_class().fields else []
        if self.method == "POST":
            parameters.append(_IDEMPOTENCY_KEY)
        if declared.requires_if_match:
            parameters.append(_IF_MATCH)
        success = [declared.status]
        parameters += [_response_header(name, kind, text, success) for name, kind, text in _HEADERS]
        if declared.status in (201, 202):
            parameters.append(_response_header("Location", str, "Where the resource or its operation is.", success))
        if self.method == "POST":
            parameters.append(_response_header("Idempotency-Replayed", str, "`true` on a repeated answer.", success))
        return parameters


_IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_CHARS_MAX, "pattern": "^[!-~]+$"},
    OpenApiParameter.HEADER,
    description="Sent again with the same body within 24 hours, the request is not carried out twice.",
)
_IF_MATCH = OpenApiParameter(
    "If-Match",
    {"type": "string", "maxLength": 200},
    OpenApiParameter.HEADER,
    description="The ETag of the version to change; 412 when it is not the current one.",
)
_HEADERS: tuple[tuple[str, Any, str], ...] = (
    ("X-Request-Id", str, "Names this request in our logs and in the audit log."),
    ("RateLimit-Limit", int, "Requests allowed in a minute."),
    ("RateLimit-Remaining", int, "Requests left."),
    ("RateLimit-Reset", int, "Seconds until the count starts again."),
)


def _response_header(name: str, kind: Any, text: str, statuses: list[int]) -> OpenApiParameter:
    type_ = OpenApiTypes.INT if kind is int else OpenApiTypes.STR
    return OpenApiParameter(name, type_, OpenApiParameter.HEADER, description=text, response=statuses)


def _problem_response(status: int) -> OpenApiResponse:
    code, title = (STATUS_TITLES | EXTRA_STATUS_TITLES)[status]
    example = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "code": code,
        "request_id": "req-0123456789abcdef",
    }
    return OpenApiResponse(
        Problem,
        description=title + ".",
        examples=[OpenApiExample(re.sub(r"\W", "_", code), value=example, status_codes=[str(status)])],
    )
