"""Examples for JSON bodies without one, generated from their schema. Pure.

An example has the required members of its body, or the first member if none is required.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

JSON: Final = "application/json"
# Values by member name, used if they match the schema.
EXAMPLE_VALUES: Final[Mapping[str, Any]] = {
    "name": "orders-prod",
    "email": "ida@example.com",
    "topic": "orders",
    "instance_id": "ins-k3v9x0qa",
    "group_id": "billing",
    "user": "billing",
    "url": "https://example.com/hooks/penstock",
    "threshold": 80,
    "amount": "100.00",
    "bandwidth_mb_s": 10,
    "storage_gb": 100,
    "partitions": 3,
    "scopes": ["topics:read"],
    "role": "developer",
    "security": "sasl_tls",
    "time": "2027-01-31T12:00:00Z",
    "before": {"0": 1_000, "1": -1},
    "limits": {"producer_byte_rate": 1_000_000},
    "entity": {"user": "etl"},
    "legal_name": "Halvorsen Freight AS",
    "currency": "EUR",
    "code": "WELCOME",
    "key": "o-1",
    "issuer": "https://login.example.com/realms/acme",
    "domains": ["example.com"],
}
PEM: Final = "-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n"
INSTANT: Final = "2027-01-31T12:00:00Z"
DEPTH_MAX: Final = 6


def add_examples(schema: dict[str, Any]) -> None:
    """Adds an example to each JSON body without one."""
    parts = schema.get("components", {}).get("schemas", {})
    for path in schema.get("paths", {}).values():
        for operation in path.values():
            content = operation.get("requestBody", {}).get("content", {}) if isinstance(operation, dict) else {}
            body = content.get(JSON)
            if body is not None and not body.get("examples") and "example" not in body:
                body["example"] = example_of(body["schema"], parts)


def example_of(schema: Mapping[str, Any], parts: Mapping[str, Any], name: str = "", depth: int = 0) -> Any:
    """Returns a value that a schema accepts."""
    schema = _resolved(schema, parts)
    example = EXAMPLE_VALUES.get(name)
    if example is not None and _fits(example, schema):
        return example
    if "default" in schema and schema["default"] is not None:
        return schema["default"]
    if schema.get("enum"):
        return next(value for value in schema["enum"] if value is not None)
    for choices in ("oneOf", "anyOf"):
        if schema.get(choices):
            return example_of(schema[choices][0], parts, name, depth + 1)
    return _example_of_type(schema, parts, name, depth)


def _example_of_type(schema: Mapping[str, Any], parts: Mapping[str, Any], name: str, depth: int) -> Any:
    kind = schema.get("type", "object")
    kind = next(choice for choice in kind if choice != "null") if isinstance(kind, list) else kind
    match kind:
        case "object":
            return _object(schema, parts, depth)
        case "array":
            return [example_of(schema.get("items", {"type": "string"}), parts, name, depth + 1)]
        case "integer":
            return max(1, int(schema.get("minimum", 1)))
        case "number":
            return max(1.0, float(schema.get("minimum", 1)))
        case "boolean":
            return True
    return _text(schema, name)


def _object(schema: Mapping[str, Any], parts: Mapping[str, Any], depth: int) -> dict[str, Any]:
    members = {name: member for name, member in schema.get("properties", {}).items() if not member.get("readOnly")}
    names = list(schema.get("required", ())) or list(members)[:1]
    if depth >= DEPTH_MAX:
        names = list(schema.get("required", ()))
    return {name: example_of(members[name], parts, name, depth + 1) for name in names if name in members}


def _text(schema: Mapping[str, Any], name: str) -> str:
    if schema.get("format") == "date-time":
        return INSTANT
    if schema.get("format") == "date":
        return INSTANT[:10]
    if schema.get("format") == "decimal" or "pattern" in schema:
        return "1.00"
    if name.endswith("pem"):
        return PEM.replace("CERTIFICATE", "PRIVATE KEY") if "key" in name else PEM
    return "text"[: schema.get("maxLength", 4)]


def _resolved(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in schema or len(schema.get("allOf", ())) == 1:
        if "$ref" in schema:
            schema = parts[schema["$ref"].rpartition("/")[2]]
        else:
            schema = {**schema["allOf"][0], **{key: value for key, value in schema.items() if key != "allOf"}}
    return schema


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """True if a known value has the type of the member and is among its choices."""
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    names = {str: "string", int: "integer", list: "array", dict: "object"}
    return names[type(value)] in kinds and ("enum" not in schema or value in schema["enum"])
