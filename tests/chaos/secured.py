"""Users behind TLS while brokers die: sign-in of clients, and rights that are granted and revoked meanwhile.

A round: a user is created, may write and read a topic, does so, and loses that right by one of `WAYS`, or by a way of
its identity. Records that it sends, or that another user writes for it, later than `REVOKED_S_MAX` after the change was
acknowledged must not be served. Rounds beside a stopped broker or an absent ZooKeeper do not count for that, because
the broker could not learn of the change.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kazoo.exceptions import KazooException

from tests.chaos.faults import Say, last
from tests.chaos.identities import USER, Change, Identities
from tests.testkit.engine import HOST, EngineCluster, TestInstance

# Beside those of `identities`.
WAYS: Final = ("entry removed", "denied")
GUARDED: Final = "guarded"
REVOKED_S_MAX: Final = 1.0
GIVEN_S: Final = 1.5
WATCHED_S: Final = 3.0
BETWEEN_S: Final = 0.05
# A change that brokers die under is asked for again.
CHANGED_S_MAX: Final = 90.0
# A broker that was paused learns of changes when it has its session again.
CAUGHT_UP_S: Final = 10.0
RECONNECT_MS: Final = 5_000


def allow_workloads(identities: Identities, owner: AdminClient) -> None:
    """They may use every topic, by an entry: from then on nobody else may without one."""
    for future in owner.create_acls([_entry(identities.principal(USER), AclOperation.ALL, "*")]).values():
        future.result(30)


def owner_of(cluster: EngineCluster, instance: TestInstance) -> AdminClient:
    """Returns an admin client that acts for the instance in the way of the control plane."""
    return AdminClient(
        {
            "bootstrap.servers": ",".join(f"{HOST}:{broker.settings.internal_port}" for broker in cluster.brokers),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": instance.id,
            "sasl.password": cluster.secret,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )


def _entry(
    principal: str, operation: AclOperation, topic: str, permission: AclPermissionType = AclPermissionType.ALLOW
) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, principal, "*", operation, permission)


def _entries_of(principal: str) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, principal, None, AclOperation.ANY, AclPermissionType.ANY
    )


@dataclass
class Unsure:
    """Spans in which some broker may not know of a change yet; seconds of the monotonic clock."""

    spans: list[tuple[float, float]] = field(default_factory=list)
    open_since_s: float | None = None

    def begin(self) -> None:
        self.open_since_s = time.monotonic()

    def end(self) -> None:
        assert self.open_since_s is not None, "it has begun"
        self.spans.append((self.open_since_s, time.monotonic() + CAUGHT_UP_S))
        self.open_since_s = None

    def covers(self, begin_s: float, end_s: float) -> bool:
        """True if the condition held during a part of the span."""
        still_open = self.open_since_s is not None and self.open_since_s <= end_s
        return still_open or any(begin <= end_s and begin_s <= end for begin, end in self.spans)


def latest_after_s(changed_s: float, times_s: Sequence[float]) -> float:
    """Returns the time between the change and the last of them, 0 without any."""
    return max(0.0, max(times_s, default=changed_s) - changed_s)


class Probe:
    """A user's producer and consumer. `sent_s`: when each record that was acknowledged was handed over, `received_s`:
    when each that was received was written.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.sent_s: list[float] = []
        self.received_s: list[float] = []
        # Who is wrong too often keeps everybody out who comes from its address: here, the workloads as well.
        rare = {"reconnect.backoff.ms": RECONNECT_MS, "reconnect.backoff.max.ms": RECONNECT_MS, "log_level": 0}
        self._producer = Producer({**settings, **rare, "acks": "all", "linger.ms": 0, "message.timeout.ms": 1_500})
        self._consumer = Consumer({**settings, **rare, "group.id": "probe", "enable.auto.commit": False})
        end = self._consumer.get_watermark_offsets(TopicPartition(GUARDED, 0), timeout=30)[1]
        self._consumer.assign([TopicPartition(GUARDED, 0, end)])

    def turn(self) -> None:
        sent_s = time.monotonic()

        def note(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self.sent_s.append(sent_s)

        with suppress(BufferError, KafkaException):  # what it has heard of the topic already
            self._producer.produce(GUARDED, b"%.6f" % sent_s, partition=0, on_delivery=note)
        self._producer.poll(0)
        message = self._consumer.poll(BETWEEN_S)
        while message is not None:
            if message.error() is None:
                self.received_s.append(float(message.value() or b"0"))
            message = self._consumer.poll(0)

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(2)
        self._consumer.close()


class Rights:
    """Rounds one after the other in a thread of their own, until `finish`. `broken`: what was served too late."""

    def __init__(
        self, bootstrap: str, owner: AdminClient, identities: Identities, rolls: random.Random, say: Say
    ) -> None:
        self.broken: list[str] = []
        self.unsure = Unsure()
        self.ways = (*WAYS, *identities.ways)
        self.counts = dict.fromkeys((*self.ways, "unsure", "never served", "not changed"), 0)
        # The latest that something was served after a change, in milliseconds.
        self.latest_ms = 0.0
        self._bootstrap, self._owner, self._identities = bootstrap, owner, identities
        # Another user writes all the time, so that there are records to be read.
        self._writer = Producer({**self._settings(USER), "linger.ms": 0, "log_level": 0})
        self._rolls, self._say = rolls, say
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rights")

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        self._writer.flush(30)

    @property
    def holds(self) -> bool:
        rounds = sum(self.counts[way] for way in self.ways)
        self._say(f"rights taken away {rounds} times, {self.counts}; served {self.latest_ms:.0f} ms after it at most")
        for line in self.broken:
            self._say(line)
        return not self.broken and rounds > 0

    def _settings(self, user: str) -> dict[str, Any]:
        return {"bootstrap.servers": self._bootstrap, **self._identities.settings(user)}

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                self._round(f"probe-{number}", self._rolls.choice(self.ways))
            except KafkaException as error:
                self.counts["not changed"] += 1
                self._say(f"rights: round {number} left: {error}")
                last(1.0)

    def _round(self, user: str, way: str) -> None:
        principal = self._identities.principal(user)
        self._changed(lambda: self._identities.make(user))
        grants = [_entry(principal, operation, GUARDED) for operation in (AclOperation.WRITE, AclOperation.READ)]
        self._changed(lambda: self._owner.create_acls(grants))
        probe = Probe(self._settings(user))
        try:
            self._go_on(probe, GIVEN_S)
            self._changed(self._taking(user, way))
            changed_s = time.monotonic()
            self._go_on(probe, WATCHED_S)
        finally:
            probe.close()
        self._changed(lambda: self._owner.delete_acls([_entries_of(principal)]))
        self._note(user, way, changed_s, probe)
        self._changed(lambda: self._identities.forget(user))

    def _note(self, user: str, way: str, changed_s: float, probe: Probe) -> None:
        if not any(sent_s < changed_s for sent_s in probe.sent_s):
            self.counts["never served"] += 1
        if self.unsure.covers(changed_s, changed_s + WATCHED_S):
            self.counts["unsure"] += 1
            return
        self.counts[way] += 1
        for what, times_s in (("wrote", probe.sent_s), ("was given", probe.received_s)):
            latest_s = latest_after_s(changed_s, times_s)
            self.latest_ms = max(self.latest_ms, latest_s * 1000)
            if latest_s > REVOKED_S_MAX:
                self.broken.append(f"{user} {what} a record {latest_s:.2f} s after: {way}")

    def _go_on(self, probe: Probe, seconds: float) -> None:
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s:
            with suppress(BufferError):  # no broker takes any at the moment
                self._writer.produce(GUARDED, b"%.6f" % time.monotonic(), partition=0)
            self._writer.poll(0)
            probe.turn()

    def _taking(self, user: str, way: str) -> Change:
        principal = self._identities.principal(user)
        if way == "entry removed":
            return lambda: self._owner.delete_acls([_entries_of(principal)])
        if way == "denied":
            denial = _entry(principal, AclOperation.ALL, GUARDED, AclPermissionType.DENY)
            return lambda: self._owner.create_acls([denial])
        return lambda: self._identities.ways[way](user)

    def _changed(self, change: Change) -> None:
        """Asks until a broker says that it is done. A change that was made although nobody said so is made again, which
        changes nothing more. Raises KafkaException.
        """
        ends_s = time.monotonic() + CHANGED_S_MAX
        while True:
            try:
                for future in change().values():
                    future.result(10)
                return
            except KafkaException as error:
                if error.args[0].code() == KafkaError.RESOURCE_NOT_FOUND:
                    return  # removed by the attempt before
                if time.monotonic() > ends_s or self._stop.is_set():
                    raise
            except (TimeoutError, KazooException):
                if time.monotonic() > ends_s:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None
            last(0.3)
