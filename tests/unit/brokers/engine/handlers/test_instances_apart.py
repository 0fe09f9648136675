"""Two instances, each with a route for users and tokens and one for certificates: credentials of one give no access to
the other, and neither do those of the cluster itself.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from brokers.contract.acls import CLUSTER_NAME, AclOperation, Permission, ResourceType
from brokers.contract.certificates import CertificatesDocument
from brokers.contract.process import CLUSTER_USER
from brokers.contract.routes import RouteDocument
from brokers.contract.users import UserDocument
from brokers.engine.access import attempts
from brokers.engine.handlers.auth import tenant_sasl
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.metadata import MetadataRequest
from tests.testkit.client_certificates import Authority, client_tls
from tests.testkit.in_process import SECRET, InProcessBroker
from tests.testkit.oauth import Issuer
from tests.testkit.ports import unused_port
from tests.testkit.records import batch, fetch, produce
from tests.testkit.rights import acl, create_acls, describe_acls
from tests.testkit.scram import user
from tests.testkit.tls import client_context, make_certificate
from tests.testkit.wire import HOST, WireClient
from tests.unit.brokers.engine.handlers.test_sasl_routes import shake_hands, sign_in
from tests.unit.brokers.engine.handlers.test_token_routes import TokenHouse, bring, refused
from tests.unit.brokers.engine.handlers.test_user_calls import alter, altered, describe

MINE, THEIRS = "ins-aaaaaaaa", "ins-bbbbbbbb"
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
MECHANISMS = (0, 1, 2)
EVERYTHING = MetadataRequest(topics=None)
USERS, MACHINES = "default", "machines"


@dataclass
class Pair(TokenHouse):
    """Two instances with users alice and root, with different passwords; root is a superuser in each. `machine_ports`
    are those of the certificate routes, by instance, and `authorities` sign their certificates.
    """

    authority: Path
    machine_ports: dict[str, int]
    authorities: dict[str, Authority]

    async def by_certificate(self, instance_id: str, file: Path | None) -> WireClient | None:
        """Connects with a certificate; None if it is not accepted."""
        try:
            client = await self.broker.client(self.machine_ports[instance_id], tls=client_tls(self.authority, file))
            await client.call(ApiKey.METADATA, 12, EVERYTHING)
        except (OSError, asyncio.IncompleteReadError):
            return None
        return client

    async def enter(self, port: int, name: str, password: str, mechanism: int = 0) -> tuple[WireClient, int]:
        """Connects over TLS and signs in; returns the connection and the error code."""
        client = await self.broker.client(port, tls=client_context(self.authority))
        return client, int((await sign_in(client, name, password, mechanism)).error_code)

    async def let_in(self, port: int, name: str, password: str) -> WireClient:
        client, error = await self.enter(port, name, password)
        assert error == 0
        return client


def users_of(instance_id: str, password: str) -> list[UserDocument]:
    return [
        user("alice", password, instance_id=instance_id),
        user("root", f"{password}-of-root", instance_id=instance_id, superuser=True),
    ]


def route(name: str, security: str, port: int) -> RouteDocument:
    return RouteDocument(
        name=name,
        security=security,
        ports={1: port},
        endpoints={1: f"{HOST}:{port}"},
        principal_mapping_rules="RULE:^CN=(.*)$/$1/",
    )


@pytest.fixture
async def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    monkeypatch.setattr(tenant_sasl, "FAILED_AUTHENTICATION_DELAY_MS", 0)
    for burst in ("USER_FAILURES_BURST", "ADDRESS_FAILURES_BURST"):
        monkeypatch.setattr(attempts, burst, 1_000)
    authority = tmp_path / "tls"
    certificate = make_certificate(authority)
    async with InProcessBroker(tmp_path / "broker", certificate=certificate) as broker:
        ports = {id: (unused_port(), unused_port()) for id in (MINE, THEIRS)}
        authorities = {id: Authority.make("Clients CA") for id in ports}  # with the same name
        for id, (users, machines) in ports.items():
            routes = route(USERS, "sasl_tls", users), route(MACHINES, "mtls", machines)
            await broker.create_instance(id, routes=routes, endpoints=dict(routes[0].endpoints), ports={})
            await broker.put_certificates(id, MACHINES, CertificatesDocument(client_ca_pem=authorities[id].pem))
        machine_ports = {id: machines for id, (_, machines) in ports.items()}
        pair = Pair(broker, ports[MINE][0], ports[THEIRS][0], authority, machine_ports, authorities)
        await pair.put(*users_of(MINE, "mine"))
        await pair.put(*users_of(THEIRS, "theirs"), instance_id=THEIRS)
        yield pair


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_no_user_of_one_instance_signs_in_to_the_other(pair: Pair, mechanism: int) -> None:
    await pair.put(user("carol", "mine"))  # who does not exist in the other instance
    for name, password in (("alice", "mine"), ("root", "mine-of-root"), ("carol", "mine")):
        _, error = await pair.enter(pair.port, name, password, mechanism)
        assert error == 0
        for tried in (name, f"{MINE}.{name}", f"{MINE}/{name}", f"../{MINE}/users/{name}"):
            client, error = await pair.enter(pair.their_port, tried, password, mechanism)
            assert error == FAILED
            assert await client.is_closed()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_the_clusters_own_credentials_open_no_route(pair: Pair, mechanism: int) -> None:
    for name in (CLUSTER_USER, MINE, THEIRS):
        client, error = await pair.enter(pair.their_port, name, SECRET, mechanism)
        assert error == FAILED
        assert await client.is_closed()


async def test_a_signed_in_user_does_not_act_for_the_other_instance(pair: Pair) -> None:
    """A token may name another identity beside the user, which must not be that of the other instance."""
    for identity in (THEIRS, CLUSTER_USER, "127.0.0.1", "127.0.0.1 root", "root"):
        client = await pair.broker.client(pair.port, tls=client_context(pair.authority))
        answer = await client.log_in("alice", "mine", identity)
        assert answer.error_code == FAILED
        assert await client.is_closed()


async def test_a_session_of_tls_from_one_route_proves_nobody_on_the_other(pair: Pair) -> None:
    """The session ticket saves a part of the handshake, but SASL is required all the same."""
    context = client_context(pair.authority, version=ssl.TLSVersion.TLSv1_2)
    session = await pair.broker.broker.services.loop.run_in_executor(None, _session_of, context, pair.port)
    loop = pair.broker.broker.services.loop
    answered = await loop.run_in_executor(None, _metadata_with, context, session, pair.their_port)
    assert answered == b""


def _session_of(context: ssl.SSLContext, port: int) -> ssl.SSLSession | None:
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        return secured.session


def _metadata_with(context: ssl.SSLContext, session: ssl.SSLSession | None, port: int) -> bytes:
    """Returns the bytes received after a request without SASL, on a resumed session of another route."""
    from brokers.engine.protocol import codec, headers

    body = codec.encode_request(ApiKey.METADATA, 12, MetadataRequest(topics=None))
    frame = headers.encode_request_frame(ApiKey.METADATA, 12, 1, "thief", body)
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as secured,
    ):
        secured.settimeout(10)
        secured.sendall(frame)
        return secured.recv(1_000)


async def test_no_token_of_one_instance_opens_a_route_of_the_other(pair: Pair) -> None:
    ours, theirs = Issuer(), Issuer(issuer="https://their.example.com/", audience="theirs")
    await pair.configure(ours.document())
    context = client_context(pair.authority)
    assert (await bring(await pair.broker.client(pair.port, tls=context), ours.token("root"))).error_code == 0
    # Before the other instance accepts tokens, with its own issuer, and with a token that claims to be of that issuer.
    client = await pair.broker.client(pair.their_port, tls=context)
    assert (await shake_hands(client, "OAUTHBEARER")).error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    await pair.configure(theirs.document(), THEIRS)
    for token in (ours.token("root"), ours.token("root", iss=theirs.issuer, aud=theirs.audience)):
        assert (await refused(await pair.broker.client(pair.their_port, tls=context), token)).error_code == FAILED
    assert (await refused(await pair.broker.client(pair.port, tls=context), theirs.token("root"))).error_code == FAILED


async def test_no_certificate_of_one_instance_opens_a_route_of_the_other(pair: Pair, tmp_path: Path) -> None:
    mine = pair.authorities[MINE].client(tmp_path, "alice")
    assert await pair.by_certificate(MINE, mine) is not None
    assert await pair.by_certificate(THEIRS, mine) is None
    # Nor does it authenticate on a route for users.
    for port in (pair.port, pair.their_port):
        client = await pair.broker.client(port, tls=client_tls(pair.authority, mine))
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await client.call(ApiKey.METADATA, 12, EVERYTHING)
    # Each instance trusts its own authority only.
    await pair.broker.put_certificates(
        MINE, MACHINES, CertificatesDocument(client_ca_pem="".join(each.pem for each in pair.authorities.values()))
    )
    assert await pair.by_certificate(THEIRS, mine) is None


async def test_a_client_with_a_certificate_has_the_rights_of_its_own_instance(pair: Pair, tmp_path: Path) -> None:
    owners = [await pair.broker.internal_client(id) for id in (MINE, THEIRS)]
    for owner in owners:
        await pair.broker.create_topic(owner, "orders")
    for owner, permission in zip(owners, (Permission.ALLOW, Permission.DENY), strict=True):
        entry = acl("User:alice", AclOperation.ALL, ResourceType.TOPIC, "orders", permission=permission)
        assert await create_acls(owner, entry) == [0]
    errors = []
    for id in (MINE, THEIRS):
        client = await pair.by_certificate(id, pair.authorities[id].client(tmp_path, "alice"))
        assert client is not None
        errors.append((await produce(client, "orders", batch(b"x"))).error_code)
    assert errors == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]


async def test_a_route_that_is_closed_or_changed_is_so_in_its_own_instance_alone(pair: Pair, tmp_path: Path) -> None:
    files = {id: pair.authorities[id].client(tmp_path, "alice") for id in (MINE, THEIRS)}
    theirs = await pair.by_certificate(THEIRS, files[THEIRS])
    assert theirs is not None
    before = pair.broker.broker.current.image.instances[MINE].document.routes
    stranger = "192.0.2.1"
    await pair.broker.update_instance(MINE, routes=tuple(replace(each, allow_list=(stranger,)) for each in before))
    assert await pair.by_certificate(MINE, files[MINE]) is None
    await pair.broker.update_instance(MINE, routes=before[:1])
    await pair.broker.put_certificates(MINE, MACHINES, None)
    assert (await theirs.call(ApiKey.METADATA, 12, EVERYTHING)).topics is not None
    assert await pair.by_certificate(THEIRS, files[THEIRS]) is not None


async def test_rights_of_one_instance_are_none_in_the_other(pair: Pair) -> None:
    mine, theirs = [await pair.broker.internal_client(id) for id in (MINE, THEIRS)]
    for owner in (mine, theirs):
        await pair.broker.create_topic(owner, "orders")
    everything = [acl("User:alice", AclOperation.ALL, kind, "*") for kind in (ResourceType.TOPIC, ResourceType.GROUP)]
    assert set(await create_acls(mine, *everything)) == {0}
    closed = acl("User:alice", AclOperation.ALL, ResourceType.TOPIC, "*", permission=Permission.DENY)
    assert await create_acls(theirs, closed) == [0]

    mine_in = await pair.let_in(pair.port, "alice", "mine")
    theirs_in = await pair.let_in(pair.their_port, "alice", "theirs")
    assert (await produce(mine_in, "orders", batch(b"mine"))).error_code == 0
    for topic in ("orders", f"{MINE}.orders"):
        refused = await produce(theirs_in, topic, batch(b"theirs"))
        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (await fetch(theirs_in, topic)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    shown = [each.resource_name for each in (await describe_acls(theirs)).resources]
    assert shown == ["*"]
    assert len((await describe_acls(mine)).resources) == 2


async def test_a_superuser_administers_its_own_instances_users_and_entries_alone(pair: Pair) -> None:
    mine, theirs = [await pair.broker.internal_client(id) for id in (MINE, THEIRS)]
    root = await pair.let_in(pair.port, "root", "mine-of-root")
    before = await describe(theirs, "alice", "root")

    assert await alter(mine, altered("alice", disabled=1)) == [0]
    given = acl("User:mallory", AclOperation.ALL, ResourceType.CLUSTER, CLUSTER_NAME)
    assert await create_acls(root, given) == [0]

    after = await describe(theirs, "alice", "root")
    assert [(each.name, each.disabled, each.superuser) for each in after] == [
        (each.name, each.disabled, each.superuser) for each in before
    ]
    assert not (await describe_acls(theirs)).resources
    await pair.let_in(pair.their_port, "alice", "theirs")
    _, error = await pair.enter(pair.port, "alice", "mine")
    assert error == FAILED
