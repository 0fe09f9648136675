"""How a route is protected, and what an instance has of routes at most. Brokers know the same words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Of an instance: each takes a port on every broker that serves it.
ROUTES_MAX: Final = 5
# Of one list of a route.
CIDRS_MAX: Final = 512
ROUTE_NAME_CHARS_MAX: Final = 40
# What a route may ask for as its own limit of connections on each broker.
ROUTE_CONNECTIONS_MAX: Final = 1_000_000
# What every instance had before there were routes: one, over its ports, without security.
DEFAULT_ROUTE: Final = "default"

PLAINTEXT: Final = "plaintext"
SASL_PLAINTEXT: Final = "sasl_plaintext"
TLS: Final = "tls"
SASL_TLS: Final = "sasl_tls"
MTLS: Final = "mtls"
# By what a client sets as `security.protocol`.
PROTOCOLS: Final[Mapping[str, str]] = {
    PLAINTEXT: "PLAINTEXT",
    SASL_PLAINTEXT: "SASL_PLAINTEXT",
    TLS: "SSL",
    SASL_TLS: "SASL_SSL",
    MTLS: "SSL",
}
# What brokers open and tenants may choose.
SECURITIES: Final = tuple(PROTOCOLS)
WITH_SASL: Final = frozenset({SASL_PLAINTEXT, SASL_TLS})
WITH_TLS: Final = frozenset({TLS, SASL_TLS, MTLS})
# Kafka's `ssl.principal.mapping.rules`: a user by certificate is its distinguished name.
DEFAULT_MAPPING_RULES: Final = "DEFAULT"
MAPPING_RULES_CHARS_MAX: Final = 4_096
