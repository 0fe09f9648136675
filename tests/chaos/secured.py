"""Users behind TLS while brokers die: sign-in of clients, and rights that are granted and revoked meanwhile.

A round: a user is created, gets the right to write and read a topic, uses it, and loses it by one of `REVOCATIONS`, or
by a revocation of its identity. Records that it sends, or that another user writes for it, later than `REVOKED_S_MAX`
after the change was acknowledged must not be served. Rounds beside a stopped broker or an absent ZooKeeper do not count
for that, because the broker could not learn of the change.
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

from tests.chaos.faults import PrintLine, sleep
from tests.chaos.identities import USER, Change, Identities
from tests.testkit.engine import HOST, EngineCluster, TestInstance

# Ways to revoke rights, in addition to those of `identities`.
REVOCATIONS: Final = ("entry removed", "denied")
GUARDED: Final = "guarded"
REVOKED_S_MAX: Final = 1.0
GRANTED_S: Final = 1.5
WATCHED_S: Final = 3.0
BETWEEN_S: Final = 0.05
# Longest time for which a change is repeated while brokers are killed.
CHANGED_S_MAX: Final = 90.0
# Time until a broker that was paused has a session again and knows all changes.
CAUGHT_UP_S: Final = 10.0
RECONNECT_MS: Final = 5_000


def allow_workloads(identities: Identities, owner: AdminClient) -> None:
    """Gives the workloads' user all rights on every topic. Other users then need an entry, too."""
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
class UncertainSpans:
    """Spans in which a broker may not know of a change yet, in seconds of the monotonic clock."""

    spans: list[tuple[float, float]] = field(default_factory=list)
    open_since_s: float | None = None

    def begin(self) -> None:
        self.open_since_s = time.monotonic()

    def end(self) -> None:
        assert self.open_since_s is not None, "it has begun"
        self.spans.append((self.open_since_s, time.monotonic() + CAUGHT_UP_S))
        self.open_since_s = None

    def covers(self, begin_s: float, end_s: float) -> bool:
        """True if such a span overlaps the given one."""
        is_open = self.open_since_s is not None and self.open_since_s <= end_s
        return is_open or any(begin <= end_s and begin_s <= end for begin, end in self.spans)


def latest_delay_s(changed_s: float, times_s: Sequence[float]) -> float:
    """Returns the seconds between the change and the latest of the times; 0 if none is later."""
    return max(0.0, max(times_s, default=changed_s) - changed_s)


class Probe:
    """A user's producer and consumer. `sent_s` are the times at which acknowledged records were sent, `received_s`
    those at which received records were written.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.sent_s: list[float] = []
        self.received_s: list[float] = []
        # Frequent failed sign-ins would block the address, which the workloads share.
        reconnect_settings = {
            "reconnect.backoff.ms": RECONNECT_MS,
            "reconnect.backoff.max.ms": RECONNECT_MS,
            "log_level": 0,
        }
        self._producer = Producer(
            {**settings, **reconnect_settings, "acks": "all", "linger.ms": 0, "message.timeout.ms": 1_500}
        )
        self._consumer = Consumer({**settings, **reconnect_settings, "group.id": "probe", "enable.auto.commit": False})
        end = self._consumer.get_watermark_offsets(TopicPartition(GUARDED, 0), timeout=30)[1]
        self._consumer.assign([TopicPartition(GUARDED, 0, end)])

    def produce_and_consume(self) -> None:
        sent_s = time.monotonic()

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self.sent_s.append(sent_s)

        with suppress(BufferError, KafkaException):  # the client knows that access is denied
            self._producer.produce(GUARDED, b"%.6f" % sent_s, partition=0, on_delivery=on_delivery)
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
    """Thread that runs rounds one after the other until `finish`. `violations` describes records served too late."""

    def __init__(
        self, bootstrap: str, owner: AdminClient, identities: Identities, random_: random.Random, print_line: PrintLine
    ) -> None:
        self.violations: list[str] = []
        self.uncertain_spans = UncertainSpans()
        self.revocations = (*REVOCATIONS, *identities.revocations)
        self.counts = dict.fromkeys((*self.revocations, "uncertain", "never served", "not changed"), 0)
        # Longest time after a change at which a record was served, in milliseconds.
        self.latest_ms = 0.0
        self._bootstrap, self._owner, self._identities = bootstrap, owner, identities
        # Another user writes all the time, so that there are records to be read.
        self._writer = Producer({**self._settings(USER), "linger.ms": 0, "log_level": 0})
        self._random, self._print_line = random_, print_line
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
        rounds = sum(self.counts[way] for way in self.revocations)
        self._print_line(
            f"rights taken away {rounds} times, {self.counts}; served {self.latest_ms:.0f} ms after it at most"
        )
        for line in self.violations:
            self._print_line(line)
        return not self.violations and rounds > 0

    def _settings(self, user: str) -> dict[str, Any]:
        return {"bootstrap.servers": self._bootstrap, **self._identities.settings(user)}

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                self._run_round(f"probe-{number}", self._random.choice(self.revocations))
            except KafkaException as error:
                self.counts["not changed"] += 1
                self._print_line(f"rights: round {number} left: {error}")
                sleep(1.0)

    def _run_round(self, user: str, way: str) -> None:
        principal = self._identities.principal(user)
        self._apply_change(lambda: self._identities.create(user))
        grants = [_entry(principal, operation, GUARDED) for operation in (AclOperation.WRITE, AclOperation.READ)]
        self._apply_change(lambda: self._owner.create_acls(grants))
        probe = Probe(self._settings(user))
        try:
            self._produce_and_consume_for(probe, GRANTED_S)
            self._apply_change(self._revocation_of(user, way))
            changed_s = time.monotonic()
            self._produce_and_consume_for(probe, WATCHED_S)
        finally:
            probe.close()
        self._apply_change(lambda: self._owner.delete_acls([_entries_of(principal)]))
        self._record_round(user, way, changed_s, probe)
        self._apply_change(lambda: self._identities.remove(user))

    def _record_round(self, user: str, way: str, changed_s: float, probe: Probe) -> None:
        if not any(sent_s < changed_s for sent_s in probe.sent_s):
            self.counts["never served"] += 1
        if self.uncertain_spans.covers(changed_s, changed_s + WATCHED_S):
            self.counts["uncertain"] += 1
            return
        self.counts[way] += 1
        for action, times_s in (("wrote", probe.sent_s), ("was given", probe.received_s)):
            latest_s = latest_delay_s(changed_s, times_s)
            self.latest_ms = max(self.latest_ms, latest_s * 1000)
            if latest_s > REVOKED_S_MAX:
                self.violations.append(f"{user} {action} a record {latest_s:.2f} s after: {way}")

    def _produce_and_consume_for(self, probe: Probe, seconds: float) -> None:
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s:
            with suppress(BufferError):  # no broker takes any at the moment
                self._writer.produce(GUARDED, b"%.6f" % time.monotonic(), partition=0)
            self._writer.poll(0)
            probe.produce_and_consume()

    def _revocation_of(self, user: str, way: str) -> Change:
        principal = self._identities.principal(user)
        if way == "entry removed":
            return lambda: self._owner.delete_acls([_entries_of(principal)])
        if way == "denied":
            denial = _entry(principal, AclOperation.ALL, GUARDED, AclPermissionType.DENY)
            return lambda: self._owner.create_acls([denial])
        return lambda: self._identities.revocations[way](user)

    def _apply_change(self, change: Change) -> None:
        """Repeats a change until it is acknowledged; repeating it has no further effect. Raises KafkaException."""
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
            sleep(0.3)
