"""A rolling upgrade under load, by docs/how-to/upgrade.md: from the last release to this tree, the control plane first
and brokers after it, and the brokers back again. Nothing acknowledged is lost, and groups go on.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from config.environment import BASE_DIR
from tests.chaos.verdict import judge_records
from tests.chaos.workload import Workload
from tests.interop.groups import Group, ends_of
from tests.testkit.older_version import older_tree
from tests.testkit.programs import Programs
from tests.testkit.stack import free_port_base
from tests.testkit.tenancy import Caller
from tests.testkit.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(900),
    pytest.mark.long(
        "brokers/contract", "brokers/agent", "brokers/engine/cluster/registration.py",
        "brokers/engine/assembly/storage_capacity.py", "brokers/engine/coordinators/groups/formats.py",
        "tests/testkit/programs.py",
    ),
]  # fmt: skip

ZONES: Final = ("east", "middle", "west")
# The instances' ports of a host, which has a loopback address of its own.
PORTS: Final = 40
PARTITIONS: Final = 6
RECORDS_PER_S: Final = 200
# The shortest session that brokers allow by default.
SESSION_MS: Final = 6_000
MEMBERS: Final = ("confluent-kafka", "confluent-kafka", "aiokafka")
CONTROL_PLANE: Final = ("web", "worker", "pipeline")
WITHIN_S: Final = 120.0
# Records acknowledged between two steps, so that each state of the upgrade serves.
BETWEEN_STEPS: Final = 500
# A leader election and a client's search for the new leader; far below a broker's start.
PAUSE_S_MAX: Final = 20.0


class Fleet:
    """Three hosts with a broker each, in three zones, whose agents run from a chosen tree."""

    def __init__(self, programs: Programs, operator: Caller) -> None:
        self._programs, self._operator = programs, operator
        self.cluster_id = ""
        self._port_first = free_port_base(len(ZONES))

    def form(self, code: Path) -> None:
        """Adds the hosts, starts their agents, and forms a cluster on them."""
        ids = []
        for number, zone in enumerate(ZONES, start=2):
            host = {
                "name": zone, "zone": zone, "advertised_host": f"127.0.0.{number}", "port_first": self._port_first,
                "port_last": self._port_first + PORTS - 1,
            }  # fmt: skip
            status, made = self._operator.call("POST", "/operator/hosts", host)
            assert status == 201, made
            ids.append(made["id"])
            self._programs.start("agent-with-database", code, host=zone)
        status, forming = self._operator.call(
            "POST", "/operator/clusters", {"name": "zones", "kind": "shared", "host_ids": ids}
        )
        assert status == 202, forming
        self.cluster_id = forming["cluster_id"]
        eventually(self._is_formed, within_s=WITHIN_S, what="the cluster")

    def replace(self, zone: str, code: Path) -> None:
        """Restarts the agent of a host, and with it its broker, from a tree; returns when no replica is missing."""
        self._programs.stop("agent-with-database", host=zone)
        self._programs.start("agent-with-database", code, host=zone)
        self.wait_until_in_sync()

    def wait_until_in_sync(self) -> None:
        eventually(self._is_in_sync, within_s=WITHIN_S, what="all replicas in sync")

    def _is_formed(self) -> bool:
        return self._operator.get(f"/operator/clusters/{self.cluster_id}")["cluster"]["state"] == "ready"

    def _is_in_sync(self) -> bool:
        found = self._operator.get(f"/operator/clusters/{self.cluster_id}")
        counts = found["counts"] or {}
        live = [broker for broker in found["brokers"] if broker["is_live"]]
        missing = [counts.get(name) for name in ("under_replicated", "offline")]
        return len(live) == len(ZONES) and missing == [0, 0] and not found["is_checking"] and not found["silent"]


class Load:
    """Producers with acks=all, and a group that reads them, while the block lasts."""

    def __init__(self, bootstrap: str, home: Path) -> None:
        self.bootstrap = bootstrap
        self.workload = Workload(
            bootstrap, "orders", PARTITIONS, idempotent=True, records_per_s=RECORDS_PER_S
        )  # fmt: skip
        self.group = Group(bootstrap, "readers", "orders", PARTITIONS, home, session_ms=SESSION_MS)

    def go_on(self, stage: str) -> None:
        """Returns when further records were acknowledged, and read by the group."""
        wanted = self.workload.count + BETWEEN_STEPS
        written = self._diary_lines() + BETWEEN_STEPS
        eventually(lambda: self.workload.count >= wanted, within_s=WITHIN_S, what=f"records after {stage}")
        eventually(lambda: self._diary_lines() >= written, within_s=WITHIN_S, what=f"readers after {stage}")
        print(f"{stage}: {self.workload.count} records acknowledged", flush=True)

    def _diary_lines(self) -> int:
        """Returns the number of lines that the members have written; most are of records that they read."""
        return sum(len(self.group.lines(member)) for member in self.group.alive)

    def faults(self) -> list[str]:
        """Returns everything that was promised and does not hold, once the producers have ended."""
        faults = sorted(set(self.workload.failures))
        read = self.workload.read()
        for partition, acknowledged in enumerate(self.workload.acknowledged):
            verdict = judge_records(acknowledged.numbers(), read[partition])
            if not verdict.holds(idempotent=True):
                faults.append(f"partition {partition}: {verdict}"[:500])
        ends = ends_of(self.bootstrap, "orders", PARTITIONS)
        self.group.until_all_read(ends, WITHIN_S)
        findings = self.group.findings(ends)
        return faults if findings.hold else [*faults, str(findings)[:500]]

    def pauses_s(self) -> list[float]:
        """Returns the times for which a partition did not acknowledge, in ascending order."""
        return sorted(pause / 1_000 for part in self.workload.acknowledged for _, pause in part.pauses_ms)


@contextmanager
def load(bootstrap: str, home: Path) -> Iterator[Load]:
    made = Load(bootstrap, home)
    with made.group:
        made.workload.start()
        try:
            for client in MEMBERS:
                made.group.add(client)
            yield made
        finally:
            made.workload.finish()


def open_instance(tenant: Caller) -> tuple[str, str]:
    """Returns id and bootstrap servers of a running instance that needs neither user nor rule."""
    instance: dict[str, Any] = tenant.instance("upgraded", bandwidth_mb_s=5, storage_gb=10)
    tenant.topic(instance["id"], "orders", PARTITIONS, replication_factor=len(ZONES))
    return instance["id"], instance["bootstrap_servers"]


def administer(tenant: Caller, instance_id: str, stage: str) -> None:
    """Changes the instance through the API: a topic, a user and a limit, which all brokers have to take up."""
    tenant.topic(instance_id, f"made-{stage}", 1, replication_factor=len(ZONES))
    status, answer = tenant.call("POST", f"/instances/{instance_id}/users", {"name": f"user-{stage}"})
    assert status in (201, 202), answer
    limits = {"entity": {"client_id": f"client-{stage}"}, "limits": {"producer_byte_rate": 1_000_000}}
    status, answer = tenant.call("PUT", f"/instances/{instance_id}/quotas", limits)
    assert status in (200, 201), answer


def test_a_product_is_upgraded_and_its_brokers_taken_back_under_load(tmp_path: Path) -> None:
    older = older_tree(tmp_path / "older")
    print(f"\nfrom {older.name}")
    with Programs(tmp_path / "product") as programs:
        try:
            _upgrade(programs, older, tmp_path / "members")
        except BaseException:
            print(programs.log_tails())
            raise


def _upgrade(programs: Programs, older: Path, home: Path) -> None:
    operator, tenant = programs.prepare(older)
    for role in CONTROL_PLANE:
        programs.start(role, older)
    fleet = Fleet(programs, operator)
    fleet.form(older)
    instance_id, bootstrap = open_instance(tenant)
    with load(bootstrap, home) as running:
        running.go_on("older")
        administer(tenant, instance_id, "older")
        for role in reversed(CONTROL_PLANE):
            programs.stop(role)
        began_s = time.monotonic()
        programs.command(BASE_DIR, "prepare", "--state-dir", str(programs.state_dir))
        for role in CONTROL_PLANE:
            programs.start(role, BASE_DIR)
        print(f"control plane away for {time.monotonic() - began_s:.1f} s")
        fleet.wait_until_in_sync()
        administer(tenant, instance_id, "control-plane-new")
        running.go_on("control plane new")
        for zone in ZONES:
            fleet.replace(zone, BASE_DIR)
            administer(tenant, instance_id, f"{zone}-new")
            running.go_on(f"broker in {zone} new")
        for zone in ZONES:
            fleet.replace(zone, older)
            running.go_on(f"broker in {zone} back")
        administer(tenant, instance_id, "back")
        running.workload.finish()
        faults, pauses = running.faults(), running.pauses_s()
    print(f"{running.workload.count} records acknowledged, {len(pauses)} pauses of a partition", end="")
    if pauses:
        print(f": p50 {statistics.median(pauses):.2f} s, longest {pauses[-1]:.2f} s", end="")
    print()
    assert not faults
    assert not pauses or pauses[-1] <= PAUSE_S_MAX
    assert tenant.get(f"/instances/{instance_id}")["status"]["phase"] == "running"
