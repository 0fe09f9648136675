"""OAuth configurations from the service to clients of real brokers: published, fetched, refreshed, removed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from django.db import connection
from django.utils import timezone

from brokers import tasks
from brokers.contract import paths
from brokers.contract.oauth import CONFIGURATION, KEY_REQUEST_INTERVAL_MS, OAuthDocument
from brokers.infra import zookeeper
from brokers.infra.locks import exclusive_lock
from brokers.limits import KEY_SETS_PER_TENANT_AND_ROUND_MAX
from brokers.models import Cluster
from brokers.provisioning import oauth
from instances import interfaces, services
from instances.models import Instance, OAuthConfiguration
from instances.oauth.key_sets import KeySetRefused, parse
from instances.oauth.limits import KEY_SET_REFRESH_S, KEY_SET_REQUESTED_REFRESH_S, KEY_SET_RETRY_S
from tenants.actors import Actor, system_actor
from tenants.models import Tenant
from tests.testkit.api_cases import make_tenant
from tests.testkit.engine import EngineCluster
from tests.testkit.fleet import make_fleet, make_running, place, plugged
from tests.testkit.https_server import HttpsServer, https_server
from tests.testkit.oauth import AUDIENCE, ISSUER, Issuer
from tests.testkit.waiting import eventually

pytestmark = pytest.mark.django_db
INSTANCE_ID = "ins-oauth001"
IN_FORCE_S_MAX = 1.0


@pytest.fixture(scope="module")
def engines(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("oauth")) as running:
        running.create_instance(INSTANCE_ID, security="sasl_plaintext")
        yield running


@pytest.fixture()
def fleet(
    engines: EngineCluster, tmp_path: Path, db: None, zookeeper_address: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """Rows of the brokers' cluster."""
    made = make_fleet(tmp_path, brokers=1)
    made.zookeeper = zookeeper_address
    made.save()
    monkeypatch.setattr(Cluster, "chroot", paths.chroot(engines.cluster_id))
    with plugged(interfaces.publish_oauth, lambda _instance_id: None):
        yield made
    zookeeper.close_all()


@pytest.fixture()
def instance(fleet: Cluster) -> Instance:
    return placed(fleet, id=INSTANCE_ID)


@pytest.fixture()
def server(tmp_path: Path, settings: Any) -> Iterator[HttpsServer]:
    with https_server(tmp_path / "https") as running:
        settings.OUTBOUND_PRIVATE_ADDRESSES = (ip_network("127.0.0.0/8"),)
        settings.OUTBOUND_CA_FILE = running.ca_file
        yield running


def placed(fleet: Cluster, tenant: Tenant | None = None, **fields: Any) -> Instance:
    made = make_running(tenant or make_tenant(), **fields)
    place(made, fleet)
    return made


def configure(instance: Instance, **wanted: Any) -> OAuthConfiguration:
    acting: Actor = system_actor("tests", instance.tenant)
    body = {"issuer": ISSUER, "audience": AUDIENCE, "clock_skew_seconds": 0, **wanted}
    return services.configure_oauth(acting=acting, instance=instance, requested=body)


def lets_in(engines: EngineCluster, token: str) -> bool:
    """Tries to sign in once."""
    client = AdminClient({
        "bootstrap.servers": engines.instances[INSTANCE_ID].bootstrap, "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _config: (token, time.time() + 600),
        "reconnect.backoff.ms": 60_000, "reconnect.backoff.max.ms": 60_000,
    })  # fmt: skip
    client.poll(0)
    try:
        client.list_topics(timeout=2)
    except KafkaException:
        return False
    return True


def published(engines: EngineCluster, instance_id: str = INSTANCE_ID) -> OAuthDocument | None:
    path = paths.instance_oauth_node(instance_id, CONFIGURATION)
    return OAuthDocument.from_json(engines.zookeeper.get(path)[0]) if engines.zookeeper.exists(path) else None


