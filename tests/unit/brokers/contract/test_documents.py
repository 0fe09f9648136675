"""Documents in ZooKeeper: encoding and decoding, the shape that the specification gives, and documents of earlier and
later versions (ZK-3).
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.contract import documents, paths
from brokers.contract.acls import AclDocument, AclEntry, ResourcePattern
from brokers.contract.certificates import CertificatesDocument
from brokers.contract.documents import (
    BrokerDocument,
    InstanceAck,
    InstanceDocument,
    InstanceSettings,
    InstanceTopicDocument,
    PartitionStateDocument,
    TopicDocument,
)
from brokers.contract.process import BrokerProcessSettings
from brokers.contract.routes import SECURITIES, RouteDocument, first_plaintext_ports
from brokers.contract.usage import UsageEvent
from brokers.contract.users import SCRAM_SHA_256, SCRAM_SHA_512, Secret, UserDocument, Verifier
from instances.routes.kinds import CIDRS_MAX, ROUTE_NAME_CHARS_MAX, ROUTES_MAX

ids = st.integers(0, 2**31 - 1)
texts = st.text(max_size=30)
rates = st.integers(0, 2**63 - 1)
routes = st.builds(
    RouteDocument,
    name=texts,
    security=st.sampled_from(SECURITIES),
    ports=st.dictionaries(ids, ids, max_size=3),
    endpoints=st.dictionaries(ids, texts, max_size=3),
    allow_list=st.lists(texts, max_size=3).map(tuple),
    connections_max=st.none() | ids,
    proxies=st.lists(texts, max_size=3).map(tuple),
)
samples = st.one_of(
    st.builds(BrokerDocument, host=texts, port=ids, admin_port=ids, timestamp_ms=rates, rack=st.none() | texts),
    st.builds(
        InstanceDocument,
        generation=ids,
        produce_bps=rates,
        consume_bps=rates,
        capacity_bytes=rates,
        state=st.sampled_from(["active", "frozen", "deleting"]),
        endpoints=st.dictionaries(ids, texts, max_size=3),
        ports=st.dictionaries(ids, ids, max_size=3),
        settings=st.builds(
            InstanceSettings,
            auto_create_topics=st.booleans(),
            default_partitions=ids,
            default_replication_factor=st.integers(-1, 5),
        ),
        vpc=st.none() | texts,
        partitions_max=st.none() | ids,
        message_bytes_max=st.none() | ids,
        leaving=st.lists(ids, max_size=3).map(tuple),
        tenant_id=st.none() | texts,
        routes=st.lists(routes, max_size=5).map(tuple),
    ),
    st.builds(
        InstanceAck,
        generation=ids,
        port=ids,
        listening=st.booleans(),
        error=st.none() | texts,
        not_open=st.lists(texts, max_size=3).map(tuple),
        unable=st.none() | texts,
    ),
    st.builds(
        InstanceTopicDocument,
        name=texts,
        produce_ips=st.lists(texts, max_size=3).map(tuple),
        consume_ips=st.lists(texts, max_size=3).map(tuple),
        administer_ips=st.lists(texts, max_size=3).map(tuple),
    ),
    st.builds(
        TopicDocument,
        topic_id=texts,
        assignment=st.dictionaries(ids, st.lists(ids, max_size=3).map(tuple), max_size=3),
    ),
    st.builds(
        PartitionStateDocument,
        leader=st.integers(-1, 5),
        leader_epoch=ids,
        controller_epoch=ids,
        isr=st.lists(ids, max_size=3).map(tuple),
    ),
    st.builds(
        UserDocument,
        name=texts,
        created_at_ms=rates,
        superuser=st.booleans(),
        disabled=st.booleans(),
        expires_at_ms=st.none() | rates,
        secrets=st.lists(
            st.builds(
                Secret,
                id=texts,
                created_at_ms=rates,
                verifiers=st.lists(
                    st.builds(
                        Verifier,
                        mechanism=st.sampled_from([SCRAM_SHA_256, SCRAM_SHA_512]),
                        iterations=ids,
                        salt=st.binary(max_size=20),
                        stored_key=st.binary(max_size=64),
                        server_key=st.binary(max_size=64),
                    ),
                    max_size=2,
                ).map(tuple),
            ),
            max_size=2,
        ).map(tuple),
    ),
    st.builds(
        AclDocument,
        pattern=st.builds(ResourcePattern),
        entries=st.frozensets(st.builds(AclEntry), max_size=4),
    ),
)
events = st.builds(
    UsageEvent,
    broker_id=ids,
    broker_epoch=rates,
    sequence=rates,
    at_ms=rates,
    instance_id=texts,
    topic=texts,
    user=texts,
    client_id=texts,
    direction=st.sampled_from(["produce", "consume"]),
    bytes=rates,
    requests=rates,
)


@given(samples | events)
def test_every_document_comes_back_as_it_was(document: BrokerDocument) -> None:
    assert type(document).from_json(document.to_json()) == document


@given(samples)
def test_unknown_keys_are_ignored(document: BrokerDocument) -> None:
    """ZK-3: a later version may add keys."""
    body = json.loads(document.to_json())
    body["added_later"] = {"x": 1}
    if isinstance(body.get("settings"), dict):
        body["settings"]["added_later"] = 1
    assert type(document).from_json(json.dumps(body).encode()) == document


def test_missing_optional_keys_are_defaulted() -> None:
    """ZK-3: an earlier version wrote fewer keys."""
    instance = InstanceDocument.from_json(b'{"version":1,"produce_bps":1,"consume_bps":2,"capacity":3}')
    assert (instance.state, instance.ports, instance.settings, instance.partitions_max) == (
        "active",
        {},
        InstanceSettings(),
        None,
    )
    assert instance.tenant_id is None and instance.tenant_of("ins-a") == "ins-a", "it is its own tenant"
    assert replace(instance, tenant_id="ten-a").tenant_of("ins-a") == "ten-a"
    assert b"tenant_id" not in instance.to_json()
    assert BrokerDocument.from_json(b'{"host":"h","port":1}').rack is None
    assert TopicDocument.from_json(b'{"version":1,"partitions":{"0":[1]}}').topic_id == ""
    assert not InstanceTopicDocument.from_json(b'{"name":"orders"}').has_content


def test_a_broker_registers_in_kafkas_shape() -> None:
    """ZK-6."""
    body = json.loads(BrokerDocument(host="h", port=9, admin_port=8, timestamp_ms=7).to_json())
    assert body["version"] == 5 and body["endpoints"] == ["INTERNAL://h:9"] and body["timestamp"] == "7"
    assert body["listener_security_protocol_map"] == {"INTERNAL": "SASL_PLAINTEXT"}


def test_topics_and_states_have_kafkas_shape() -> None:
    """ZK-10, ZK-12."""
    assert json.loads(TopicDocument(topic_id="x", assignment={0: (1, 2)}).to_json()) == {
        "version": 3,
        "topic_id": "x",
        "partitions": {"0": [1, 2]},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    assert json.loads(PartitionStateDocument(leader=-1, leader_epoch=3, controller_epoch=2, isr=(1,)).to_json()) == {
        "version": 1,
        "leader": -1,
        "leader_epoch": 3,
        "controller_epoch": 2,
        "isr": [1],
    }


def test_change_nodes_name_what_to_read_again() -> None:
    """ZK-15, CKA-40: a change node holds the single path of the specification or a list of paths."""
    assert documents.change_from_json(documents.change_to_json(["topics/a", "instances/b"])) == [
        "topics/a",
        "instances/b",
    ]
    assert documents.change_from_json(b'{"version":1,"path":"instances/b"}') == ["instances/b"]
    named = documents.change_to_json(["topics/a", "topics/b", "topics/c"], {"topics/a": [3, 10], "topics/c": []})
    assert documents.change_from_json(named) == ["topics/a/", "topics/a/3", "topics/a/10", "topics/b", "topics/c/"]
    assert documents.config_change_from_json(documents.config_change_to_json("users/a")) == "users/a"
    assert documents.config_change_from_json(b'{"version":1,"entity_type":"topics","entity_name":"t"}') == "topics/t"


def test_the_controller_node_names_its_broker() -> None:
    """ZK-8."""
    raw = documents.controller_to_json(3, 5)
    assert documents.controller_from_json(raw) == 3
    assert json.loads(raw) == {"version": 2, "brokerid": 3, "timestamp": "5", "kraftControllerEpoch": -1}


def test_a_usage_event_of_an_unknown_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version"):
        UsageEvent.from_json(b"[2,1]")


def test_process_settings_come_back_from_their_file(tmp_path: Path) -> None:
    settings = BrokerProcessSettings(
        broker_id=1,
        cluster_id="cl",
        zookeeper="127.0.0.1:1/penstock/cl",
        data_dirs=("/d1", "/d2"),
        bind_host="127.0.0.1",
        internal_host="127.0.0.1",
        internal_port=2,
        admin_port=3,
        control_secret_file="/secret",
        overrides={"log.segment.bytes": "1"},
    )
    settings.write(tmp_path / "settings.json")
    assert BrokerProcessSettings.read(tmp_path / "settings.json") == settings


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("CN=a,O=b", "CN%3Da%2CO%3Db"),
        ("a b", "a%20b"),
        ("<default>", "%3Cdefault%3E"),
        ("用户", "%E7%94%A8%E6%88%B7"),
        ("*", "%2A"),
        ("~", "%7E"),
        ("az-AZ_09.", "az-AZ_09."),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("...", "..."),
        ("%2E", "%252E"),
    ],
)
def test_names_are_sanitised_as_kafka_does(name: str, node: str) -> None:
    """QUO-6."""
    assert paths.sanitise(name) == node
    assert paths.desanitise(node) == name


names = st.text(min_size=1, max_size=20).filter(lambda text: text.encode("utf-8", "ignore").decode() == text)


@given(names)
def test_a_sanitised_name_is_one_segment_of_a_path_and_comes_back(name: str) -> None:
    assert "/" not in paths.sanitise(name) and "<" not in paths.sanitise(name)
    assert paths.sanitise(name) not in (".", "..")
    assert paths.desanitise(paths.sanitise(name)) == name


@given(st.booleans(), st.none() | names, st.booleans(), st.none() | names)
def test_a_quota_entity_comes_back_from_its_path(
    has_user: bool, user: str | None, has_client: bool, client: str | None
) -> None:
    if not has_user and not has_client:
        with pytest.raises(ValueError, match="quota entity"):
            paths.quota_entity("ins-7k2m9qxa", user, client, has_user=False, has_client=False)
        return
    path = paths.quota_entity("ins-7k2m9qxa", user, client, has_user=has_user, has_client=has_client)
    assert paths.quota_entity_parts(path) == (
        "ins-7k2m9qxa",
        (user,) if has_user else None,
        (client,) if has_client else None,
    )


@given(st.none() | names)
def test_a_limit_for_addresses_comes_back_from_its_path(address: str | None) -> None:
    path = paths.ip_quota_entity("ins-7k2m9qxa", address)
    assert paths.ip_quota_entity_parts(path) == ("ins-7k2m9qxa", address)


def test_an_address_is_one_segment_of_a_path() -> None:
    assert paths.ip_quota_entity("ins-7k2m9qxa", "2001:db8::1") == "ips/ins-7k2m9qxa.2001%3Adb8%3A%3A1"
    assert paths.ip_quota_entity("ins-7k2m9qxa", None) == "ips/ins-7k2m9qxa.<default>"


@pytest.mark.parametrize("path", ["", "ips", "ips/", "ips/x", "ips/.x", "ips/ins-a.", "users/ins-a.x", "ips/ins-a.x/y"])
def test_an_invalid_address_limit_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="quota entity"):
        paths.ip_quota_entity_parts(path)


def test_a_user_called_default_is_not_the_default() -> None:
    real = paths.quota_entity("ins-7k2m9qxa", "<default>", None, has_user=True, has_client=False)
    default = paths.quota_entity("ins-7k2m9qxa", None, None, has_user=True, has_client=False)
    assert real == "users/ins-7k2m9qxa.%3Cdefault%3E" != default == "users/ins-7k2m9qxa.<default>"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "users",
        "users/",
        "users/alice",
        "users/.alice",
        "topics/ins-a.x",
        "clients/ins-a.x/users/ins-a.y",
        "users/ins-a.x/clients/ins-b.y",
        "users/ins-a.x/clients",
    ],
)
def test_an_invalid_instance_quota_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="quota entity"):
        paths.quota_entity_parts(path)


def test_everything_a_broker_counts_on_lies_below_the_chroot() -> None:
    """ZK-2, CKA-46."""
    assert all(path.startswith("/") for path in paths.PERSISTENT_AT_START)
    assert paths.chroot("cl-1") == "/penstock/cl-1"
    assert paths.partition_state("t", 3) == "/brokers/topics/t/partitions/3/state"


def test_a_moving_partition_names_who_comes_and_who_goes() -> None:
    document = TopicDocument(topic_id="x", assignment={0: (3, 1), 1: (1,)}, adding={0: (3,)}, removing={0: (1,)})
    body = json.loads(document.to_json())
    assert body["adding_replicas"] == {"0": [3]} and body["removing_replicas"] == {"0": [1]}
    assert TopicDocument.from_json(document.to_json()) == document


def test_the_lives_of_in_sync_members_are_written_only_when_known() -> None:
    known = PartitionStateDocument(leader=1, leader_epoch=3, controller_epoch=2, isr=(1, 2), isr_broker_epochs=(70, 80))
    assert json.loads(known.to_json())["isr_broker_epochs"] == [70, 80]
    assert PartitionStateDocument.from_json(known.to_json()) == known


def test_a_broker_says_that_it_stops_and_nothing_while_it_does_not() -> None:
    running = BrokerDocument(host="h", port=1, admin_port=2, timestamp_ms=3)
    stopping = replace(running, stopping=True)
    assert "stopping" not in json.loads(running.to_json())
    assert BrokerDocument.from_json(stopping.to_json()) == stopping
    assert BrokerDocument.from_json(running.to_json()) == running


def test_a_user_document_without_the_disabled_flag_is_no_user() -> None:
    with pytest.raises(KeyError):
        UserDocument.from_json(b'{"name":"alice","created_at_ms":1,"expires_at_ms":null}')


def test_a_verifier_shows_neither_key_nor_salt() -> None:
    verifier = Verifier(mechanism=SCRAM_SHA_256, iterations=4096, salt=b"s", stored_key=b"k", server_key=b"v")
    assert repr(verifier) == "Verifier(SCRAM-SHA-256)"


@given(st.builds(ResourcePattern))
def test_the_node_of_a_pattern_is_its_own(pattern: ResourcePattern) -> None:
    """Sanitising leaves no separator in the resource name, so that two patterns never share a node name."""
    kind, how, name = pattern.node_name.split(":")
    assert (int(kind), int(how), paths.desanitise(name)) == (pattern.resource_type, pattern.pattern_type, pattern.name)
    assert "/" not in pattern.node_name


def instance_document(**fields: Any) -> InstanceDocument:
    return InstanceDocument(generation=1, produce_bps=1, consume_bps=1, capacity_bytes=1, **fields)


def test_a_document_without_routes_means_one_over_its_own_ports() -> None:
    """Control planes of earlier releases wrote documents without routes."""
    old = instance_document(ports={1: 19_000}, endpoints={1: "kafka.example:19000"})
    (route,) = InstanceDocument.from_json(old.to_json()).effective_routes
    assert (route.name, route.security, route.ports, route.endpoints) == (
        "default", "plaintext", {1: 19_000}, {1: "kafka.example:19000"},
    )  # fmt: skip
    assert b"routes" not in old.to_json()


def test_a_broker_that_knows_no_routes_gets_no_port_of_a_protected_one() -> None:
    """A broker of an earlier release would open such a port to everybody."""
    protected = RouteDocument(name="a", security="sasl_plaintext", ports={1: 1})
    listed = RouteDocument(name="b", security="plaintext", ports={1: 2}, allow_list=("10.0.0.0/8",))
    free = RouteDocument(name="c", security="plaintext", ports={1: 3})
    assert first_plaintext_ports((protected, listed)) == {}
    assert first_plaintext_ports((protected, listed, free)) == {1: 3}


@pytest.mark.parametrize("lost", ["security", "allow_list"])
def test_a_route_that_does_not_say_who_may_come_is_no_route(lost: str) -> None:
    body = json.loads(instance_document(routes=(RouteDocument(name="a", security="tls", ports={1: 1}),)).to_json())
    del body["routes"][0][lost]
    with pytest.raises(KeyError):
        InstanceDocument.from_json(json.dumps(body).encode())


def test_the_longest_document_of_an_instance_stays_far_below_what_zookeeper_takes() -> None:
    cidrs = tuple(f"2001:db8:1234:5678:9abc:def0:1234:{number:x}/128" for number in range(CIDRS_MAX))
    brokers = range(100)
    routes = tuple(
        RouteDocument(
            name=f"{number}" * ROUTE_NAME_CHARS_MAX,
            security="sasl_plaintext",
            ports=dict.fromkeys(brokers, 65_535),
            endpoints=dict.fromkeys(brokers, "h" * 253 + ":65535"),
            allow_list=cidrs,
            connections_max=10**6,
            proxies=cidrs,
        )
        for number in range(ROUTES_MAX)
    )
    assert len(instance_document(routes=routes, endpoints=dict(routes[0].endpoints)).to_json()) < 512 * 1024


def test_a_route_of_a_version_before_names_users_by_certificate_as_they_are() -> None:
    route = RouteDocument(name="a", security="mtls", ports={1: 1}, principal_mapping_rules="RULE:^CN=(.*)$/$1/")
    body = json.loads(instance_document(routes=(route,)).to_json())
    assert InstanceDocument.from_json(json.dumps(body).encode()).routes == (route,)
    del body["routes"][0]["principal_mapping_rules"]
    assert InstanceDocument.from_json(json.dumps(body).encode()).routes[0].principal_mapping_rules == "DEFAULT"


def test_certificates_survive_their_json_and_what_cannot_be_read_revokes_everything() -> None:
    document = CertificatesDocument(client_ca_pem="ca", revoked=bytes(32), certificate_pem="c", private_key_pem="k")
    assert CertificatesDocument.from_json(document.to_json()) == document
    assert "k" not in repr(document).removeprefix("CertificatesDocument(revoked=")
    for broken in ({}, {"revoked": "AAAA"}, {"revoked": "?"}):
        with pytest.raises((ValueError, KeyError)):
            CertificatesDocument.from_json(json.dumps(broken).encode())
