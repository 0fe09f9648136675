"""The group workload: members of a group are killed, added, sent away and stopped, and brokers are killed beside them.

Every record is read, and no position goes back (`tests.interop.positions`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from brokers.engine.coordinators.settings import GROUPS_TOPIC
from tests.chaos import replicas
from tests.chaos.faults import Faults, Say, last
from tests.chaos.workload import Workload
from tests.interop.groups import Group, ends_of
from tests.support.engine import EngineCluster, TestInstance
from tests.support.waiting import eventually

VERBS: Final = ("member", "add", "leave", "pause-member", "kill", "coordinator")
CLIENTS: Final = ("confluent-kafka", "confluent-kafka", "aiokafka", "kafka-python")
TOPIC, PARTITIONS = "read", 6
GROUP: Final = "readers"
MEMBERS_MIN, MEMBERS_MAX = 2, 5
PAUSED_S: Final = (1.0, 12.0)
CATCH_UP_S: Final = 180.0


class Membership:
    """One run on a cluster that has an instance already."""

    def __init__(
        self, cluster: EngineCluster, instance: TestInstance, rolls: random.Random, say: Say, *, records_per_s: int
    ) -> None:
        self._cluster, self._instance, self._rolls, self._say = cluster, instance, rolls, say
        admin = AdminClient({"bootstrap.servers": instance.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
        self._load = Workload(instance.bootstrap, TOPIC, PARTITIONS, idempotent=True, records_per_s=records_per_s)
        self._group = Group(instance.bootstrap, GROUP, TOPIC, PARTITIONS, cluster.directory / "members")

    def run(self, seconds: float, verbs: list[str], faults: Faults, between_s: tuple[float, float]) -> bool:
        self._load.start()
        try:
            return self._run(seconds, verbs, faults, between_s)
        finally:
            self._load.finish()

    def _run(self, seconds: float, verbs: list[str], faults: Faults, between_s: tuple[float, float]) -> bool:
        with self._group as group:
            for _ in range(MEMBERS_MIN):
                self._add()
            eventually(lambda: len(group.read_of(0)) > 100, within_s=90, what="the group to read")
            ends_s = time.monotonic() + seconds
            while time.monotonic() < ends_s:
                last(self._rolls.uniform(*between_s))
                self._disturb(self._rolls.choice(verbs), faults)
            self._load.finish()
            self._say("input complete, waiting for the members ...")
            ends = ends_of(self._instance.bootstrap, TOPIC, PARTITIONS)
            group.until_all_read(ends, CATCH_UP_S)
            found = group.findings(ends)
        for what, items in (("unread", found.unread), ("went back", found.went_back), ("skipped", found.skipped)):
            self._say(f"{len(items)} {what}{f', first: {items[0]}' if items else ''}")
        self._say(f"{sum(ends.values())} records, {self._members} members in all")
        return found.hold and not self._load.failed

    _members = 0

    def _add(self) -> None:
        name = self._group.add(self._rolls.choice(CLIENTS))
        self._members += 1
        self._say(f"{name}: added")

    def _disturb(self, verb: str, faults: Faults) -> None:
        alive = self._group.alive
        if verb == "kill":
            faults.kill()
        elif verb == "coordinator":
            group = f"{self._instance.id}.{GROUP}"
            faults.kill(replicas.coordinator_of(self._cluster, GROUPS_TOPIC, group), verb)
        elif len(alive) < MEMBERS_MIN or (verb == "add" and len(alive) < MEMBERS_MAX):
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
