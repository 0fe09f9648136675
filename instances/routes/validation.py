"""Validation of requested routes, and their conversion to columns of `Route`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.utils.translation import gettext_noop

from instances import interfaces
from instances.choices import RouteSecurity
from instances.models import Instance, Route
from instances.routes.kinds import CIDRS_MAX, DEFAULT_ROUTE, PLAINTEXT, ROUTES_MAX
from instances.routes.principal_mapping import PrincipalMapping, RulesRefused
from instances.topics.allow_lists import normalized_addresses
from tenants.errors import Conflict, Invalid, Message

ROUTE_COLUMNS: Final = (
    "security", "allow_list", "advertised_host", "connections_max", "proxies", "principal_mapping_rules",
)  # fmt: skip
CONFIRM_PLAINTEXT: Final = "confirm_plaintext"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")


def default_routes() -> list[dict[str, Any]]:
    """Returns the only route of an instance that is created without routes: SASL, over TLS if brokers are exposed."""
    security = RouteSecurity.SASL_TLS if interfaces.exposure.implementation() else RouteSecurity.SASL_PLAINTEXT
    return [{"name": DEFAULT_ROUTE, "security": security.value}]


def create_routes(instance: Instance, routes: Sequence[Mapping[str, Any]]) -> list[Route]:
    """Creates the rows of a new instance. Raises `Invalid` with a pointer below `/routes`, and `Conflict` for a name
    used twice.
    """
    if not 1 <= len(routes) <= ROUTES_MAX:
        raise Invalid.at(
            "/routes", Message(gettext_noop("An instance has 1 to %(n)s routes."), n=ROUTES_MAX), code="count"
        )
    result: list[Route] = []
    for index, requested in enumerate(routes):
        if any(route.name == requested["name"] for route in result):
            raise name_taken_error(f"/routes/{index}/name")
        result.append(Route.objects.create(instance=instance, **validated_columns(requested, f"/routes/{index}")))
    return result


def validated_columns(requested: Mapping[str, Any], pointer: str) -> dict[str, Any]:
    """Returns the columns of a requested route. Raises `Invalid` with pointers below `pointer`, and `Conflict`
    (`confirm_plaintext`) for a plaintext route that other machines could reach.
    """
    result = {name: value for name, value in requested.items() if name != CONFIRM_PLAINTEXT}
    for name in ("allow_list", "proxies"):
        if name in result:
            assert len(result[name]) <= CIDRS_MAX, "the serializer checks the number"
            result[name] = normalized_addresses(result[name], f"{pointer}/{name}")
    if result.get("advertised_host"):
        result["advertised_host"] = _host(result["advertised_host"], f"{pointer}/advertised_host")
    if "principal_mapping_rules" in result:
        _require_valid_rules(result["principal_mapping_rules"], f"{pointer}/principal_mapping_rules")
    if result.get("security") == PLAINTEXT and not requested.get(CONFIRM_PLAINTEXT):
        _require_not_exposed(pointer)
    return result


def _require_valid_rules(rules: str, pointer: str) -> None:
    try:
        PrincipalMapping(rules)
    except RulesRefused as error:
        detail = Message(gettext_noop("These rules cannot be used: %(why)s."), why=str(error))
        raise Invalid.at(pointer, detail, code="mapping_rules") from None


def _require_not_exposed(pointer: str) -> None:
    """Raises `Conflict` if other machines could reach a route without security."""
    if not interfaces.exposure.implementation():
        return
    detail = (
        "Clients of a plaintext route do not sign in: all that reach it have the rights of ANONYMOUS, in an open "
        "instance to everything, and what is sent can be read on the way. "
        'Choose another security, or say "confirm_plaintext": true.'
    )
    errors = Invalid.at(f"{pointer}/{CONFIRM_PLAINTEXT}", detail, code="confirm_plaintext").errors
    raise Conflict(detail, code="confirm_plaintext", errors=errors)


def _host(host: str, pointer: str) -> str:
    """Returns the normalized host name or address that clients connect to. Raises `Invalid`."""
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        if _HOST.fullmatch(host):
            return host
    raise Invalid.at(pointer, "This is no host name and no address. A port is not part of it.", code="invalid_host")


def name_taken_error(pointer: str) -> Conflict:
    detail = "Another route of this instance has this name."
    return Conflict(detail, code="name_taken", errors=Invalid.at(pointer, detail, code="name_taken").errors)


def audited_route_fields(route: Route) -> dict[str, Any]:
    """Returns the fields of a route that the audit log records."""
    return {"name": route.name} | {name: getattr(route, name) for name in ROUTE_COLUMNS}
