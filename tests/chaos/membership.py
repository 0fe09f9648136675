"""The group workload: members of a group are killed, added, sent away and stopped, and brokers are killed beside them.

The group grows from one member to as many as are asked for, is as large as that for half of the run, and shrinks to
one again; what is done to it meanwhile, it has to make good. Every record is read, and no position goes back
(`tests.interop.positions`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from brokers.engine.coordinators.settings import GROUPS_TOPIC
from tests.chaos import replicas
from tests.chaos.faults import Faults, Say, last
from tests.chaos.workload import Workload
from tests.interop.groups import Group, ends_of
from tests.testkit.engine import EngineCluster, TestInstance
from tests.testkit.waiting import eventually

VERBS: Final = ("member", "add", "leave", "pause-member", "kill", "coordinator")
CLIENTS: Final = ("confluent-kafka", "confluent-kafka", "aiokafka", "kafka-python")
TOPIC, PARTITIONS_MIN = "read", 6
GROUP: Final = "readers"
# Every member of a large group has something, and a few have more.
SPARE_PARTITIONS: Final = 4
ADDED_AT_ONCE_MAX: Final = 8
PAUSED_S: Final = (1.0, 8.0)
GATHER_S: Final = 60.0
CATCH_UP_S: Final = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """Members of a group: `clients` are the kinds from which each member is drawn, `members` the maximum number."""

    clients: Sequence[str] = CLIENTS
    members: int = 5
    strategy: str = "range"


ANYBODY: Final = Who()


def wanted_at(part: float, members: int) -> int:
    """The size of the group after `part` (0 to 1) of the run: up to `members` in a quarter, down to 1 in the last."""
    return 1 + round((members - 1) * min(1.0, 4 * part, max(0.0, 4 * (1 - part))))


class Membership:
    """One run on a cluster that has an instance already."""

    def __init__(
        self,
        cluster: EngineCluster,
        instance: TestInstance,
        rolls: random.Random,
        say: Say,
        *,
        records_per_s: int,
        who: Who,
    ) -> None:
        self._cluster, self._instance, self._rolls, self._say, self._who = cluster, instance, rolls, say, who
        self._partitions = max(PARTITIONS_MIN, who.members + SPARE_PARTITIONS)
        admin = AdminClient({"bootstrap.servers": instance.bootstrap})
        admin.create_topics([NewTopic(TOPIC, self._partitions, 3)])[TOPIC].result(30)
        self._load = Workload(instance.bootstrap, TOPIC, self._partitions, idempotent=True, records_per_s=records_per_s)
        home = cluster.directory / "members"
        self._group = Group(instance.bootstrap, GROUP, TOPIC, self._partitions, home, who.strategy)
        self._members = 0
        self._largest = 0

    def run(self, seconds: float, verbs: list[str], faults: Faults, between_s: tuple[float, float]) -> bool:
        self._load.start()
        try:
            return self._run(seconds, verbs, faults, between_s)
        finally:
            self._load.finish()

    def _run(self, seconds: float, verbs: list[str], faults: Faults, between_s: tuple[float, float]) -> bool:
        with self._group as group:
            self._add()
            eventually(lambda: len(group.read_of(0)) > 10, within_s=90, what="the group to read")
            began_s = time.monotonic()
            while (part := (time.monotonic() - began_s) / seconds) < 1:
                self._resize(wanted_at(part, self._who.members))
                last(self._rolls.uniform(*between_s))
                self._disturb(self._rolls.choice(verbs), faults)
            self._load.finish()
            self._say("input complete, waiting for the members ...")
            if not group.alive:
                self._add()
            ends = ends_of(self._instance.bootstrap, TOPIC, self._partitions)
            group.until_all_read(ends, CATCH_UP_S)
            result = group.findings(ends)
        for what, items in (("unread", result.unread), ("went back", result.went_back), ("skipped", result.skipped)):
            self._say(f"{len(items)} {what}{f', first: {items[0]}' if items else ''}")
        self._say(f"{sum(ends.values())} records, {self._members} members in all, {self._largest} at once")
        if not self._largest:
            self._say("the group was never complete: more seconds, or fewer members")
        return result.hold and not self._load.failed and self._largest > 0

    def _add(self) -> None:
        name = self._group.add(self._rolls.choice(self._who.clients))
        self._members += 1
        self._say(f"{name}: added")

    def _resize(self, wanted: int) -> None:
        """Towards `wanted` members, some at once; a group that is complete shares what there is among all."""
        missing = wanted - len(self._group.alive)
        for _ in range(min(missing, ADDED_AT_ONCE_MAX)):
            self._add()
        for _ in range(-missing):
            self._rolls.choice((self._leave, self._kill))(self._rolls.choice(self._group.alive))
        alive = self._group.alive
        if len(alive) >= self._who.members > self._largest:
            began_s = time.monotonic()
            self._group.until_shared_by(alive, GATHER_S)
            took_s = time.monotonic() - began_s
            self._say(f"{len(alive)} members share {self._partitions} partitions after {took_s:.1f} s more")
            self._largest = len(alive)

    def _disturb(self, verb: str, faults: Faults) -> None:
        alive = self._group.alive
        if verb == "kill":
            faults.kill()
        elif verb == "coordinator":
            group = f"{self._instance.id}.{GROUP}"
            faults.kill(replicas.coordinator_of(self._cluster, GROUPS_TOPIC, group), verb)
        elif verb == "add" or not alive:
            self._add()
        else:
            on_member: dict[str, Callable[[str], None]] = {"leave": self._leave, "pause-member": self._pause}
            on_member.get(verb, self._kill)(self._rolls.choice(alive))

    def _kill(self, member: str) -> None:
        self._say(f"{member}: kill -9")
        self._group.kill(member)

    def _leave(self, member: str) -> None:
        self._say(f"{member}: leaves with {self._group.leave(member)}")

    def _pause(self, member: str) -> None:
        paused_s = self._rolls.uniform(*PAUSED_S)
        self._say(f"{member}: stopped {paused_s:.1f} s")
        self._group.pause(member)
        last(paused_s)
        self._group.resume(member)
