"""The settings file of a gateway: what is read from it, and what is refused with its reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from brokers.contract import paths
from brokers.engine.cluster.quota_image import QuotaEntity
from brokers.engine.errors import SettingsWrong
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.upstream import settings
from brokers.engine.upstream.versions import REVIEWED, intersection


def instance(**fields: Any) -> dict[str, Any]:
    nodes = [{"node": 1, "port": 19_001, "advertised": "gateway:19001"}]
    return {"id": "ins-aaaaaaaa", "bandwidth_mb_s": 2, "nodes": nodes, **fields}


def written(directory: Path, *instances: dict[str, Any], mode: int = 0o600, **upstream: Any) -> Path:
    file = directory / "gateway.json"
    body = {"upstream": {"bootstrap_servers": "kafka-1:9092,[::1]:9093", **upstream}, "instances": list(instances)}
    file.write_text(json.dumps(body))
    file.chmod(mode)
    return file


def test_an_instance_has_its_users_rights_and_limits(tmp_path: Path) -> None:
    acl = {"resource_type": "topic", "name": "orders", "user": "reader", "operation": "read"}
    quota = {"user": None, "client_id": "app", "producer_byte_rate": 1_000}
    users = [{"name": "reader", "password": "secret"}]
    read = settings.read(written(tmp_path, instance(users=users, acls=[acl], quotas=[quota])))
    assert read.bootstrap == (("kafka-1", 9_092), ("::1", 9_093))
    assert read.nodes == {1}
    (found,) = read.instances
    assert (found.document.produce_bps, found.document.allow_everyone_if_no_acl) == (2_000_000, False)
    user = found.users[paths.sanitise("reader")]
    assert not user.superuser
    assert {verifier.mechanism for verifier in user.secrets[0].verifiers} == {1, 2}
    assert [document.pattern.name for document in found.acls.values()] == ["orders"]
    assert found.quotas == {QuotaEntity(True, None, True, "app"): {"producer_byte_rate": 1_000.0}}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"bandwith": 1}, "unknown keys: bandwith"),
        ({"id": "shop"}, "not an instance id"),
        ({"security": "mtls"}, "security is one of"),
        ({"users": [{"name": "a", "password": ""}]}, "the password of a is empty"),
        ({"acls": [{"resource_type": "thing", "name": "x", "user": "a", "operation": "read"}]}, "not known: 'thing'"),
        ({"quotas": [{"producer_byte_rate": 1}]}, "a quota is of a user"),
        ({"nodes": [{"node": 1, "port": 1}]}, "'advertised' is missing"),
        ({"open": "false"}, "ins-aaaaaaaa: open is true or false"),
        ({"open": 0}, "ins-aaaaaaaa: open is true or false"),
        ({"users": [{"name": "a", "password": "b", "superuser": "false"}]}, "user a: superuser is true or false"),
        ({"allow_list": "192.0.2.0/24"}, "ins-aaaaaaaa: allow_list is a list of"),
        ({"allow_list": ["192.0.2.300"]}, "192.0.2.300"),
        ({"bandwidth_mb_s": float("nan")}, "ins-aaaaaaaa: bandwidth_mb_s is"),
        ({"bandwidth_mb_s": -1}, "ins-aaaaaaaa: bandwidth_mb_s is"),
        ({"quotas": [{"user": "a", "producer_byte_rate": float("nan")}]}, "producer_byte_rate is"),
        ({"quotas": [{"user": 5, "producer_byte_rate": 1}]}, "user is text"),
        ({"acls": [{"resource_type": "topic", "name": 7, "user": "a", "operation": "read"}]}, "name is text"),
        (
            {"acls": [{"resource_type": "topic", "name": "x", "user": "a", "operation": "read", "host": None}]},
            "host is text",
        ),
        ({"users": [{"name": 5, "password": "b"}]}, "name is text"),
    ],
)
def test_a_mistake_is_refused_with_its_reason(tmp_path: Path, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingsWrong, match=reason):
        settings.read(written(tmp_path, instance(**fields)))


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsWrong, match="readable by its owner only"):
        settings.read(written(tmp_path, instance(), mode=0o644))


def test_one_id_stands_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsWrong, match="two instances have one id"):
        settings.read(written(tmp_path, instance(), instance()))


def test_versions_are_those_that_both_know() -> None:
    theirs = {int(ApiKey.PRODUCE): (0, 9), int(ApiKey.FETCH): (13, 17), 999: (0, 1), int(ApiKey.END_TXN): (4, 5)}
    assert intersection(theirs) == {ApiKey.PRODUCE: (REVIEWED[ApiKey.PRODUCE][0], 9), ApiKey.END_TXN: (4, 4)}
