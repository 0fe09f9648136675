"""Identities that a process with a certificate may act as on the internal listener."""

from __future__ import annotations

import pytest

from brokers.contract.process import CLUSTER_USER
from brokers.contract.process_identity import ProcessIdentity, ProcessRole, broker, control
from brokers.engine.access.external import InternalIdentity, cluster_identity, identity_of_token, is_admitted_process
from brokers.engine.access.principals import Principal
from brokers.engine.access.sasl import TOKEN_BYTES_MAX, ForwardedClient, SaslFailed

CLUSTER = "cl-a1b2c3d4"
BROKER, WEB, READER = broker(CLUSTER, 2), control("web"), ProcessIdentity(ProcessRole.METRICS, "prometheus")
INSTANCE = "ins-aaaaaaaa"


def test_brokers_of_the_cluster_and_the_control_plane_enter_and_nobody_else() -> None:
    entering = [BROKER, WEB, READER, broker("cl-other000", 2), None]
    assert [is_admitted_process(process, CLUSTER) for process in entering] == [True, True, False, False, False]


def test_a_peer_that_names_no_user_acts_for_the_cluster() -> None:
    expected = InternalIdentity(Principal(CLUSTER_USER, None, internal=True, process=WEB))
    assert (
        cluster_identity(WEB)
        == identity_of_token(b"", WEB)
        == identity_of_token(CLUSTER_USER.encode(), WEB)
        == expected
    )


def test_an_instance_is_asked_for_as_its_owner() -> None:
    assert identity_of_token(INSTANCE.encode(), WEB) == InternalIdentity(
        Principal("ANONYMOUS", INSTANCE, internal=True, process=WEB)
    )


def test_a_broker_passes_on_what_a_client_asks() -> None:
    client = ForwardedClient("192.0.2.7", "ali ce")
    asker = identity_of_token(f"{INSTANCE} {client.authorization_id}".encode(), BROKER)
    assert asker == InternalIdentity(Principal("ali ce", INSTANCE, internal=True, process=BROKER), "192.0.2.7")


@pytest.mark.parametrize(
    ("token", "process"),
    [
        (f"{INSTANCE} 192.0.2.7 alice", WEB),
        (f"{CLUSTER_USER} 192.0.2.7", BROKER),
        (f"{INSTANCE} somewhere", BROKER),
        ("root", BROKER),
        ("ins-AAAAAAAA", BROKER),
        ("x" * (TOKEN_BYTES_MAX + 1), BROKER),
        ("\udcff", BROKER),
    ],
)
def test_any_other_wish_is_refused(token: str, process: ProcessIdentity) -> None:
    with pytest.raises(SaslFailed):
        identity_of_token(token.encode(errors="surrogateescape"), process)


def test_a_broker_follows_as_itself_alone_and_the_control_plane_not_at_all() -> None:
    def may(process: ProcessIdentity | None) -> list[bool]:
        principal = Principal(CLUSTER_USER, None, internal=True, process=process)
        return [principal.may_follow_as(broker_id) for broker_id in (2, 12, 3)]

    assert may(BROKER) == [True, False, False]
    assert may(broker(CLUSTER, 12)) == [False, True, False]
    assert may(control("web:2")) == [False, False, False]
    # A process that proved the shared secret has no certificate name.
    assert may(None) == [True, True, True]
