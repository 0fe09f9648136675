"""ACLs of the nodes in ZooKeeper."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from kazoo.security import make_digest_acl_credential

from brokers.contract import paths
from brokers.contract.zookeeper_access import (
    ADMIN,
    ALL,
    CHANGE,
    CREATE,
    DELETE,
    READ,
    WRITE,
    Credentials,
    TreeAccess,
    read_credentials,
)
from config.environment import ensure_secret

ACCESS = TreeAccess(broker="broker:b", control="control:c")


def rights(path: str) -> tuple[int, int]:
    """Return the permissions that brokers and the control plane have on `path`."""
    brokers, control = ACCESS.acl(path)
    assert (brokers.digest, control.digest) == ("broker:b", "control:c")
    return brokers.permissions, control.permissions


def test_a_digest_is_what_zookeeper_makes_of_it() -> None:
    assert Credentials("broker", "pass").digest == make_digest_acl_credential("broker", "pass")


@pytest.mark.parametrize(
    "path", ["/controller", "/brokers/topics/ins-1.t/partitions/0/state", "/config/changes", "/consumers"]
)
def test_brokers_change_what_is_theirs_and_the_control_plane_reads_it(path: str) -> None:
    assert rights(path) == (CHANGE, READ | ADMIN)


def test_promises_to_tenants_are_written_by_the_control_plane_alone() -> None:
    brokers, control = rights(paths.instance("ins-1"))
    assert not brokers & (WRITE | DELETE)
    assert control == ALL
    assert rights(paths.INSTANCES)[0] == READ
    assert rights(paths.instance_port(1, 19_000)) == (READ, ALL)


def test_client_certificate_settings_are_written_by_the_control_plane_alone() -> None:
    for path in (paths.instance_certificates("ins-a"), paths.instance_route_certificates("ins-a", "secure")):
        brokers, control = ACCESS.acl(path)
        assert (brokers.permissions, control.permissions) == (READ, ALL)


def test_brokers_keep_the_topics_of_an_instance_and_say_what_they_made_of_it() -> None:
    assert rights(paths.instance("ins-1"))[0] & CREATE
    assert rights(paths.instance_topic("ins-1", "ins-1.t")) == (CHANGE, ALL)
    assert rights(paths.instance_ack("ins-1", 1)) == (CHANGE, ALL)
    assert rights(paths.CHANGE_PREFIX) == (CHANGE, ALL)
    assert rights(f"{paths.CREATIONS}/ins-1") == (CHANGE, ALL)


def test_brokers_elect_the_flow_master() -> None:
    assert rights(paths.FLOW_MASTER) == rights(paths.FLOW_MASTER_EPOCH) == (CHANGE, ALL)


def test_users_and_acls_of_an_instance_are_the_brokers_to_change() -> None:
    for path in (paths.instance_users("ins-1"), paths.instance_user("ins-1", "al%2Fice"), paths.instance_acls("ins-1")):
        assert rights(path) == (CHANGE, ALL)


def test_oauth_settings_are_written_by_the_control_plane_and_key_requests_by_brokers() -> None:
    for path in (paths.instance_oauth("ins-1"), paths.instance_oauth_node("ins-1", "configuration")):
        assert rights(path) == (READ, ALL)
    for path in (paths.KEY_REQUESTS, paths.key_request("ins-1")):
        assert rights(path) == (CHANGE, ALL)


def test_quotas_of_an_instance_that_is_gone_are_removed_by_the_control_plane() -> None:
    for path in ("/config/users", "/config/users/ins-1.a/clients", "/config/clients", "/config/ips/ins-1.a"):
        assert rights(path)[1] & DELETE
    assert not rights("/config/topics")[1] & DELETE


@pytest.mark.parametrize("path", [*paths.PERSISTENT_AT_START, "", paths.instance("ins-1"), paths.topic("ins-1.t")])
def test_brokers_never_change_access_lists_and_both_read_everything(path: str) -> None:
    brokers, control = rights(path)
    assert not brokers & ADMIN
    assert brokers & control & READ


def test_a_whole_path_has_the_access_list_of_its_cluster() -> None:
    assert ACCESS.absolute_acl("/penstock/cl-1/controller") == ACCESS.acl("/controller")
    assert ACCESS.absolute_acl("/penstock/cl-1") == ACCESS.acl("")
    brokers, control = ACCESS.absolute_acl("/penstock")
    assert brokers.permissions == READ | CREATE
    assert control.permissions == READ | CREATE | ADMIN


@pytest.mark.parametrize("text", ["", "broker", "broker:", ":pass", "a:b:c"])
def test_a_file_without_credentials_is_said(text: str, tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text(text)
    with pytest.raises(ValueError, match="does not have user:password"):
        read_credentials(file)


def test_a_generated_secret_is_an_identity_for_its_owner_alone(tmp_path: Path) -> None:
    file = ensure_secret(tmp_path, "zookeeper_broker", prefix="broker:")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_credentials(file).user == "broker"
    assert len(read_credentials(file).password) >= 64
    assert read_credentials(ensure_secret(tmp_path, "zookeeper_broker", prefix="broker:")) == read_credentials(file)
