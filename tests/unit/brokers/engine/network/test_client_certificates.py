"""Routes that authenticate clients by certificate: accepted clients, their names, and the closing of connections."""

from __future__ import annotations

import asyncio
import socket
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from brokers.contract import paths
from brokers.contract.audit import AuditEvent
from brokers.contract.audit_limits import TALLIES_PER_INSTANCE_MAX
from brokers.contract.certificates import ROUTE_KEYS_FILE, CertificatesDocument
from brokers.contract.documents import change_to_json
from brokers.contract.routes import RouteDocument
from brokers.engine.access.client_certificates import REVOKED, CertificateRefused
from brokers.engine.cluster.tree import Create, Delete, Operation
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.metadata import MetadataRequest
from brokers.infra.certificates import ensure_route_keys
from instances.routes import certificate_checks as checks
from instances.routes.certificate_entries import CLIENT_CHAIN_MAX, REVOKED_MAX
from tests.testkit.client_certificates import DAY, NOW, Authority, client_tls, name_of
from tests.testkit.in_process import InProcessBroker
from tests.testkit.oauth import Issuer
from tests.testkit.ports import unused_port
from tests.testkit.scram import user
from tests.testkit.tls import make_certificate
from tests.testkit.wire import HOST, WireClient
from tests.unit.brokers.engine.handlers.test_token_routes import TokenHouse

MINE, THEIRS = "ins-aaaaaaaa", "ins-bbbbbbbb"
EVERYTHING = MetadataRequest(topics=None)
RULES = "RULE:^CN=([a-z0-9-]+)$/$1/, DEFAULT"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    make_certificate(directory)
    ensure_route_keys(directory)
    return directory


@pytest.fixture(scope="module")
def acme() -> Authority:
    return Authority.make("Acme CA")


@dataclass
class House:
    broker: InProcessBroker
    ports: dict[str, int] = field(default_factory=dict)

    async def open(self, instance_id: str, security: str = "mtls", rules: str = RULES) -> int:
        port = unused_port()
        route = RouteDocument(
            name="secure",
            security=security,
            ports={1: port},
            endpoints={1: f"{HOST}:{port}"},
            principal_mapping_rules=rules,
        )
        await self.broker.create_instance(instance_id, routes=(route,), endpoints=dict(route.endpoints), ports={})
        self.ports[instance_id] = port
        return port

    async def put(self, document: CertificatesDocument | None, instance_id: str = MINE) -> None:
        """Writes the document like the control plane, and waits until the broker has it."""
        await self.broker.put_certificates(instance_id, "secure", document)

    async def trust(self, *authorities: Authority, crl: str = "", instance_id: str = MINE) -> None:
        pem = "".join(each.pem for each in authorities)
        revoked = checks.revocation_list(crl, pem, {}, NOW).revoked if crl else b""
        await self.put(CertificatesDocument(client_ca_pem=pem, revoked=revoked), instance_id)

    async def connect(
        self, authority: Path, file: Path | None, instance_id: str = MINE, version: ssl.TLSVersion | None = None
    ) -> WireClient:
        return await self.broker.client(self.ports[instance_id], tls=client_tls(authority, file, version))

    async def put_user(self, document: Any, name: str) -> None:
        tree, path = self.broker.tree, paths.instance_user(MINE, name)
        operations: list[Operation] = []
        if await tree.get(paths.instance_users(MINE)) is None:
            operations.append(Create(paths.instance_users(MINE)))
        if document is None:
            operations.append(Delete(path, None))
        else:
            operations.append(Create(path, document.to_json()))
        change = change_to_json([f"instances/{MINE}/users/{name}"])
        await tree.commit([*operations, Create(paths.CHANGE_PREFIX, change, sequence=True)])
        image = self.broker.broker.current
        await self.broker.until(lambda: image.image.users.of_instance(MINE).get(name) == document)

    def keep_audit_events(self) -> list[AuditEvent]:
        """Returns the list that the broker's audit events are appended to."""
        kept: list[AuditEvent] = []

        def keep(_instance_id: str, value: bytes) -> bool:
            kept.append(AuditEvent.from_json(value))
            return True

        self.broker.broker.services.access.audit.append = keep
        return kept

    def users(self, instance_id: str = MINE) -> list[str]:
        """Returns the users of the open connections."""
        (group,) = [group for group in self.broker.broker.listeners.groups() if group.name == instance_id]
        return sorted(
            connection.session.principal.user for connection in group.connections() if hasattr(connection, "session")
        )


