"""CreateTopics, CreatePartitions and DeleteTopics under a limit of mutations: which versions refuse, which only wait
(QUO-40…43). Each client id has a limit of its own, and each question a connection of its own: one that was throttled is
not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    QuotaAlteration,
    QuotaEntity,
    QuotaOperation,
)
from brokers.engine.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.differential.play import Player

PREFIX = "diff.mutations"
RATE = "controller_mutation_rate"
TIMEOUT_MS = 10_000
# Partitions a second: a burst of two, and a client with a debt of four waits for the rest of the script.
LIMIT = 0.2
RAISED = 10_000.0
AFTERWARDS = "afterwards"
THROTTLING_QUOTA_EXCEEDED = 89
CREATES, GROWS, DELETES = range(2, 8), range(4), range(1, 7)


def script(player: Player) -> None:
    clients = [f"{PREFIX}.{what}.v{version}" for what, version in _each()]
    for version in DELETES:
        for number, partitions in enumerate((1, 5, 1, 1, 1, 1)):
            player.make_topic(f"{_delete(version)}.{number}", partitions)
    for version in GROWS:
        for name in ("a", "b"):
            player.make_topic(f"{_grow(version)}.{name}")
    _limit(player, dict.fromkeys(clients, LIMIT), "first")
    for what, version in _each():
        _IN_DEBT[what](_Asking(player, f"{PREFIX}.{what}.v{version}", what, version))
    _limit(player, {client: None if client.endswith("v5") else RAISED for client in clients}, "then")
    for what, version in _each():
        _PAID[what](_Asking(player, f"{PREFIX}.{what}.v{version}", what, version))
    _alter(player, dict.fromkeys([*clients, _probe("first"), _probe("then")], None))


def _each() -> list[tuple[str, int]]:
    versions = {"create": CREATES, "grow": GROWS, "delete": DELETES}
    return [(what, version) for what, each in versions.items() for version in each]


def _create(version: int) -> str:
    return f"{PREFIX}.create.v{version}"


def _grow(version: int) -> str:
    return f"{PREFIX}.grow.v{version}"


def _delete(version: int) -> str:
    return f"{PREFIX}.delete.v{version}"


def _probe(step: str) -> str:
    return f"{PREFIX}.probe.{step}"


def _alter(player: Player, limits: Mapping[str, float | None]) -> None:
    entries = [
        QuotaAlteration(
            entity=[QuotaEntity(entity_type="client-id", entity_name=client)],
            ops=[QuotaOperation(key=RATE, value=limit or 0.0, remove=limit is None)],
        )
        for client, limit in limits.items()
    ]
    answer = player.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest(entries=entries))
    assert not any(entry.error_code for entry in answer.entries), answer


def _limit(player: Player, limits: Mapping[str, float | None], step: str) -> None:
    """Sets quotas, and waits until the broker applies the one that was set last, which is another client's."""
    probe = _probe(step)
    _alter(player, limits)
    _alter(player, {probe: LIMIT / 2})
    asking, numbers = player.another(probe), count()

    def is_limited() -> bool:
        topic = CreatableTopic(name=f"{probe}.{next(numbers)}", num_partitions=2, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        return bool(asking.call(ApiKey.CREATE_TOPICS, 5, request).throttle_time_ms)

    player.until(is_limited, "the limits are in force")


def _results(answer: Any) -> list[Any]:
    """Returns the results in an answer of any of the three calls."""
    (name,) = [name for name in ("topics", "results", "responses") if hasattr(answer, name)]
    results: list[Any] = getattr(answer, name)
    return results


def _is_refused(answer: Any) -> bool:
    return any(result.error_code == THROTTLING_QUOTA_EXCEEDED for result in _results(answer))


class _Asking:
    """One client with one version."""

    def __init__(self, player: Player, client_id: str, what: str, version: int) -> None:
        self.player = player
        self.client_id = client_id
        self.what = what
        self.version = version

    def ask(self, label: str, api_key: ApiKey, request: Any) -> None:
        """Records the first answer that is not refused: a broker may apply a raised limit with a first request, which
        is refused with no time to wait.
        """
        asking = self.player.another(self.client_id)

        def answered() -> Any:
            answer = asking.call(api_key, self.version, request)
            return None if label == AFTERWARDS and _is_refused(answer) else answer

        answer = self.player.until(answered, "what was owed is paid")
        _results(answer).sort(key=lambda result: result.name or "")
        # In tens of seconds, for the script takes time itself.
        waits_s = round(getattr(answer, "throttle_time_ms", 0) / 10_000) * 10
        shown = {"answer": self.player.normalise(answer), "waits_s": waits_s}
        self.player.write_down(f"{self.what} v{self.version}: {label}", shown)
        asking.close()

    def create(self, label: str, *topics: tuple[str, int], validate_only: bool = False) -> None:
        wanted = [
            CreatableTopic(name=f"{_create(self.version)}.{name}", num_partitions=partitions, replication_factor=1)
            for name, partitions in topics
        ]
        request = CreateTopicsRequest(topics=wanted, timeout_ms=TIMEOUT_MS, validate_only=validate_only)
        self.ask(label, ApiKey.CREATE_TOPICS, request)

    def grow(self, label: str, *topics: tuple[str, int], validate_only: bool = False) -> None:
        wanted = [
            CreatePartitionsTopic(name=f"{_grow(self.version)}.{name}", count=partitions, assignments=None)
            for name, partitions in topics
        ]
        request = CreatePartitionsRequest(topics=wanted, timeout_ms=TIMEOUT_MS, validate_only=validate_only)
        self.ask(label, ApiKey.CREATE_PARTITIONS, request)

    def delete(self, label: str, *names: str) -> None:
        wanted = [f"{_delete(self.version)}.{name}" for name in names]
        if self.version >= 6:
            states = [DeleteTopicState(name=name, topic_id=bytes(16)) for name in wanted]
            request = DeleteTopicsRequest(topics=states, timeout_ms=TIMEOUT_MS)
        else:
            request = DeleteTopicsRequest(topic_names=wanted, timeout_ms=TIMEOUT_MS)
        self.ask(label, ApiKey.DELETE_TOPICS, request)


def _create_in_debt(ask: _Asking) -> None:
    ask.create("within", ("within", 1))
    ask.create("only checked", ("checked", 100), validate_only=True)
    ask.create("beyond", ("beyond", 5))
    ask.create("in debt", ("debt", 1))
    ask.create("two in debt", ("one", 1), ("two", 1))
    ask.create("only checked in debt", ("checked", 1), validate_only=True)
    ask.create("what exists, in debt", ("within", 1))
    ask.create("no partitions, in debt", ("none", 0))
    ask.create("no topics, in debt")


def _create_paid(ask: _Asking) -> None:
    ask.create(AFTERWARDS, ("afterwards", 1))


def _grow_in_debt(ask: _Asking) -> None:
    ask.grow("within", ("a", 2))
    ask.grow("only checked", ("a", 100), validate_only=True)
    ask.grow("beyond", ("a", 7))
    ask.grow("in debt", ("b", 2))
    ask.grow("two in debt", ("a", 8), ("b", 3))
    ask.grow("only checked in debt", ("b", 9), validate_only=True)
    ask.grow("an unknown topic, in debt", ("unknown", 9))
    ask.grow("fewer, in debt", ("a", 1))
    ask.grow("no topics, in debt")


def _grow_paid(ask: _Asking) -> None:
    ask.grow(AFTERWARDS, ("a", 9))


def _delete_in_debt(ask: _Asking) -> None:
    ask.delete("within", "0")
    ask.delete("beyond", "1")
    ask.delete("in debt", "2")
    ask.delete("two in debt", "3", "4")
    ask.delete("an unknown topic, in debt", "unknown")
    ask.delete("no topics, in debt")


def _delete_paid(ask: _Asking) -> None:
    ask.delete(AFTERWARDS, "5")


_Step = Callable[[_Asking], None]
_IN_DEBT: dict[str, _Step] = {"create": _create_in_debt, "grow": _grow_in_debt, "delete": _delete_in_debt}
_PAID: dict[str, _Step] = {"create": _create_paid, "grow": _grow_paid, "delete": _delete_paid}
