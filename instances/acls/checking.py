"""Validation of an access rule before brokers are called. Pure except for the error type."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from django.utils.translation import gettext_noop

from instances.acls.constants import CLUSTER, CLUSTER_NAME, LITERAL, OPERATIONS_OF, WILDCARD
from instances.acls.interfaces import AclRule
from instances.acls.limits import ACL_NAME_BYTES_MAX
from instances.users.naming import PRINCIPAL_PREFIX, name_bytes
from tenants.errors import FieldError, Invalid, Message


def require_valid(rule: AclRule) -> None:
    """Raises `Invalid` with every invalid field."""
    errors = list(_field_errors(rule))
    if errors:
        raise Invalid(errors[0].detail, errors=errors)


def address_of(host: str) -> str:
    """Returns an address in the form in which brokers write addresses of connections; `*` is returned unchanged.

    Raises `ValueError` for a text that is no address.
    """
    if host == WILDCARD:
        return host
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id:
            raise ValueError("a scope is not part of an address here")
        return str(address.ipv4_mapped or address)
    return str(address)


def _field_errors(rule: AclRule) -> Iterator[FieldError]:
    if rule.operation not in OPERATIONS_OF.get(rule.resource_type, ()):
        detail = Message(
            gettext_noop("Kafka never asks for this of a %(type)s. Use one of: %(operations)s."),
            type=rule.resource_type, operations=", ".join(OPERATIONS_OF.get(rule.resource_type, ())),
        )  # fmt: skip
        yield FieldError(pointer="/operation", detail=detail, code="unsupported_operation")
    if rule.resource_type == CLUSTER and (rule.resource_name != CLUSTER_NAME or rule.pattern_type != LITERAL):
        yield FieldError(
            pointer="/resource_name",
            detail="The cluster has one name, kafka-cluster, and its pattern is literal.",
            code="invalid_name",
        )
    yield from _name_errors("/resource_name", rule.resource_name)
    name = rule.principal.removeprefix(PRINCIPAL_PREFIX)
    if name == rule.principal or not name:
        yield FieldError(
            pointer="/principal", detail="Write a user as User:name, and everybody as User:*.", code="invalid_principal"
        )
    yield from _name_errors("/principal", rule.principal)
    try:
        address_of(rule.host)
    except ValueError:
        yield FieldError(
            pointer="/host", detail="Use one IP address, or * for any. Networks are not known to Kafka's rules.",
            code="invalid_address",
        )  # fmt: skip


def _name_errors(pointer: str, name: str) -> Iterator[FieldError]:
    if not name.isprintable():
        yield FieldError(pointer=pointer, detail="Use printable characters.", code="invalid_name")
    elif name_bytes(name) > ACL_NAME_BYTES_MAX:
        yield FieldError(pointer=pointer, detail="The name is too long.", code="too_long")
