"""The probe of an upstream, against a broker with sign-in and TLS, and the login of a gateway there."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from brokers.contract.upstream import UpstreamSettings
from brokers.dataplane import upstream_probe
from tenants.errors import Invalid
from tests.component.gateway.test_clients import create
from tests.component.gateway.test_cluster_gateway import config_of, produce
from tests.testkit.engine import HOST, EngineCluster
from tests.testkit.gateway import UPSTREAM_INSTANCE
from tests.testkit.ports import unused_port
from tests.testkit.tls import make_certificate
from tests.testkit.users import alter_users, user_addition

OPEN_INSTANCE, USER, PASSWORD = "ins-openopen", "gateway", "of-the-gateway"
LIMITED_USER = "limited"


class Secured(NamedTuple):
    """Addresses of a broker with TLS and sign-in, and without either; and its authority."""

    bootstrap: str
    open_bootstrap: str
    authority: str


@pytest.fixture(scope="module")
def secured(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    certificate = make_certificate(folder / "tls")
    with EngineCluster(zookeeper_address, folder / "brokers", certificate=certificate) as cluster:
        instance = cluster.create_instance(UPSTREAM_INSTANCE, security="sasl_tls", allow_everyone_if_no_acl=False)
        alter_users(
            cluster,
            instance,
            user_addition(USER, PASSWORD, instance_id=UPSTREAM_INSTANCE, superuser=1),
            user_addition(LIMITED_USER, PASSWORD, instance_id=UPSTREAM_INSTANCE),
        )
        is_open = cluster.create_instance(OPEN_INSTANCE)
        yield Secured(instance.bootstrap, is_open.bootstrap, (folder / "tls" / "ca.pem").read_text())


def login(secured: Secured, **fields: str) -> UpstreamSettings:
    values = {
        "bootstrap_servers": secured.bootstrap, "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN",
        "username": USER, "password": PASSWORD, "ca_pem": secured.authority,
    }  # fmt: skip
    return UpstreamSettings(**(values | fields))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_an_upstream_that_accepts_the_login_is_described(secured: Secured, mechanism: str) -> None:
    probed = upstream_probe.probe(login(secured, sasl_mechanism=mechanism))
    assert [broker.id for broker in probed.brokers] == [1]
    assert f"{probed.brokers[0].host}:{probed.brokers[0].port}" == secured.bootstrap
    assert probed.cluster_id


@pytest.mark.parametrize(
    ("fields", "pointer", "code"),
    [
        ({"password": "another"}, "/backend/password", "wrong_credentials"),
        ({"password": "another", "sasl_mechanism": "SCRAM-SHA-512"}, "/backend/password", "wrong_credentials"),
        ({"ca_pem": ""}, "/backend/ca_pem", "tls_authority"),
        ({"ca_pem": "nothing"}, "/backend/ca_pem", "invalid_pem"),
        ({"client_certificate": "nothing"}, "/backend/client_certificate", "invalid_pem"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "/backend/security_protocol", "not_kafka"),
    ],
)
def test_a_refusal_names_the_wrong_field(secured: Secured, fields: dict[str, str], pointer: str, code: str) -> None:
    with pytest.raises(Invalid) as refusal:
        upstream_probe.probe(login(secured, **fields))
    (error,) = refusal.value.errors
    assert (error.pointer, error.code) == (pointer, code)
    assert PASSWORD not in str(refusal.value)


def test_a_user_who_may_not_know_the_sizes_of_logs_is_refused(secured: Secured) -> None:
    with pytest.raises(Invalid) as refusal:
        upstream_probe.probe(login(secured, username=LIMITED_USER))
    assert [(error.pointer, error.code) for error in refusal.value.errors] == [("/backend/password", "not_authorized")]


def test_a_server_without_tls_or_that_does_not_listen_is_named(secured: Secured) -> None:
    for servers, codes in (
        (secured.open_bootstrap, {"tls_failed", "unreachable"}),
        (f"{HOST}:{unused_port()}", {"unreachable"}),
    ):
        with pytest.raises(Invalid) as refusal:
            upstream_probe.probe(login(secured, bootstrap_servers=servers))
        assert refusal.value.errors[0].code in codes
        assert servers in refusal.value.detail


def test_a_later_server_is_asked_if_the_first_cannot_be_reached(secured: Secured) -> None:
    servers = f"{HOST}:{unused_port()},{secured.bootstrap}"
    assert upstream_probe.probe(login(secured, bootstrap_servers=servers)).brokers


def test_a_server_that_never_answers_keeps_the_caller_for_some_seconds_only() -> None:
    with socket.create_server((HOST, 0)) as silent:
        address = f"{HOST}:{silent.getsockname()[1]}"
        began_s = time.monotonic()
        with pytest.raises(Invalid):
            upstream_probe.probe(UpstreamSettings(bootstrap_servers=",".join([address] * 4)))
        assert time.monotonic() - began_s < upstream_probe.UPSTREAM_PROBE_S + 1


def test_a_server_that_sends_a_byte_now_and_then_gives_its_thread_back() -> None:
    """A thread that such a server kept would be lost for all later probes."""
    with socket.create_server((HOST, 0)) as listener:
        ended = threading.Event()

        def drip() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall((1_000).to_bytes(4, "big"))
                while not ended.wait(0.2):
                    try:
                        peer.sendall(b"x")
                    except OSError:
                        ended.set()

        server = threading.Thread(target=drip)
        server.start()
        try:
            began_s = time.monotonic()
            address = (HOST, listener.getsockname()[1])
            upstream = UpstreamSettings(bootstrap_servers=f"{HOST}:{address[1]}")
            with pytest.raises(Invalid):
                upstream_probe._probe_first_reachable([address], upstream, None, began_s + 1)
            assert time.monotonic() - began_s < upstream_probe.UPSTREAM_PROBE_SERVER_S
        finally:
            ended.set()
            server.join()


def test_an_upstream_of_an_earlier_version_is_refused(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(upstream_probe.gateway_calls.FORWARDED, 0, 99)
    with pytest.raises(Invalid) as refusal:
        upstream_probe.probe(login(secured))
    assert refusal.value.errors[0].code == "too_old"


def test_a_gateway_signs_in_at_its_upstream_by_scram_and_tls(
    secured: Secured, zookeeper_address: str, tmp_path: Path
) -> None:
    upstream = login(secured, sasl_mechanism="SCRAM-SHA-512")
    with EngineCluster(zookeeper_address, tmp_path / "gateways", upstream=upstream) as gateways:
        config = config_of(gateways.create_instance("ins-aaaaaaaa"))
        produce(config, create(AdminClient(config), "secured", partitions=1), 10)
    log = (tmp_path / "gateways" / "broker-1" / "broker.log").read_text()
    assert PASSWORD not in log


def test_a_gateway_whose_login_is_refused_says_so_and_ends(
    secured: Secured, zookeeper_address: str, tmp_path: Path
) -> None:
    upstream = login(secured, password="another", sasl_mechanism="SCRAM-SHA-256")
    gateway = EngineCluster(zookeeper_address, tmp_path / "gateways", upstream=upstream).brokers[0]
    gateway.start()
    assert gateway.process is not None
    assert gateway.process.wait(60) == 2
    assert "SASL_AUTHENTICATE" in gateway.log_tail()
