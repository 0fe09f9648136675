"""SASL EXTERNAL (RFC 4422, appendix A) on the internal listener (WIRE-18).

The certificate proves which process connects, and the token names the user that it acts as: `<user>`, or
`<user> <client>` for a broker that forwards requests of an instance's client.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from brokers.contract.process import CLUSTER_USER
from brokers.contract.process_identity import ProcessIdentity, ProcessRole
from brokers.engine.access.principals import Principal, internal_login_principal
from brokers.engine.access.sasl import TOKEN_BYTES_MAX, ForwardedClient, SaslFailed, parse_forwarded_client

MECHANISM = "EXTERNAL"


class InternalIdentity(NamedTuple):
    """Identity of a connection on the internal listener.

    `address` is the address of the client whose requests are forwarded; None if the peer acts for itself.
    """

    principal: Principal
    address: str | None = None


def is_admitted_process(process: ProcessIdentity | None, cluster_id: str) -> bool:
    """True if a process may use the internal listener."""
    return process is not None and process.role is not ProcessRole.METRICS and process.is_of(cluster_id)


def cluster_identity(process: ProcessIdentity) -> InternalIdentity:
    """Returns the identity of a process that names no user: the cluster itself."""
    principal = internal_login_principal(CLUSTER_USER)
    assert principal is not None, "CLUSTER_USER is a valid login"
    return InternalIdentity(replace(principal, process=process))


def identity_of_token(token: bytes, process: ProcessIdentity) -> InternalIdentity:
    """Returns the identity that a token names. Raises SaslFailed if it is malformed or the role does not allow it."""
    if not token:
        return cluster_identity(process)
    if len(token) > TOKEN_BYTES_MAX:
        raise SaslFailed("the token is too long")
    try:
        username, _, named_client = token.decode().partition(" ")
    except UnicodeDecodeError:
        raise SaslFailed("the token is not UTF-8") from None
    principal = internal_login_principal(username)
    client = parse_forwarded_client(named_client) if named_client else None
    if principal is None or (named_client and not _may_forward(process, principal, client)):
        raise SaslFailed("authentication failed")
    principal = replace(principal, process=process)
    return (
        InternalIdentity(principal)
        if client is None
        else InternalIdentity(replace(principal, user=client.user), client.address)
    )


def _may_forward(process: ProcessIdentity, principal: Principal, client: ForwardedClient | None) -> bool:
    return client is not None and principal.instance_id is not None and process.role is ProcessRole.BROKER
