"""The OpenAPI document: its server and scheme, and a valid example of every JSON body."""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema_rs
import pytest
from drf_spectacular.generators import SchemaGenerator

from tenants.api.schema_examples import example_of

JSON = "application/json"


@cache
def schema() -> dict[str, Any]:
    return dict(SchemaGenerator().get_schema(request=None, public=True))


def bodies() -> dict[str, dict[str, Any]]:
    """Returns JSON bodies by method and path."""
    return {
        f"{method.upper()} {path}": operation["requestBody"]["content"][JSON]
        for path, operations in schema()["paths"].items()
        for method, operation in operations.items()
        if isinstance(operation, dict) and JSON in operation.get("requestBody", {}).get("content", {})
    }


def test_the_document_names_its_server_and_its_security_schemes() -> None:
    assert schema()["servers"][0]["url"] == "/"
    schemes = schema()["components"]["securitySchemes"]
    assert (schemes["apiToken"]["type"], schemes["apiToken"]["scheme"]) == ("http", "bearer")
    assert schemes["agentSignature"]["description"]


def test_only_the_calls_of_agents_are_signed_and_all_others_take_a_token() -> None:
    used: dict[str, set[str]] = {}
    for path, operations in schema()["paths"].items():
        for operation in operations.values():
            for requirement in operation.get("security", ()) if isinstance(operation, dict) else ():
                for scheme in requirement:
                    used.setdefault(scheme, set()).add(path)
    assert set(used) == {"apiToken", "agentSignature"}
    assert used["agentSignature"] == {f"/api/v1/agent/{name}" for name in ("certificates", "report", "wanted")}
    assert not used["apiToken"] & used["agentSignature"]


def test_every_body_has_an_example_that_its_schema_takes() -> None:
    assert len(bodies()) > 35
    for place, body in bodies().items():
        examples = [each["value"] for each in body.get("examples", {}).values()] or [body["example"]]
        validator = jsonschema_rs.validator_for({**body["schema"], "components": schema()["components"]})
        for example in examples:
            assert example, place
            assert not [error.message for error in validator.iter_errors(example)], (place, example)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "object", "properties": {"a": {"type": "integer", "minimum": 5}, "b": {"type": "string"}}}, {"a": 5}),
        ({"type": ["string", "null"], "format": "date-time"}, "2027-01-31T12:00:00Z"),
        ({"enum": [None, "x"]}, "x"),
        ({"type": "array", "items": {"type": "boolean"}}, [True]),
        ({"$ref": "#/components/schemas/Loop"}, {"again": {"again": {"again": {"again": {"again": {"again": {}}}}}}}),
    ],
)
def test_an_example_is_made_from_a_schema(given: dict[str, Any], expected: Any) -> None:
    loop = {"type": "object", "properties": {"again": {"$ref": "#/components/schemas/Loop"}}}
    assert example_of(given, {"Loop": loop}) == expected