@pytest.fixture
async def house(tmp_path: Path, authority: Path) -> AsyncIterator[House]:
    async with InProcessBroker(tmp_path / "broker", certificate=authority / "broker.pem") as running:
        yield House(running)


async def is_served(client: WireClient) -> bool:
    return (await client.call(ApiKey.METADATA, 12, EVERYTHING)).topics is not None


async def is_refused(house: House, authority: Path, file: Path | None, instance_id: str = MINE) -> bool:
    """True if the client is rejected, of which TLS 1.3 informs it only after the handshake."""
    try:
        client = await house.connect(authority, file, instance_id)
        await client.call(ApiKey.METADATA, 12, EVERYTHING)
    except (OSError, asyncio.IncompleteReadError):
        return True
    return False


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_user_is_named_by_its_certificate(
    house: House, authority: Path, acme: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    await house.open(MINE)
    await house.trust(acme)
    alice = await house.connect(authority, acme.client(tmp_path, "alice"), version=version)
    subject = name_of("Bob", country_name="CN", organization_name="Acme")
    bob = await house.connect(authority, acme.client(tmp_path, "bob", subject), version=version)
    assert await is_served(alice) and await is_served(bob)
    assert house.users() == ["CN=Bob,O=Acme,C=CN", "alice"]


async def test_nobody_comes_in_without_a_certificate_of_the_routes_authority(
    house: House, authority: Path, acme: Authority, tmp_path: Path
) -> None:
    await house.open(MINE)
    alice = acme.client(tmp_path, "alice")
    assert await is_refused(house, authority, alice)  # the route trusts no authority yet
    await house.trust(acme)
    stranger = Authority.make("Acme CA")  # of the same name
    assert await is_refused(house, authority, None)
    assert await is_refused(house, authority, stranger.client(tmp_path, "mallory"))
    assert await is_refused(house, authority, acme.client(tmp_path, "late", not_after=NOW - timedelta(minutes=5)))
    assert await is_served(await house.connect(authority, alice))
    assert house.broker.broker.listeners.counters.faults == 0


async def test_a_certificate_that_is_refused_is_in_the_audit_log_with_the_reason(
    house: House, authority: Path, acme: Authority, tmp_path: Path
) -> None:
    await house.open(MINE, rules="RULE:^CN=([a-z]+)$/$1/")
    await house.put_user(replace(user("carol"), disabled=True), "carol")
    files = {name: acme.client(tmp_path, name) for name in ("alice", "bob", "carol", "no-rule")}
    await house.trust(acme, crl=acme.revoked("alice"))
    events = house.keep_audit_events()
    refused = {
        "revoked": files["alice"],
        "no_certificate": None,
        "untrusted": Authority.make("Acme CA").client(tmp_path, "mallory"),
        "expired": acme.client(tmp_path, "late", not_after=NOW - timedelta(minutes=5)),
        "names_nobody": files["no-rule"],
        "user_shut_out": files["carol"],
    }
    for reason, file in refused.items():
        assert await is_refused(house, authority, file), reason
        assert await is_refused(house, authority, file), reason
    assert await is_served(await house.connect(authority, files["bob"]))
    services = house.broker.broker.services
    services.access.audit.finish()
    reported = {(event.items[0].after or {})["reason"]: event for event in events}
    assert reported.keys() == refused.keys()
    for reason, event in reported.items():
        assert (event.instance_id, event.address, event.route, event.requests) == (MINE, HOST, "secure", 2)
        assert event.user == ("carol" if reason == "user_shut_out" else "")
        assert event.items[0].action == "client.sign_in_failed"
        assert (event.items[0].after or {})["mechanism"] == "TLS"
    assert dict(services.access.authentication.counts())[MINE].failed == 2 * len(refused)


async def test_a_client_that_speaks_no_tls_or_hangs_up_is_no_failed_sign_in(
    house: House, authority: Path, acme: Authority, tmp_path: Path
) -> None:
    port = await house.open(MINE)
    await house.trust(acme)
    events = house.keep_audit_events()
    for first in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello"):
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(first)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    house.broker.broker.services.access.audit.finish()
    assert not events


async def test_certificates_from_many_addresses_are_a_bounded_number_of_events(
    house: House, authority: Path, acme: Authority, tmp_path: Path
) -> None:
    """The connections come through a listed proxy."""
    await house.open(MINE)
    await house.trust(acme)
    events = house.keep_audit_events()
    (listener,) = [each for each in house.broker.broker.listeners if each.name.startswith(MINE)]
    error = CertificateRefused("its certificate is revoked", REVOKED)
    for number in range(1_000):
        listener.on_handshake_failed(f"10.0.{number // 250}.{number % 250}", error)
    house.broker.broker.services.access.audit.finish()
    assert len(events) <= 2 * TALLIES_PER_INSTANCE_MAX + 1
    assert sum(event.requests for event in events) == 1_000


async def test_other_terms_for_tokens_are_nothing_to_who_came_by_certificate(
    house: House, authority: Path, acme: Authority, tmp_path: Path
) -> None:
    await house.open(MINE)
    await house.trust(acme)
    alice = await house.connect(authority, acme.client(tmp_path, "alice"))
    assert await is_served(alice)
    tokens = TokenHouse(house.broker, house.ports[MINE], 0)
    for document in (Issuer().document(), Issuer(audience="another").document(), None):
        await tokens.configure(document)
        assert await is_served(alice)


async def test_a_certificate_of_one_instance_opens_nothing_of_another(
    house: House, authority: Path, acme: Authority, tmp_path: Path
) -> None:
    other = Authority.make("Other CA")
    await house.open(MINE)
    await house.open(THEIRS)
    await house.trust(acme)
    await house.trust(other, instance_id=THEIRS)
    mine, theirs = acme.client(tmp_path, "mine"), other.client(tmp_path, "theirs")
    assert await is_refused(house, authority, mine, THEIRS)
    assert await is_refused(house, authority, theirs, MINE)
    assert await is_served(await house.connect(authority, theirs, THEIRS))


async def test_a_session_of_one_route_is_not_taken_up_at_another(
    house: House, authority: Path, acme: Authority, tmp_path: Path
) -> None:
    other = Authority.make("Other CA")
    await house.open(MINE)
    await house.open(THEIRS)
    await house.trust(acme)
    await house.trust(other, instance_id=THEIRS)
    context = client_tls(authority, acme.client(tmp_path, "mine"))
    first = await asyncio.to_thread(_shake_hands, house.ports[MINE], context, None)
    assert first.is_answered
    again = await asyncio.to_thread(_shake_hands, house.ports[MINE], context, first.session)
    assert again.is_answered and again.is_reused
    elsewhere = await asyncio.to_thread(_shake_hands, house.ports[THEIRS], context, first.session)
    assert not elsewhere.is_answered and not elsewhere.is_reused


@dataclass
class Handshake:
    session: Any = None
    is_reused: bool = False
    is_answered: bool = False


def _shake_hands(port: int, context: ssl.SSLContext, session: Any) -> Handshake:
    result = Handshake()
    plain = socket.create_connection((HOST, port))
    try:
        with plain, context.wrap_socket(plain, server_hostname=HOST, session=session) as secured:
            result.is_reused = bool(secured.session_reused)
            secured.sendall((10).to_bytes(4, "big") + bytes.fromhex("0012000000000001ffff"))
            result.is_answered = bool(secured.recv(1_000))
            result.session = secured.session
    except OSError:
        pass
    return result


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_resumed_session_does_not_outlive_a_revocation(
    house: House, authority: Path, acme: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    await house.open(MINE)
    await house.trust(acme)
    file = acme.client(tmp_path, "alice")
    context, port = client_tls(authority, file, version), house.ports[MINE]
    first = await asyncio.to_thread(_shake_hands, port, context, None)
    again = await asyncio.to_thread(_shake_hands, port, context, first.session)
    assert first.is_answered and again.is_answered and again.is_reused
    await house.trust(acme, crl=acme.revoked("alice"))
    after = await asyncio.to_thread(_shake_hands, port, context, again.session)
    assert not after.is_answered


async def test_a_revoked_certificate_loses_its_connection_and_no_other_does(
    house: House, authority: Path, acme: Authority, tmp_path: Path
) -> None:
    await house.open(MINE)
    await house.trust(acme)
    files = {name: acme.client(tmp_path, name) for name in ("alice", "bob")}
    alice, bob = [await house.connect(authority, file) for file in files.values()]
    assert await is_served(alice) and await is_served(bob)
    await house.trust(acme, crl=acme.revoked("alice"))
    assert await alice.is_closed()
    assert await is_served(bob)
    assert await is_refused(house, authority, files["alice"])
    await house.trust(acme)  # without the revocation list
    assert await is_served(await house.connect(authority, files["alice"]))


async def test_a_list_that_is_overdue_stays_in_force(
    house: House, authority: Path, acme: Authority, tmp_path: Path
) -> None:
    await house.open(MINE)
    files = {name: acme.client(tmp_path, name) for name in ("alice", "bob")}
    await house.trust(acme, crl=acme.revoked("alice", next_update=NOW - DAY))
    assert await is_refused(house, authority, files["alice"])
    assert await is_served(await house.connect(authority, files["bob"]))


async def test_an_intermediate_that_is_revoked_takes_its_clients_with_it(
    house: House, authority: Path, acme: Authority, tmp_path: Path
) -> None:
    below = acme.below("Acme Department")
    acme.certificates_by_name["department"] = below.certificate
    await house.open(MINE)
    await house.trust(acme)
    file = below.client(tmp_path, "carol")
    carol = await house.connect(authority, file)
    assert await is_served(carol)
    context = client_tls(authority, file)
    first = await asyncio.to_thread(_shake_hands, house.ports[MINE], context, None)
    resumed = await asyncio.to_thread(_shake_hands, house.ports[MINE], context, first.session)
    assert resumed.is_reused
    await house.trust(acme, crl=acme.revoked("department"))
    assert await carol.is_closed()
    assert await is_refused(house, authority, file)


async def test_another_authority_cuts_off_whom_it_did_not_sign(
    house: House, authority: Path, acme: Authority, tmp_path: Path
) -> None:
    other = Authority.make("Other CA")
    renewed = Authority.make("Acme CA", acme.key)
    await house.open(MINE)
    await house.trust(acme)
    file = acme.client(tmp_path, "alice")
    alice = await house.connect(authority, file)
    assert await is_served(alice)
    await house.trust(renewed, other)  # the same key, another certificate: it still signed alice's
    assert await is_served(alice)
    await house.trust(other)
    assert await alice.is_closed()
    assert await is_refused(house, authority, file)
    await house.put(None)
    assert await is_refused(house, authority, other.client(tmp_path, "bob"))


async def test_an_intermediate_alone_may_be_the_authority(
    house: House, authority: Path, acme: Authority, tmp_path: Path
) -> None:
    below = acme.below("Acme Department")
    await house.open(MINE)
    await house.trust(below)
    assert await is_served(await house.connect(authority, below.client(tmp_path, "carol")))
    assert await is_refused(house, authority, acme.client(tmp_path, "alice"))


async def test_a_user_by_certificate_needs_no_document_and_a_disabled_one_keeps_it_out(
    house: House, authority: Path, acme: Authority, tmp_path: Path
) -> None:
    """A deleted user has lost its passwords, and nothing else, which is the behaviour of Apache Kafka."""
    await house.open(MINE)
    await house.trust(acme)
    file = acme.client(tmp_path, "alice")
    alice = await house.connect(authority, file)
    assert await is_served(alice)
    await house.put_user(replace(user("alice"), disabled=True), "alice")
    assert await alice.is_closed()
    assert await is_refused(house, authority, file)
    await house.put_user(None, "alice")
    assert await is_served(await house.connect(authority, file))


async def test_subjects_that_name_nobody_are_refused(
    house: House, authority: Path, acme: Authority, tmp_path: Path
) -> None:
    await house.open(MINE, rules="RULE:^CN=everybody$/*/, RULE:^CN=nobody$/ANONYMOUS/, RULE:^CN=(a+)$/$1/")
    await house.trust(acme)
    for name in ("everybody", "nobody", "no-rule", "a\nb", "a" * 300):
        file = acme.client(tmp_path, "who", name_of_any(name))
        assert await is_refused(house, authority, file), name
    assert await is_served(await house.connect(authority, acme.client(tmp_path, "aaa")))
    assert house.users() == ["aaa"]


def name_of_any(name: str) -> Any:
    """Returns a name longer than the standard allows."""
    with warnings.catch_warnings(action="ignore"):
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name, _validate=False)])


