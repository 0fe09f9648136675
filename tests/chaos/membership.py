"""Group workload: members of a consumer group are killed, added, removed and stopped, and brokers are killed as well.

The group grows from one member to the maximum in the first quarter of the run, and shrinks to one in the last. It must
recover from every fault: every record is read, and no position goes back (`tests.interop.positions`).
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
from tests.chaos.faults import Faults, PrintLine, sleep
from tests.chaos.workload import Workload
from tests.interop.groups import Group, ends_of
from tests.testkit.engine import EngineCluster, TestInstance
from tests.testkit.waiting import eventually

VERBS: Final = ("member", "add", "leave", "pause-member", "kill", "coordinator")
CLIENTS: Final = ("confluent-kafka", "confluent-kafka", "aiokafka", "kafka-python")
TOPIC, PARTITIONS_MIN = "read", 6
GROUP: Final = "readers"
# Partitions in addition to one for each member, so that a few members of a large group have several.
SPARE_PARTITIONS: Final = 4
ADDED_AT_ONCE_MAX: Final = 8
PAUSED_S: Final = (1.0, 8.0)
GATHER_S: Final = 60.0
CATCH_UP_S: Final = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMembers:
    """Members of a group: `clients` are the kinds from which each member is drawn, `members` the maximum number."""

    clients: Sequence[str] = CLIENTS
    members: int = 5
    strategy: str = "range"


DEFAULT_MEMBERS: Final = GroupMembers()


def group_size_at(part: float, members: int) -> int:
    """Returns the size of the group after `part` (0 to 1) of the run: it grows to `members` in the first quarter, and
    shrinks to 1 in the last.
    """
    return 1 + round((members - 1) * min(1.0, 4 * part, max(0.0, 4 * (1 - part))))


class Membership:
    """One run of the workload on a cluster with an instance."""

    def __init__(
        self,
        cluster: EngineCluster,
        instance: TestInstance,
        random_: random.Random,
        print_line: PrintLine,
        *,
        records_per_s: int,
        member_options: GroupMembers,
    ) -> None:
        self._cluster, self._instance, self._random, self._print_line, self._member_options = (
            cluster,
            instance,
            random_,
            print_line,
            member_options,
        )
        self._partitions = max(PARTITIONS_MIN, member_options.members + SPARE_PARTITIONS)
        admin = AdminClient({"bootstrap.servers": instance.bootstrap})
        admin.create_topics([NewTopic(TOPIC, self._partitions, 3)])[TOPIC].result(30)
        self._load = Workload(instance.bootstrap, TOPIC, self._partitions, idempotent=True, records_per_s=records_per_s)
        home = cluster.directory / "members"
        self._group = Group(instance.bootstrap, GROUP, TOPIC, self._partitions, home, member_options.strategy)
        self._added_count = 0
        self._largest_size = 0

    def run(self, seconds: float, verbs: list[str], faults: Faults, between_s: tuple[float, float]) -> bool:
        self._load.start()
        try:
            return self._run(seconds, verbs, faults, between_s)
        finally:
            self._load.finish()

    def _run(self, seconds: float, verbs: list[str], faults: Faults, between_s: tuple[float, float]) -> bool:
        with self._group as group:
            self._add_member()
            eventually(lambda: len(group.read_of(0)) > 10, within_s=90, what="the group to read")
            began_s = time.monotonic()
            while (elapsed_share := (time.monotonic() - began_s) / seconds) < 1:
                self._resize_group(group_size_at(elapsed_share, self._member_options.members))
                sleep(self._random.uniform(*between_s))
                self._cause_fault(self._random.choice(verbs), faults)
            self._load.finish()
            self._print_line("input complete, waiting for the members ...")
            if not group.alive:
                self._add_member()
            ends = ends_of(self._instance.bootstrap, TOPIC, self._partitions)
            group.until_all_read(ends, CATCH_UP_S)
            result = group.findings(ends)
        for kind, findings in (("unread", result.unread), ("went back", result.went_back), ("skipped", result.skipped)):
            self._print_line(f"{len(findings)} {kind}{f', first: {findings[0]}' if findings else ''}")
        self._print_line(
            f"{sum(ends.values())} records, {self._added_count} members in all, {self._largest_size} at once"
        )
        if not self._largest_size:
            self._print_line("the group was never complete: more seconds, or fewer members")
        return result.hold and not self._load.failures and self._largest_size > 0

    def _add_member(self) -> None:
        name = self._group.add(self._random.choice(self._member_options.clients))
        self._added_count += 1
        self._print_line(f"{name}: added")

    def _resize_group(self, size: int) -> None:
        """Adds or removes members, a few at a time, until there are `size`; waits until they share all partitions."""
        missing = size - len(self._group.alive)
        for _ in range(min(missing, ADDED_AT_ONCE_MAX)):
            self._add_member()
        for _ in range(-missing):
            self._random.choice((self._leave, self._kill_member))(self._random.choice(self._group.alive))
        alive_members = self._group.alive
        if len(alive_members) >= self._member_options.members > self._largest_size:
            began_s = time.monotonic()
            self._group.until_shared_by(alive_members, GATHER_S)
            took_s = time.monotonic() - began_s
            self._print_line(
                f"{len(alive_members)} members share {self._partitions} partitions after {took_s:.1f} s more"
            )
            self._largest_size = len(alive_members)

    def _cause_fault(self, verb: str, faults: Faults) -> None:
        alive_members = self._group.alive
        if verb == "kill":
            faults.kill()
        elif verb == "coordinator":
            group = f"{self._instance.id}.{GROUP}"
            faults.kill(replicas.coordinator_of(self._cluster, GROUPS_TOPIC, group), verb)
        elif verb == "add" or not alive_members:
            self._add_member()
        else:
            faults_by_verb: dict[str, Callable[[str], None]] = {
                "leave": self._leave,
                "pause-member": self._pause_member,
            }
            faults_by_verb.get(verb, self._kill_member)(self._random.choice(alive_members))

    def _kill_member(self, member: str) -> None:
        self._print_line(f"{member}: kill -9")
        self._group.kill(member)

    def _leave(self, member: str) -> None:
        self._print_line(f"{member}: leaves with {self._group.leave(member)}")

    def _pause_member(self, member: str) -> None:
        paused_s = self._random.uniform(*PAUSED_S)
        self._print_line(f"{member}: stopped {paused_s:.1f} s")
        self._group.pause(member)
        sleep(paused_s)
        self._group.resume(member)
