"""Checks of a host by its agent, with findings and advice for operators."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone, translation

from brokers.agent.host_checks import HostChecks, listening_ports
from brokers.contract.version import VERSION
from brokers.models import Host
from brokers.operations import hosts
from brokers.operations.check_texts import shown_checks
from tenants.actors import system_actor
from tests.testkit.api_cases import Api
from tests.testkit.waiting import eventually

pytestmark = pytest.mark.django_db

FIRST, LAST = 26_000, 26_099


@pytest.fixture()
def host(tmp_path: Path) -> Host:
    return hosts.add_host(
        acting=system_actor("tests"), name="kafka-2", advertised_host="127.0.0.2", port_first=FIRST, port_last=LAST,
        data_dirs=[str(tmp_path / "disk" / "new")],
    )  # fmt: skip


@pytest.fixture()
def checks(tmp_path: Path) -> HostChecks:
    return HostChecks(tmp_path)


@pytest.fixture()
def listener() -> Iterator[int]:
    """A port of the range on which another program listens at the host's address."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", 0))
        taken.listen()
        yield taken.getsockname()[1]


def states(found: list[dict[str, Any]]) -> dict[str, str]:
    return {check["name"]: check["state"] for check in found}


def test_a_machine_that_fits_passes(host: Host, checks: HostChecks) -> None:
    checks.check(host)
    host.refresh_from_db()
    assert states(host.checks) == dict.fromkeys(("version", "clock", "address", "ports", "directories"), "passed")
    assert host.agent_version == VERSION
    assert host.checked_at is not None
    assert host.machine["cpus"] > 0
    assert 0 < host.machine["memory_available_bytes"] < host.machine["memory_bytes"]
    assert not any(check.remedy for check in shown_checks(host))


def test_a_port_of_another_program_is_named_and_one_at_another_address_is_not(
    host: Host, checks: HostChecks, listener: int
) -> None:
    assert listener in listening_ports("127.0.0.2")
    assert listener in listening_ports("0.0.0.0")
    assert listener not in listening_ports("127.0.0.3")
    Host.objects.filter(pk=host.pk).update(port_first=listener, port_last=listener)
    host.refresh_from_db()
    host.checks = checks.checks(host)
    (ports,) = (check for check in shown_checks(host) if check.name == "ports")
    assert ports.state == "failed"
    assert str(listener) in ports.fact
    assert "another range" in ports.remedy


def test_a_listener_on_every_address_takes_the_port_everywhere() -> None:
    with socket.socket(socket.AF_INET6) as everywhere:
        everywhere.bind(("::", 0))
        everywhere.listen()
        assert everywhere.getsockname()[1] in listening_ports("127.0.0.9")


def test_an_address_of_another_machine_fails(host: Host, checks: HostChecks) -> None:
    host.bind_host = "203.0.113.7"
    assert states(checks.checks(host))["address"] == "failed"


def test_a_directory_that_cannot_be_used_fails(host: Host, checks: HostChecks, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    host.data_dirs = [str(tmp_path / "file"), str(tmp_path / "file" / "below"), "/proc/none"]
    (found,) = (check for check in checks.checks(host) if check["name"] == "directories")
    assert found["state"] == "failed"
    assert {item["path"] for item in found["data"]["wrong"]} >= {host.data_dirs[0], host.data_dirs[1]}
    assert not list(tmp_path.glob(".penstock-check-*"))


def test_a_database_of_another_version_fails(host: Host, checks: HostChecks) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO django_migrations (app, name, applied) VALUES ('brokers', '9999_later', now())")
    host.checks = checks.checks(host)
    (version,) = (check for check in shown_checks(host) if check.name == "version")
    assert version.state == "failed"
    assert "Install the control plane's version" in version.remedy


def failed_clock(host: Host) -> None:
    found = [{"name": "clock", "state": "failed", "data": {"offset_ms": -5_400}}]
    Host.objects.filter(pk=host.pk).update(checks=found, checked_at=timezone.now(), agent_seen_at=timezone.now())


def test_operators_see_checks_by_rest(host: Host, operator: Api) -> None:
    at = f"/operator/hosts/{host.pk}"
    before = operator.get(at).json()
    assert (before["checks"], before["checked_at"], before["checks_failed"]) == ([], None, False)
    failed_clock(host)
    with translation.override("zh-hans"):
        (check,) = operator.get(at).json()["checks"]
    assert check["name"] == "clock"
    assert "5,400 ms behind" in check["fact"]
    assert "chrony" in check["remedy"]
    assert operator.get("/operator/hosts").json()["items"][0]["checks_failed"] is True


def test_operators_see_checks_in_the_panel(host: Host, panel: Client) -> None:
    at = f"/operator/brokers/host/{host.pk}/change/"
    assert "Its agent checks the machine when it starts" in panel.get(at).content.decode()
    failed_clock(host)
    page = panel.get(at).content.decode()
    assert "5,400 ms behind" in page
    assert "chrony" in page
    assert "Check failed" in panel.get("/operator/brokers/host/").content.decode()


@pytest.mark.parametrize(
    "check", [{}, {"name": "gravity", "state": "passed", "data": {}}, {"name": "clock", "state": "passed"}, "clock"]
)
def test_a_check_of_a_newer_agent_is_left_out(host: Host, check: Any) -> None:
    host.checks = [check]
    assert shown_checks(host) == []


@pytest.mark.django_db(transaction=True)
def test_an_agent_checks_again_when_its_host_is_changed(host: Host, checks: HostChecks) -> None:
    def checked() -> Any:
        return Host.objects.get(pk=host.pk).checked_at

    checks.start_if_due(host, 0.0)
    first = eventually(checked, within_s=20, what="the first check")
    checks.start_if_due(host, 1.0)
    changed = hosts.change_host(acting=system_actor("tests"), host=host, changes={"zone": "east"})
    eventually(lambda: not checks.is_running_check, within_s=20, what="the thread to end")
    assert checked() == first
    checks.start_if_due(changed, 2.0)
    eventually(lambda: checked() != first, within_s=20, what="another check")
    eventually(lambda: not checks.is_running_check, within_s=20, what="the thread to end")