async def test_a_subject_of_sixty_kilobytes_is_refused(
    house: House, authority: Path, acme: Authority, tmp_path: Path
) -> None:
    await house.open(MINE, rules="RULE:^(.*?=)*(.*)$/$2/, DEFAULT")
    await house.trust(acme)
    parts = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, f"{number:04d}" + "x" * 56) for number in range(900)]
    file = acme.client(tmp_path, "huge", x509.Name(parts))
    assert len(acme.certificates_by_name["huge"].subject.public_bytes()) > 60_000
    assert await is_refused(house, authority, file)
    assert await is_served(await house.connect(authority, acme.client(tmp_path, "bob")))


async def test_a_chain_of_too_many_certificates_is_refused(
    house: House, authority: Path, acme: Authority, tmp_path: Path
) -> None:
    await house.open(MINE)
    await house.trust(acme)
    signer = acme
    for number in range(CLIENT_CHAIN_MAX - 2):
        signer = signer.below(f"Level {number}")
    assert await is_served(await house.connect(authority, signer.client(tmp_path, "just")))
    assert await is_refused(house, authority, signer.below("One more").client(tmp_path, "beyond"))


async def test_the_longest_list_is_in_force(house: House, authority: Path, acme: Authority, tmp_path: Path) -> None:
    await house.open(MINE)
    await house.trust(acme)
    alice = await house.connect(authority, acme.client(tmp_path, "alice"))
    assert await is_served(alice)
    crl = acme.revoked("alice", serials=range(2**150, 2**150 + REVOKED_MAX - 1))
    await house.trust(acme, crl=crl)
    assert await alice.is_closed()


