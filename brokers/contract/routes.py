"""Routes: ways to connect to an instance, each with its own ports, security and allow-list (CKA-8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from instances.routes.kinds import (
    DEFAULT_MAPPING_RULES,
    DEFAULT_ROUTE,
    MTLS,
    PLAINTEXT,
    SECURITIES,
    WITH_SASL,
    WITH_TLS,
)

__all__ = ["DEFAULT_ROUTE", "PLAINTEXT", "SECURITIES", "RouteDocument", "first_plaintext_ports"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteDocument:
    """One route of an instance. The `ports` to bind and the advertised `endpoints` (`host:port`) are by broker id.

    An empty `allow_list` admits all addresses. With `connections_max` None only the instance's limit applies. A peer in
    `proxies` sends the client's address by PROXY protocol version 2. `principal_mapping_rules` map certificates to
    users (`mtls`); the certificates are in documents of their own (`certificates.CertificatesDocument`).
    """

    name: str
    security: str
    ports: Mapping[int, int] = field(default_factory=dict)
    endpoints: Mapping[int, str] = field(default_factory=dict)
    allow_list: tuple[str, ...] = ()
    connections_max: int | None = None
    proxies: tuple[str, ...] = ()
    principal_mapping_rules: str = DEFAULT_MAPPING_RULES

    @property
    def has_sasl(self) -> bool:
        return self.security in WITH_SASL

    @property
    def has_tls(self) -> bool:
        return self.security in WITH_TLS

    @property
    def has_client_certificates(self) -> bool:
        return self.security == MTLS

    def to_body(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "security": self.security,
            "ports": {str(broker): port for broker, port in self.ports.items()},
            "endpoints": {str(broker): address for broker, address in self.endpoints.items()},
            "allow_list": list(self.allow_list),
            "connections_max": self.connections_max,
            "proxies": list(self.proxies),
            "principal_mapping_rules": self.principal_mapping_rules,
        }

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> RouteDocument:
        """Decodes a route. `security` has no default: a route whose security is unknown must not be opened."""
        return cls(
            name=body["name"],
            security=body["security"],
            ports={int(broker): port for broker, port in body.get("ports", {}).items()},
            endpoints={int(broker): address for broker, address in body.get("endpoints", {}).items()},
            allow_list=tuple(body["allow_list"]),
            connections_max=body.get("connections_max"),
            proxies=tuple(body.get("proxies", ())),
            principal_mapping_rules=body.get("principal_mapping_rules", DEFAULT_MAPPING_RULES),
        )


def first_plaintext_ports(routes: tuple[RouteDocument, ...]) -> dict[int, int]:
    """Returns the ports for brokers without support for routes, which open them as plaintext to all addresses."""
    for route in routes:
        if route.security == PLAINTEXT and not route.allow_list and not route.proxies:
            return dict(route.ports)
    return {}
