"""Subscribe groups of stock clients: members join, leave, die and stop; every record is read, no position goes back.

`PENSTOCK_INTEROP_MEMBERS` sets the size of the large group (the acceptance run uses 20), and with it every client goes
through everything; the default keeps `make test` short.
"""

from __future__ import annotations

import itertools
import os
import threading
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.groups import Group, committed, ends_of
from tests.testkit.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

MEMBERS = int(os.environ.get("PENSTOCK_INTEROP_MEMBERS", "3"))
PARTITIONS = 6
RECORDS_PER_S = 500
CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka")
ALONE = CLIENTS if "PENSTOCK_INTEROP_MEMBERS" in os.environ else CLIENTS[:1]


# aiokafka has no cooperative assignor.
COOPERATIVE = CLIENTS[:2] if "PENSTOCK_INTEROP_MEMBERS" in os.environ else CLIENTS[:1]
COOPERATING = max(3, MEMBERS)


@pytest.fixture
def topic(coordinating_bootstrap: str) -> str:
    return created(coordinating_bootstrap, PARTITIONS)


def created(bootstrap: str, partitions: int) -> str:
    """A topic of its own."""
    name = f"groups-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 3)])[name].result(30)
    return name


class Source:
    """Produces on all partitions in turn for as long as it is open."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
        self._topic, self._partitions = topic, partitions
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> Source:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(30) == 0

    def _send(self) -> None:
        for number in itertools.count():
            if self._stop.wait(1 / RECORDS_PER_S):
                return
            self._producer.produce(self._topic, b"%d" % number, partition=number % self._partitions)
            self._producer.poll(0)


@pytest.mark.parametrize("client", ALONE)
def test_members_join_leave_die_and_stop_and_every_record_is_read(
    client: str, coordinating_bootstrap: str, topic: str, tmp_path: Path
) -> None:
    with Group(coordinating_bootstrap, f"group-{topic}", topic, PARTITIONS, tmp_path) as group:
        with Source(coordinating_bootstrap, topic):
            first = group.add(client)
            group.until_shared_by([first])
            second, third = group.add(client), group.add(client)
            group.until_shared_by([first, second, third])
            assert group.leave(second) == 0, group.log(second)
            group.until_shared_by([first, third])
            group.kill(third)
            group.until_shared_by([first])
            fourth = group.add(client)
            group.until_shared_by([first, fourth])
            group.pause(fourth)
            # Its session ends, and another has what it had.
            eventually(
                lambda: sum(len(group.holds(member)) for member in (first, fourth)) > PARTITIONS,
                within_s=60,
                what="the partitions of the one that stopped to be given away",
            )
            group.resume(fourth)
            group.until_shared_by([first, fourth])
        ends = ends_of(coordinating_bootstrap, topic, PARTITIONS)
        group.until_all_read(ends)
        eventually(
            lambda: committed(coordinating_bootstrap, group.name, topic, PARTITIONS) == ends,
            within_s=30,
            what="the last commits",
        )
        result = group.findings(ends)
        assert result.hold, result


@pytest.mark.parametrize("client", COOPERATIVE)
def test_a_cooperative_rebalance_stops_only_what_moves(
    client: str, coordinating_bootstrap: str, tmp_path: Path
) -> None:
    """Members come one by one, the last one leaves, and the one before is killed."""
    partitions = max(PARTITIONS, COOPERATING)
    topic = created(coordinating_bootstrap, partitions)
    with Group(coordinating_bootstrap, f"group-{topic}", topic, partitions, tmp_path, "cooperative-sticky") as group:
        with Source(coordinating_bootstrap, topic, partitions):
            members: list[str] = []
            for size in range(1, COOPERATING + 1):
                before = len(group.revoked())
                members.append(group.add(client))
                group.until_shared_by(members)
                moved = group.revoked()[before:]
                assert sorted(moved) == (sorted(group.holds(members[-1])) if size > 1 else [])
                assert len(moved) <= -(-partitions // size)
            for go in (group.leave, group.kill):
                gone = members.pop()
                before = len(group.revoked(members))
                go(gone)
                group.until_shared_by(members)
                assert len(group.revoked(members)) == before, "who stays goes on with all it has"
        ends = ends_of(coordinating_bootstrap, topic, partitions)
        group.until_all_read(ends)
        assert group.findings(ends).hold
        assert group.stopped_in_vain() == []


def test_a_static_member_comes_back_without_a_rebalance(
    coordinating_bootstrap: str, topic: str, tmp_path: Path
) -> None:
    with Group(coordinating_bootstrap, f"group-{topic}", topic, PARTITIONS, tmp_path) as group:
        with Source(coordinating_bootstrap, topic):
            first = group.add("confluent-kafka", instance="one")
            second = group.add("confluent-kafka", instance="two")
            group.until_shared_by([first, second])
            had = group.holds(second)
            sent = len([line for line in group.lines(first) if line.kind == "assigned"])
            group.kill(second)
            again = group.add("confluent-kafka", instance="two")
            eventually(lambda: group.holds(again) == had, within_s=30, what="the member back with what it had")
            assert len([line for line in group.lines(first) if line.kind == "assigned"]) == sent
        ends = ends_of(coordinating_bootstrap, topic, PARTITIONS)
        group.until_all_read(ends)
        assert group.findings(ends).hold


def test_a_large_group_of_every_client_shares_the_topic(
    coordinating_bootstrap: str, topic: str, tmp_path: Path
) -> None:
    with Group(coordinating_bootstrap, f"group-{topic}", topic, PARTITIONS, tmp_path) as group:
        with Source(coordinating_bootstrap, topic):
            members = [group.add(CLIENTS[number % len(CLIENTS)]) for number in range(MEMBERS)]
            held = min(MEMBERS, PARTITIONS)
            eventually(
                lambda: (
                    sum(bool(group.holds(member)) for member in members) == held
                    and sorted(p for member in members for p in group.holds(member)) == list(range(PARTITIONS))
                ),
                within_s=120,
                what="all members in one group",
            )
            for member in members[: MEMBERS // 3]:
                group.kill(member)
            left = members[MEMBERS // 3 :]
            eventually(
                lambda: sorted(p for member in left for p in group.holds(member)) == list(range(PARTITIONS)),
                within_s=120,
                what="those that are left to share everything",
            )
        ends = ends_of(coordinating_bootstrap, topic, PARTITIONS)
        group.until_all_read(ends)
        result = group.findings(ends)
        assert result.hold, result
