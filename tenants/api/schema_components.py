"""Shared components of the schema: problem responses, response headers, strict bodies."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiSerializerExtension
from rest_framework import serializers

from tenants.api.problems import PROBLEM_TYPE
from tenants.api.schema_examples import add_examples
from tenants.api.strict import StrictSerializer

AGENT_SIGNATURE_SCHEME = "agentSignature"
AGENT_SIGNATURE_DEFINITION = {
    "type": "apiKey",
    "in": "header",
    "name": "Authorization",
    "description": "`Penstock-Agent serial=…,sequence=…,signature=…`, made by `manage.py agent` with the host's key.",
}
SECURITY_SCHEME = "apiToken"
SECURITY_DEFINITION = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token made in the console or by POST /tokens. The list of an operation has the scope it takes.",
}


class StrictBodies(OpenApiSerializerExtension):
    """Marks bodies and queries that refuse unknown fields."""

    target_class = StrictSerializer
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: str) -> Any:
        schema = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        schema["additionalProperties"] = False
        if type(self.target).__doc__ in (None, StrictSerializer.__doc__):
            schema.pop("description", None)
        return schema


class WholeAnswers(OpenApiSerializerExtension):
    """Marks all members of rows in responses as required."""

    target_class = serializers.ModelSerializer
    match_subclasses = True

    def map_serializer(self, auto_schema: Any, direction: str) -> Any:
        schema = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        schema["required"] = sorted(schema.get("properties", {}))
        return schema


def share_components(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Moves problem responses and response headers to `components` (a hook of drf-spectacular).

    Also names the security scheme and the server, and gives each body an example.
    """
    components = result.setdefault("components", {})
    components["securitySchemes"] = {
        SECURITY_SCHEME: dict(SECURITY_DEFINITION),
        AGENT_SIGNATURE_SCHEME: dict(AGENT_SIGNATURE_DEFINITION),
    }
    result["servers"] = [{"url": "/", "description": "The installation that this document comes from."}]
    add_examples(result)
    responses: dict[str, Any] = components.setdefault("responses", {})
    headers: dict[str, Any] = components.setdefault("headers", {})
    for operation in _operations(result):
        operation_responses = operation["responses"]
        for status, response in list(operation_responses.items()):
            if PROBLEM_TYPE in response.get("content", {}):
                responses.setdefault(f"Problem{status}", response)
                operation_responses[status] = {"$ref": f"#/components/responses/Problem{status}"}
            for name, header in response.get("headers", {}).items():
                headers.setdefault(name, header)
                response["headers"][name] = {"$ref": f"#/components/headers/{name}"}
    if "X-Request-Id" in headers:
        for response in responses.values():
            response["headers"] = {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}}
    return result


def _operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        operation
        for path in document.get("paths", {}).values()
        for operation in path.values()
        if isinstance(operation, dict) and "responses" in operation
    ]
