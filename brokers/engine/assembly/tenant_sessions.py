"""Who speaks to whoever connects to an instance: at once as ANONYMOUS, or after authentication, as the route says."""

from __future__ import annotations

from typing import Final

from brokers.contract.documents import InstanceDocument
from brokers.engine.access.principals import of_tenant_port
from brokers.engine.handlers.auth.tenant_sasl import ReportFailure, SaslRoute, TenantSaslSession
from brokers.engine.handlers.context import Engine
from brokers.engine.handlers.dispatch import DISPATCH_TABLE
from brokers.engine.handlers.session import Session
from brokers.engine.network.connection import Connection
from brokers.engine.network.listener import MakeSession
from brokers.engine.protocol.apis import ADVERTISED_TENANT

PLAINTEXT: Final = "plaintext"
SASL_SECURITIES: Final = frozenset({"sasl_plaintext", "sasl_tls"})


def security_of(_document: InstanceDocument) -> str:
    """Of the one route of an instance."""
    return PLAINTEXT


def session_maker(engine: Engine, instance_id: str, security: str, report_failure: ReportFailure) -> MakeSession:
    """For the connections of a route of this security."""
    if security in SASL_SECURITIES:
        return _MakeSaslSession(SaslRoute(engine, instance_id, DISPATCH_TABLE, report_failure))
    return _MakeAnonymousSession(engine, instance_id)


class _MakeAnonymousSession:
    """CKA-9: the port decides the instance, no credential can change it."""

    def __init__(self, engine: Engine, instance_id: str) -> None:
        self._engine = engine
        self._principal = of_tenant_port(instance_id)

    def __call__(self, connection: Connection) -> Session:
        return Session(self._engine, connection, self._principal, ADVERTISED_TENANT, DISPATCH_TABLE)


class _MakeSaslSession:
    """The port decides the instance here as well; what is proven is which of its users."""

    def __init__(self, route: SaslRoute) -> None:
        self._route = route

    def __call__(self, connection: Connection) -> TenantSaslSession:
        return TenantSaslSession(self._route, connection)