def later(seconds: float) -> datetime:
    return timezone.now() + timedelta(seconds=seconds)


def test_a_pinned_key_set_lets_tokens_in_within_a_second_and_keeps_them_out_when_it_is_removed(
    engines: EngineCluster, instance: Instance
) -> None:
    issuer = Issuer()
    token = issuer.token()
    assert not lets_in(engines, token)
    began_s = time.monotonic()
    configure(instance, jwks=issuer.jwks)
    assert oauth.publish(INSTANCE_ID)
    published_s = time.monotonic() - began_s
    eventually(lambda: lets_in(engines, token))
    assert published_s < IN_FORCE_S_MAX
    row = OAuthConfiguration.objects.get()
    assert row.published_revision == row.revision
    assert oauth.publish(INSTANCE_ID), "once more changes nothing"

    services.remove_oauth(acting=system_actor("tests", instance.tenant), instance=instance)
    assert oauth.unpublished_instance_ids() == [INSTANCE_ID]
    assert oauth.publish(INSTANCE_ID)
    assert published(engines) is None
    assert not OAuthConfiguration.objects.exists()
    eventually(lambda: not lets_in(engines, token))


def forget_wishes(engines: EngineCluster) -> None:
    """Removes key requests of other tests."""
    if engines.zookeeper.exists(paths.key_request(INSTANCE_ID)):
        engines.zookeeper.delete(paths.key_request(INSTANCE_ID))


def test_keys_at_an_address_are_fetched_published_and_fetched_again_when_a_token_names_another(
    engines: EngineCluster, instance: Instance, server: HttpsServer
) -> None:
    issuer = Issuer()
    server.answers(issuer.jwks)
    configure(instance, jwks_url=server.url)
    assert oauth.publish(INSTANCE_ID)
    document = published(engines)
    assert document is not None and (document.keys, document.is_fetched) == ((), True)
    assert oauth.run_round(timezone.now()) == 1
    eventually(lambda: lets_in(engines, issuer.token()))
    forget_wishes(engines)
    assert oauth.run_round(later(KEY_SET_REQUESTED_REFRESH_S + 1)) == 0, "nobody asked"

    issuer.rotate("two")
    server.answers(issuer.jwks)

    def is_asked_for() -> bool:
        assert not lets_in(engines, issuer.token())
        return engines.zookeeper.exists(paths.key_request(INSTANCE_ID)) is not None

    # A broker that saw a token before it had the first keys has asked for them; it asks again after the interval.
    eventually(is_asked_for, within_s=2 * KEY_REQUEST_INTERVAL_MS / 1000)
    assert oauth.run_round(later(KEY_SET_REQUESTED_REFRESH_S + 1)) == 1
    assert engines.zookeeper.exists(paths.key_request(INSTANCE_ID)) is None
    eventually(lambda: lets_in(engines, issuer.token()))
    services.remove_oauth(acting=system_actor("tests", instance.tenant), instance=instance)
    oauth.publish(INSTANCE_ID)


def test_a_failed_fetch_leaves_the_keys_in_force_and_says_why(
    engines: EngineCluster, instance: Instance, server: HttpsServer
) -> None:
    issuer = Issuer()
    server.answers(issuer.jwks)
    configure(instance, jwks_url=server.url)
    assert oauth.run_round(timezone.now()) == 1
    for answer, reason in (({"keys": []}, "no key"), ([], "RFC 7517"), ("x" * 70_000, "bytes")):
        server.answers(answer)
        assert oauth.run_round(later(KEY_SET_REFRESH_S * 10)) == 1
        row = OAuthConfiguration.objects.get()
        assert reason in row.fetch_error
        OAuthConfiguration.objects.update(tried_at=None)
    assert [key.id for key in OAuthConfiguration.objects.get().public_keys] == ["one"]
    assert published(engines) is not None


