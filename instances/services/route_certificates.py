"""Changes of a route's certificates: its own, its clients' authorities and their revocation lists. Callers lock the
instance by `access.instance(lock=True)`.

Audit rows have public summaries. Private keys are encrypted before they reach the database.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from instances.access import require_changeable
from instances.choices import OperationType
from instances.models import Instance, Operation, Route, RouteCertificates
from instances.routes import certificate_checks as checks
from instances.routes.certificate_entries import ROUTE_KEYS_FILE
from instances.routes.kinds import MTLS, WITH_TLS
from instances.services.changing import publish_change
from tenants import access
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, Message, NotFound, Unavailable

CLIENT_CA: Final = "client_ca"
REVOCATION: Final = "revocation"
CERTIFICATE: Final = "certificate"


@transaction.atomic
def set_client_ca(
    *, acting: Actor, instance: Instance, route: Route, ca_pem: str, dry_run: bool = False
) -> Operation | None:
    """Replaces the authorities that may sign certificates of clients; connections of clients with
    certificates of other authorities are closed.

    The list of a removed authority neither counts nor becomes overdue. It is kept, and in force again when the
    authority is added again; all lists are removed when none of their authorities is left. Returns None if nothing
    differs. Raises `Invalid` and `Conflict`.
    """
    row = _row_to_change(acting, instance, route, requires_mtls=True)
    client_ca = checks.client_ca(ca_pem, timezone.now())
    if row.client_ca_pem == client_ca.pem:
        return None
    row.client_ca_pem = client_ca.pem
    summaries: dict[str, Any] = {CLIENT_CA: client_ca.summary}
    if not client_ca.authorities & row.crl_numbers.keys():
        _clear_revocation_lists(row)
    revocation = _revocation_of(row, client_ca.authorities)
    if revocation != route.revocation:
        summaries[REVOCATION] = revocation
    return _store_and_publish(acting, instance, row, summaries, "route.client_ca_set", dry_run=dry_run)


def _revocation_of(row: RouteCertificates, authorities: frozenset[str]) -> dict[str, Any] | None:
    """Returns the summary of the lists of these authorities; of all lists, if an earlier version stored them."""
    if not row.crl_numbers:
        return None
    if row.crl_numbers != {key: part["crl_number"] for key, part in row.crl_parts.items()}:
        stored: dict[str, Any] | None = row.route.revocation
        return stored
    return checks.summary_of([part for key, part in row.crl_parts.items() if key in authorities])


def _clear_revocation_lists(row: RouteCertificates) -> None:
    row.revoked, row.crl_numbers, row.crl_parts = b"", {}, {}


@transaction.atomic
def remove_client_ca(*, acting: Actor, instance: Instance, route: Route, dry_run: bool = False) -> Operation:
    """Removes the authorities and revocation lists of clients: all connections end, and no client can connect.

    Raises `NotFound`.
    """
    row = _row_to_change(acting, instance, route, required_part=CLIENT_CA)
    row.client_ca_pem = ""
    _clear_revocation_lists(row)
    summaries = {CLIENT_CA: None, REVOCATION: None}
    return _store_and_publish(acting, instance, row, summaries, "route.client_ca_removed", dry_run=dry_run)


@transaction.atomic
def set_revocation_list(
    *, acting: Actor, instance: Instance, route: Route, crl_pem: str, dry_run: bool = False
) -> Operation | None:
    """Replaces all revocation lists; connections with revoked certificates are closed. Returns None if nothing differs.

    Raises `Invalid`, and `Conflict` without an authority and for a list that is older than the one in force.
    """
    row = _row_to_change(acting, instance, route, requires_mtls=True)
    if not row.client_ca_pem:
        raise Conflict("The route has no authority of clients yet. Set client-ca first.", code="no_client_ca")
    lists = checks.revocation_list(crl_pem, row.client_ca_pem, row.crl_numbers, timezone.now())
    if (bytes(row.revoked), route.revocation, row.crl_parts) == (lists.revoked, lists.summary, lists.parts):
        return None
    row.revoked, row.crl_numbers, row.crl_parts = lists.revoked, lists.numbers, lists.parts
    row.warned.pop(REVOCATION, None)
    return _store_and_publish(
        acting, instance, row, {REVOCATION: lists.summary}, "route.revocation_list_set", dry_run=dry_run
    )


@transaction.atomic
def remove_revocation_list(*, acting: Actor, instance: Instance, route: Route, dry_run: bool = False) -> Operation:
    """Removes the revocation lists: revoked certificates are accepted again. Raises `NotFound`."""
    row = _row_to_change(acting, instance, route, required_part=REVOCATION)
    _clear_revocation_lists(row)
    return _store_and_publish(
        acting, instance, row, {REVOCATION: None}, "route.revocation_list_removed", dry_run=dry_run
    )


@transaction.atomic
def set_certificate(
    *,
    acting: Actor,
    instance: Instance,
    route: Route,
    certificate_pem: str,
    private_key_pem: str,
    dry_run: bool = False,
) -> Operation:
    """Sets the certificate that brokers show to clients of this route instead of their own; open connections stay.

    The private key is never shown again. Raises `Invalid`, `Conflict`, and `Unavailable` if this installation has no
    key to encrypt it with.
    """
    row = _row_to_change(acting, instance, route, requires_tls=True)
    chain = checks.server_certificate(certificate_pem, private_key_pem, _key_password(), timezone.now())
    row.certificate_pem, row.private_key_pem = chain.pem, chain.encrypted_key_pem
    return _store_and_publish(
        acting, instance, row, {CERTIFICATE: chain.summary}, "route.certificate_set", dry_run=dry_run
    )


@transaction.atomic
def remove_certificate(*, acting: Actor, instance: Instance, route: Route, dry_run: bool = False) -> Operation:
    """Removes the route's own certificate: brokers show their certificates of this installation's authority again.

    Raises `NotFound`.
    """
    row = _row_to_change(acting, instance, route, required_part=CERTIFICATE)
    row.certificate_pem = row.private_key_pem = ""
    return _store_and_publish(acting, instance, row, {CERTIFICATE: None}, "route.certificate_removed", dry_run=dry_run)


def _row_to_change(
    acting: Actor,
    instance: Instance,
    route: Route,
    *,
    requires_mtls: bool = False,
    requires_tls: bool = False,
    required_part: str = "",
) -> RouteCertificates:
    """Returns the row to change. Raises `Conflict` if the route lacks the security that `requires_mtls` or
    `requires_tls` demands, and `NotFound` if its part `required_part` is not set. A part can be removed with any
    security of the route.
    """
    access.require(acting, Scope.INSTANCES_WRITE)
    require_changeable(instance)
    if requires_mtls and route.security != MTLS:
        raise Conflict("Only a route with security mtls asks clients for certificates.", code="not_mtls")
    if requires_tls and route.security not in WITH_TLS:
        raise Conflict("Only a route with security tls, sasl_tls or mtls has a certificate.", code="not_tls")
    if required_part and getattr(route, required_part) is None:
        raise NotFound("The route has none.")
    row, _ = RouteCertificates.objects.get_or_create(route=route)
    row.route = route  # the caller shows this object afterwards
    return row


def _store_and_publish(
    acting: Actor,
    instance: Instance,
    row: RouteCertificates,
    summaries: Mapping[str, Any],
    action: str,
    *,
    dry_run: bool,
) -> Operation:
    route = row.route
    before = {"name": route.name} | {name: getattr(route, name) for name in summaries}
    for name, value in summaries.items():
        setattr(route, name, value)
        row.warned.pop(name, None)
    route.save(update_fields=list(summaries))
    row.save()
    changes = before, {"name": route.name, **summaries}
    return publish_change(acting, instance, OperationType.ROUTES, action, changes, dry_run=dry_run)


def _key_password() -> bytes:
    try:
        password: bytes = (settings.TLS_DIR / ROUTE_KEYS_FILE).read_bytes().strip()
    except OSError:
        password = b""
    if not password:
        text = gettext_noop("This installation cannot keep private keys yet: it has no %(file)s.")
        raise Unavailable(Message(text, file=ROUTE_KEYS_FILE))
    return password
