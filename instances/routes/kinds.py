"""Kinds of security of routes, and limits of routes; brokers use the same constants. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Per instance: each route takes a port on every broker that serves the instance.
ROUTES_MAX: Final = 5
# Entries of one list of a route.
CIDRS_MAX: Final = 512
ROUTE_NAME_CHARS_MAX: Final = 40
# Upper bound of a route's own limit of connections on each broker.
ROUTE_CONNECTIONS_MAX: Final = 1_000_000
# Name of the only route of an instance that is created without routes.
DEFAULT_ROUTE: Final = "default"

PLAINTEXT: Final = "plaintext"
SASL_PLAINTEXT: Final = "sasl_plaintext"
TLS: Final = "tls"
SASL_TLS: Final = "sasl_tls"
MTLS: Final = "mtls"
# A client's `security.protocol` by kind of security.
PROTOCOLS: Final[Mapping[str, str]] = {
    PLAINTEXT: "PLAINTEXT",
    SASL_PLAINTEXT: "SASL_PLAINTEXT",
    TLS: "SSL",
    SASL_TLS: "SASL_SSL",
    MTLS: "SSL",
}
# Kinds that brokers open and tenants may choose.
SECURITIES: Final = tuple(PROTOCOLS)
WITH_SASL: Final = frozenset({SASL_PLAINTEXT, SASL_TLS})
WITH_TLS: Final = frozenset({TLS, SASL_TLS, MTLS})
# Default of Kafka's `ssl.principal.mapping.rules`: the user's name is the distinguished name of its certificate.
DEFAULT_MAPPING_RULES: Final = "DEFAULT"
MAPPING_RULES_CHARS_MAX: Final = 4_096