def test_a_document_that_has_gone_is_written_again(engines: EngineCluster, instance: Instance) -> None:
    configure(instance, jwks=Issuer().jwks)
    assert oauth.publish(INSTANCE_ID)
    engines.zookeeper.delete(paths.instance_oauth_node(INSTANCE_ID, CONFIGURATION))
    oauth.run_round(timezone.now())
    assert published(engines) is not None


def test_an_instance_that_is_not_there_yet_waits(fleet: Cluster) -> None:
    waiting = placed(fleet)
    configure(waiting, jwks=Issuer().jwks)
    assert not oauth.publish(waiting.pk)
    assert oauth.unpublished_instance_ids() == [waiting.pk]
    assert not oauth.publish(make_running(make_tenant()).pk)


def test_key_sets_are_fetched_when_they_are_due_new_ones_first_and_no_tenant_fills_a_round(fleet: Cluster) -> None:
    now = timezone.now()
    tenant = make_tenant()
    own = [placed(fleet, tenant) for _ in range(KEY_SETS_PER_TENANT_AND_ROUND_MAX + 2)]
    for each in own:
        configure(each, jwks_url="https://login.example.com/keys")
    other = placed(fleet)
    configure(other, jwks_url="https://login.example.com/keys")
    pinned = placed(fleet)
    configure(pinned, jwks=Issuer().jwks)
    rows = oauth.due_configurations(now, ())
    assert [row.instance_id for row in rows] == [each.pk for each in own[:KEY_SETS_PER_TENANT_AND_ROUND_MAX]] + [
        other.pk
    ]
    OAuthConfiguration.objects.filter(instance__in=own).update(tried_at=now)
    assert [row.instance_id for row in oauth.due_configurations(now, ())] == [other.pk]

    OAuthConfiguration.objects.exclude(instance=other).update(tried_at=now + timedelta(days=1))
    row = OAuthConfiguration.objects.filter(instance=other)
    for error, requested, every_s in (
        ("", (), KEY_SET_REFRESH_S), ("no", (), KEY_SET_RETRY_S), ("", (other.pk,), KEY_SET_REQUESTED_REFRESH_S),
        ("no", (other.pk,), KEY_SET_REQUESTED_REFRESH_S),
    ):  # fmt: skip
        row.update(tried_at=now - timedelta(seconds=every_s - 1), fetch_error=error)
        assert not oauth.due_configurations(now, requested)
        row.update(tried_at=now - timedelta(seconds=every_s))
        assert len(oauth.due_configurations(now, requested)) == 1


def test_two_rounds_do_not_run_at_a_time(fleet: Cluster) -> None:
    outcomes: list[int] = []

    def round_() -> None:
        outcomes.append(oauth.run_round(timezone.now()))
        connection.close()

    configure(placed(fleet), jwks_url="https://login.example.com/keys")
    with exclusive_lock("key sets"):
        other = threading.Thread(target=round_)
        other.start()
        other.join()
    assert outcomes == [0]


def test_a_key_that_a_server_should_not_show_is_left_out(server: HttpsServer) -> None:
    issuer = Issuer()
    leaked = issuer.jwks["keys"][0] | {"kid": "leaked", "d": "AAAA"}
    server.answers({"keys": [leaked, *issuer.jwks["keys"]]})
    keys = oauth.fetch_keys(server.url)
    assert not isinstance(keys, str) and [key.id for key in keys] == ["one"]
    with pytest.raises(KeySetRefused):
        parse(b'{"keys":[]}', is_pinned=False)


def test_the_tasks_do_it(engines: EngineCluster, instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[str] = []
    monkeypatch.setattr(tasks, "close_old_connections", lambda: None)
    monkeypatch.setattr(tasks.keep_key_sets, "delay", lambda: rounds.append("asked"))
    configure(instance, jwks=Issuer().jwks)
    assert tasks.publish_oauth(INSTANCE_ID)
    assert rounds == ["asked"]
    assert tasks.keep_key_sets() == 0
