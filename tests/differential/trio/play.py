"""A client of three brokers. In answers a broker is called by its role, and a leader epoch as the script named it.

How often a leader epoch grows on the way is a broker's own affair; that it did, and what an old one is answered, is
not. So a script names the epochs that it meets and asks by those names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponsePartition
from brokers.engine.protocol.messages.reassignment import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectLeadersTopicPartitions,
    ReassignablePartition,
    ReassignableTopic,
)
from brokers.engine.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.differential.normalise import RULES, normalised
from tests.differential.play import ConnectionLost, Player
from tests.differential.trio.cluster import ROLES, Trio
from tests.testkit.engine import eventually

UNKNOWN_BROKER = 99


class TrioPlayer:
    """A client of three brokers. `at["A"]` acts as a tenant, `operator["A"]` as the cluster itself; all record into
    `answers`.
    """

    def __init__(self, trio: Trio) -> None:
        self.trio = trio
        self.answers: dict[str, Any] = {}
        self._roles = {id: role for role, id in trio.ids.items()}
        self._epochs: dict[int, str] = {}
        self._rules = {**RULES, **dict.fromkeys(_IDS, self._role), **dict.fromkeys(_LISTS, self._role_list)}
        self._rules |= dict.fromkeys(_SETS, self._role_set) | dict.fromkeys(_EPOCHS, self._epoch)
        self._rules |= {"brokers": self._brokers, "records": self._records, "topic": self._name, "name": self._name}
        self._rules |= {"transactional_id": self._numbered, "group_id": self._numbered, "groups": self._groups}
        self.at = {role: self._player(role, operator=False) for role in ROLES}
        self.operator = {role: self._player(role, operator=True) for role in ROLES}

    def _player(self, role: str, *, operator: bool) -> Player:
        address, login = self.trio.operator(role) if operator else (self.trio.tenant(role), None)
        return Player(address, self.answers, login=login, normalise=lambda answer: normalised(answer, self._rules))

    def __enter__(self) -> TrioPlayer:
        return self

    def __exit__(self, *_: object) -> None:
        for player in (*self.at.values(), *self.operator.values()):
            player.close()

    # -- names for numbers --------------------------------------------------------------------------------------------

    def _role(self, id: int) -> Any:
        return self._roles.get(id, id)

    def _role_list(self, ids: Sequence[int] | None) -> Any:
        return None if ids is None else "".join(str(self._role(id)) for id in ids)

    def _role_set(self, ids: Sequence[int]) -> str:
        return "".join(sorted(str(self._role(id)) for id in ids))

    def _epoch(self, epoch: int) -> Any:
        return self._epochs.get(epoch, "epoch") if epoch >= 0 else epoch

    def _brokers(self, listed: Sequence[Any]) -> list[Any]:
        """Without the racks and addresses, which say nothing."""
        ids = [broker.node_id if hasattr(broker, "node_id") else broker.broker_id for broker in listed]
        return sorted(str(self._role(id)) for id in ids)

    def _records(self, value: bytes | None) -> Any:
        """Returns `offset+count epoch` of each batch."""
        batches = RULES["records"](value)
        if batches is None:
            return None
        return [f"{batch['base_offset']}+{batch['count']} {self._epoch(batch['leader_epoch'])}" for batch in batches]

    def _name(self, name: str | None) -> str | None:
        return None if name is None else name.removeprefix(self.trio.prefix)

    def _numbered(self, name: str) -> str:
        """A name without the number that made a certain broker its coordinator."""
        return name.removeprefix(self.trio.prefix).rstrip("0123456789")

    def _groups(self, groups: Sequence[Any]) -> Any:
        return [normalised(group, self._rules) for group in groups if group.group_id.startswith("trio.")]

    def ids(self, roles: str) -> list[int]:
        """Broker ids by role; `?` is a broker there is none of, `!` a negative one."""
        return [{"?": UNKNOWN_BROKER, "!": -1}.get(role) or self.trio.ids[role] for role in roles]

    def inside(self, topic: str) -> str:
        """Returns the operator's name of a tenant's topic."""
        return f"{self.trio.prefix}{topic}"

    def name_epoch(self, topic: str, name: str, index: int = 0) -> int:
        """Calls the partition's present leader epoch `name` from here on."""
        epoch = self.partition(topic, index).leader_epoch
        assert epoch not in self._epochs, "the leader epoch has not grown"
        self._epochs[epoch] = name
        return epoch

    # -- topics -------------------------------------------------------------------------------------------------------

    def make(self, name: str, *assignments: str, **config: str) -> bytes:
        """Creates a topic whose partitions have replicas on these brokers (`"ABC"`), in sync everywhere; its id."""
        config.setdefault("retention_ms", "-1")
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=self.ids(roles))
                for index, roles in enumerate(assignments)
            ],
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()],
        )
        answer = self.at["A"].call(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert answer.topics[0].error_code == 0, answer
        for index, roles in enumerate(assignments):
            self.until(name, index, lambda line, roles=roles: line.leader_id == self.trio.ids[roles[0]])
            self.until_in_sync(name, roles, index)
        return bytes(answer.topics[0].topic_id)

    def partition(self, topic: str, index: int = 0, role: str = "A") -> MetadataResponsePartition:
        """The partition as a broker's Metadata shows it."""
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        (result,) = self.at[role].call(ApiKey.METADATA, 9, wanted).topics
        lines = {line.partition_index: line for line in result.partitions}
        return lines.get(index, MetadataResponsePartition(error_code=result.error_code, leader_id=-1))

    def until(
        self, topic: str, index: int, holds: Callable[[MetadataResponsePartition], bool], roles: Sequence[str] = ROLES
    ) -> None:
        """Waits until these brokers' Metadata show it."""
        for role in roles:
            eventually(lambda role=role: holds(self.partition(topic, index, role)), f"broker {role} shows {topic}")

    def until_in_sync(self, topic: str, replicas: str, index: int = 0, roles: Sequence[str] = ROLES) -> None:
        wanted = set(self.ids(replicas))
        self.until(topic, index, lambda line: set(line.isr_nodes) == wanted, roles)

    def show(self, label: str, topic: str, version: int = 9, role: str = "A") -> None:
        """Writes down how a broker's Metadata describes the topic."""
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        self.at[role].ask(label, ApiKey.METADATA, version, wanted)

    # -- moving things about ------------------------------------------------------------------------------------------

    def reassign(self, topic: str, replicas: str | None, index: int = 0) -> None:
        wanted = None if replicas is None else self.ids(replicas)
        line = ReassignablePartition(partition_index=index, replicas=wanted)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=self.inside(topic), partitions=[line])]
        )
        answer = self.operator["A"].call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)
        assert answer.error_code == 0 and answer.responses[0].partitions[0].error_code == 0, answer

    def lead(self, topic: str, order: str, index: int = 0) -> None:
        """Makes the first of `order`, which are the replicas there are, lead the partition."""
        self.reassign(topic, order, index)
        wanted = self.ids(order)
        self.until(topic, index, lambda line: line.replica_nodes == wanted)
        asked = [ElectLeadersTopicPartitions(topic=self.inside(topic), partitions=[index])]
        request = ElectLeadersRequest(election_type=0, topic_partitions=asked, timeout_ms=10_000)
        answer = self.operator["A"].call(ApiKey.ELECT_LEADERS, 2, request)
        assert answer.replica_election_results[0].partition_result[0].error_code == 0, answer
        self.until(topic, index, lambda line: line.leader_id == wanted[0])

    @contextmanager
    def paused(self, role: str) -> Iterator[None]:
        with self.trio.paused(role):
            yield

    @contextmanager
    def stopped(self, role: str) -> Iterator[None]:
        """Stopped cleanly; nobody counts on the broker any more, and afterwards everybody knows it again."""
        left = [other for other in ROLES if other != role]
        self.stop(role, left)
        try:
            yield
        finally:
            self.start(role)

    def stop(self, role: str, left: Sequence[str]) -> None:
        for player in (self.at[role], self.operator[role]):
            player.close()
        self.trio.stop(role)
        for other in left:
            eventually(lambda other=other: not self._knows(other, role), f"{other} misses {role}")

    def start(self, role: str, beside: Sequence[str] = ROLES) -> None:
        self.trio.start(role)
        for other in beside:
            eventually(lambda other=other: self._knows(other, role), f"{other} knows {role}")

    def _knows(self, role: str, wanted: str) -> bool:
        try:
            answer = self.at[role].call(ApiKey.METADATA, 1, MetadataRequest(topics=[]))
        except (ConnectionLost, OSError):
            return False
        return self.trio.ids[wanted] in [broker.node_id for broker in answer.brokers]


_IDS = ("leader_id", "node_id", "broker_id", "controller_id", "preferred_read_replica")
_LISTS = ("replica_nodes", "replicas", "adding_replicas", "removing_replicas", "broker_ids")
_SETS = ("isr_nodes", "offline_replicas")
_EPOCHS = ("leader_epoch", "epoch")