async def test_an_uploaded_certificate_is_shown_and_taken_up_without_a_cut(
    house: House, authority: Path, acme: Authority, tmp_path: Path
) -> None:
    await house.open(MINE, "tls")
    before = await house.broker.client(house.ports[MINE], tls=client_tls(authority, None))
    assert await is_served(before)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "ca.pem").write_text(acme.pem)
    password = (authority / ROUTE_KEYS_FILE).read_bytes()
    for _ in range(2):
        made = checks.server_certificate(*acme.server("kafka.example", HOST), password, NOW)
        assert "ENCRYPTED" in made.encrypted_key_pem
        await house.put(CertificatesDocument(certificate_pem=made.pem, private_key_pem=made.encrypted_key_pem))
        context = ssl.create_default_context(cafile=tmp_path / "own" / "ca.pem")
        context.check_hostname = False
        client = await house.broker.client(house.ports[MINE], tls=context)
        assert await is_served(client)
        shown = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert ssl.DER_cert_to_PEM_cert(shown).strip() == made.pem.strip()
    assert await is_served(before)
    await house.put(None)
    assert await is_served(await house.broker.client(house.ports[MINE], tls=client_tls(authority, None)))


async def test_a_broker_that_cannot_read_an_uploaded_key_says_so(
    tmp_path: Path, authority: Path, acme: Authority
) -> None:
    certificate = tmp_path / "elsewhere" / "broker.pem"
    certificate.parent.mkdir()
    certificate.write_bytes((authority / "broker.pem").read_bytes())
    made = checks.server_certificate(*acme.server("kafka.example"), b"another", NOW)
    async with InProcessBroker(tmp_path / "broker", certificate=certificate) as running:
        house = House(running)
        await house.open(MINE, "tls")
        await house.put(CertificatesDocument(certificate_pem=made.pem, private_key_pem=made.encrypted_key_pem))
        acks = running.broker.tenant_listeners
        await running.until(lambda: "route_keys.key" in acks._unsupported.get(MINE, ""))
