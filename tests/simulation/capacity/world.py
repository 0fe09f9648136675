"""Simulated brokers with the real rooms, credits, ledger and shortening (decisions 92 and 114), over logs of numbers.

`run(seed)` draws the events and checks the promises after every step. The clock is simulated.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from brokers.engine.assembly.storage_capacity import is_in_use
from brokers.engine.assembly.storage_shortening import LEADER_CHANGE_PAUSE_MS, RESPONSE_AGE_MS_MAX, RETRIABLE_MS
from brokers.engine.capacity import shortening
from brokers.engine.capacity.credits import StorageCredits
from brokers.engine.capacity.ledger import DEAD_BROKER_MS, Bought, ReportedUse, StorageGrant, StorageLedger
from brokers.engine.capacity.room import FULL, OK, StorageRoom

BROKERS: Final = (1, 2, 3)
REPLICAS: Final = 2
STEP_MS: Final = 100
REPORT_MS: Final = 1_000
FLOOR_MS: Final = 20_000
# Maximum of the stored bytes at any time, as a multiple of the bought bytes.
MOST: Final = 1.02
IDLE_MS: Final = 5_000
TAKEN_AGAIN_MS: Final = 5_000
PAST_MS: Final = 10_000
# Minimum percentage that shortening leaves of the bought bytes: the release, less a segment of each broker.
LEFT_PERCENT: Final = shortening.RELEASE_PERCENT - 10
# Writes of a writer in one step.
WRITES_MAX: Final = 10


class Broken(AssertionError):
    """A broken promise and its time."""


@dataclass
class Log:
    """Log of a partition: its segments as [bytes, time of the newest record], the active one last."""

    leader: int
    segments: list[list[int]] = field(default_factory=lambda: [[0, 0]])

    @property
    def size_bytes(self) -> int:
        return sum(size for size, _ in self.segments)

    def append(self, size_bytes: int, now_ms: int, piece_bytes: int) -> None:
        if self.segments[-1][0] >= piece_bytes:
            self.segments.append([0, now_ms])
        self.segments[-1][0] += size_bytes
        self.segments[-1][1] = now_ms


class Moment(NamedTuple):
    """Bytes that an instance stored at a time, and had appended and freed until then, with replicas."""

    stored_bytes: int
    appended_bytes: int
    freed_bytes: int


@dataclass
class Instance:
    """An instance. `speed` is the bytes per step of each writer, 0 for no writes; `past` are the last ten seconds."""

    name: str
    bought_bytes: int
    shrinks: bool
    logs: list[Log]
    speed: int = 0
    refused: int = 0
    led_since_ms: int = 0
    appended_bytes: int = 0
    freed_bytes: int = 0
    past: deque[Moment] = field(default_factory=lambda: deque(maxlen=PAST_MS // STEP_MS))

    @property
    def stored_bytes(self) -> int:
        return sum(log.size_bytes for log in self.logs) * REPLICAS

    @property
    def piece_bytes(self) -> int:
        return self.bought_bytes // shortening.ACTIVE_SEGMENT_DIVISOR // REPLICAS


@dataclass
class Broker:
    id: int
    epoch: int = 1
    is_complete: bool = False
    is_paused: bool = False
    everything_ms: int = 0
    answered_ms: int = 0
    measured_ms: dict[str, int] = field(default_factory=dict)
    credits: StorageCredits = field(default_factory=StorageCredits)
    over: dict[str, bool] = field(default_factory=dict)
    shortened: dict[str, bool] = field(default_factory=dict)
    retriable_until_ms: dict[str, int] = field(default_factory=dict)
    used_before: dict[str, int] = field(default_factory=dict)


class World:
    # Time after a leader change in which nothing is deleted (`StorageShortening`).
    moved_ms = LEADER_CHANGE_PAUSE_MS
    # Probability that a report, or its answer, is lost.
    loss = 0.05

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.history: list[str] = []
        self.now_ms = 0
        self.term = 0
        self.starts = 0
        self.unaware: set[int] = set()
        self.instances = [self._instance(f"ins-{letter * 8}") for letter in "abc"]
        self.brokers = {id: Broker(id) for id in BROKERS}
        self.ledger = StorageLedger(0)
        for broker in self.brokers.values():
            self.start(broker)
        self.elect()
        self.now_ms += DEAD_BROKER_MS

    def _instance(self, name: str) -> Instance:
        random = self.random
        logs = [Log(random.choice(BROKERS)) for _ in range(random.choice((1, 3, 8)))]
        bought_bytes = random.choice((200_000, 1_000_000, 20_000_000))
        return Instance(name, bought_bytes, random.random() < 0.6, logs)

    # -- actions of brokers --------------------------------------------------------------------------------------------

    def used(self, broker: Broker, instance: Instance) -> int:
        return sum(log.size_bytes for log in instance.logs if log.leader == broker.id) * REPLICAS

    def start(self, broker: Broker) -> None:
        broker.credits, broker.is_complete = StorageCredits(), False
        broker.over, broker.shortened, broker.retriable_until_ms, broker.used_before = {}, {}, {}, {}
        for instance in self.instances:
            room = broker.credits.rooms[instance.name] = StorageRoom()
            broker.credits.initialize(room, instance.bought_bytes, self.used(broker, instance))

    def write(self, instance: Instance, log: Log, size_bytes: int) -> int:
        broker = self.brokers[log.leader]
        if broker.is_paused:
            return OK
        code = broker.credits.rooms[instance.name].spend(size_bytes * REPLICAS)
        if code == OK:
            log.append(size_bytes, self.now_ms, instance.piece_bytes)
            instance.appended_bytes += size_bytes * REPLICAS
        elif code == FULL:
            instance.refused += 1
        return code

    def report(self, broker: Broker) -> None:
        if broker.credits.controller_epoch != self.term:
            broker.credits.on_controller_epoch(self.term)
            broker.is_complete = False
        is_everything = not broker.is_complete or self.now_ms - broker.everything_ms >= IDLE_MS
        if is_everything:
            broker.everything_ms = self.now_ms
        measured = [
            instance
            for instance in self.instances
            if is_everything
            or is_in_use(broker.credits.rooms[instance.name])
            or broker.measured_ms.get(instance.name, 0) <= instance.led_since_ms
        ]
        broker.measured_ms |= {instance.name: self.now_ms for instance in measured}
        uses = broker.credits.reports({instance.name: self.used(broker, instance) for instance in measured})
        lost = self.random.random()
        if broker.is_paused or lost < self.loss:
            broker.credits.on_unanswered(uses)
            broker.is_complete = False
            return
        broker.is_complete = broker.is_complete or is_everything
        changes = self.answer(broker, uses)
        if is_everything:
            self.unaware.discard(broker.id)
        if lost < 2 * self.loss:
            broker.credits.on_unanswered(uses)
            broker.is_complete = False
        else:
            broker.credits.apply(self.term, uses, changes)
            broker.answered_ms = self.now_ms

    def answer(self, broker: Broker, uses: list[ReportedUse]) -> list[StorageGrant]:
        bought = {instance.name: Bought(instance.bought_bytes, len(BROKERS)) for instance in self.instances}
        ledger, now_ms = self.ledger, self.now_ms
        ledger.set_live_brokers(BROKERS, now_ms)
        ledger.begin_report(broker.id, broker.epoch, broker.is_complete, now_ms)
        changes = [ledger.handle_report(broker.id, use, bought[use.instance_id], now_ms) for use in uses]
        answered = {change.instance_id for change in changes}
        for name in ledger.instances_to_review(broker.id):
            change = None if name in answered else ledger.review(broker.id, name, bought[name], now_ms)
            changes += [] if change is None else [change]
        return changes

    def shorten(self, broker: Broker, instance: Instance) -> None:
        """Shortens one instance as `StorageShortening` does."""
        name = instance.name
        total, room = broker.credits.grants_by_instance.get(name), broker.credits.rooms[name]
        if total is None or broker.is_paused or not instance.shrinks:
            return
        figures = shortening.StorageFigures(
            instance.bought_bytes, total.reported_bytes, total.counted_bytes, self.used(broker, instance)
        )
        was_over, was = broker.over.get(name, False), broker.shortened.get(name, False)
        is_over = broker.over[name] = shortening.must_shorten(figures, was)
        is_shortened = broker.shortened[name] = is_over and (was_over or was)
        is_heard = self.now_ms - broker.answered_ms <= RESPONSE_AGE_MS_MAX
        is_known = is_heard and self.now_ms - instance.led_since_ms >= self.moved_ms
        if not (is_shortened and is_known) or total.reported_bytes < broker.used_before.get(name, 0):
            broker.retriable_until_ms[name] = self.now_ms + RETRIABLE_MS
        broker.used_before[name] = total.reported_bytes
        if is_shortened and is_known and self.delete_oldest(broker, instance, figures):
            broker.retriable_until_ms[name] = self.now_ms + RETRIABLE_MS
        room.is_shortened = self.now_ms < broker.retriable_until_ms.get(name, 0)

    def delete_oldest(self, broker: Broker, instance: Instance, figures: shortening.StorageFigures) -> int:
        """Deletes the oldest segments and returns their number."""
        logs = {
            (instance.name, at): [shortening.OldSegment(size * REPLICAS, newest) for size, newest in log.segments[:-1]]
            for at, log in enumerate(instance.logs)
            if log.leader == broker.id
        }
        chosen = shortening.segments_to_delete(
            logs,
            shortening.excess_bytes(figures),
            now_ms=self.now_ms,
            age_ms_min=FLOOR_MS,
            is_urgent=shortening.is_urgent(figures),
        )
        for (_, at), count in chosen.items():
            gone = instance.logs[at].segments[:count]
            del instance.logs[at].segments[:count]
            instance.freed_bytes += sum(size for size, _ in gone) * REPLICAS
            self.check_age(gone)
        if chosen:
            self.check_not_too_much(instance)
        return sum(chosen.values())

    # -- events --------------------------------------------------------------------------------------------------------

    def elect(self) -> None:
        self.term += 1
        self.ledger = StorageLedger(self.now_ms)
        self.ledger.set_live_brokers(BROKERS, self.now_ms)

    def restart(self, broker: Broker) -> None:
        if self.starts < 5:
            self.starts += 1
            broker.epoch += 1
            self.start(broker)

    def move(self) -> None:
        """Moves the leadership of a partition, unless some broker has not reported since the last move or is paused.

        A paused broker has left the cluster by the time others lead its partitions.
        """
        if not self.unaware and not any(broker.is_paused for broker in self.brokers.values()):
            self.unaware = set(BROKERS)
            instance = self.random.choice(self.instances)
            instance.led_since_ms = self.now_ms
            self.random.choice(instance.logs).leader = self.random.choice(BROKERS)

    def disturb(self) -> None:
        random = self.random
        happens = random.choices(("none", "move", "restart", "elect", "pause", "delete"), (970, 10, 2, 2, 10, 6))[0]
        if happens != "none":
            self.history.append(f"{self.now_ms} ms: {happens}")
        match happens:
            case "move":
                self.move()
            case "restart":
                self.restart(random.choice(list(self.brokers.values())))
            case "elect":
                self.elect()
            case "pause":
                broker = random.choice(list(self.brokers.values()))
                broker.is_paused = not broker.is_paused and not self.unaware
            case "delete":
                log = random.choice(random.choice(self.instances).logs)
                del log.segments[: random.randint(0, len(log.segments) - 1)]

    def step(self) -> None:
        self.now_ms += STEP_MS
        self.disturb()
        self.write_all()
        self.report_due()
        self.check()

    def write_all(self) -> None:
        for instance in self.instances:
            instance.past.append(Moment(instance.stored_bytes, instance.appended_bytes, instance.freed_bytes))
            if self.random.random() < 0.01:
                instance.speed = self.random.choice((0, 10, 1_000, 30_000, 400_000))
            for log in instance.logs:
                left = instance.speed
                for _ in range(WRITES_MAX):
                    if left <= 0:
                        break
                    size_bytes = min(left, self.random.randint(1, max(1, instance.bought_bytes // 200)))
                    if self.write(instance, log, size_bytes) != OK:
                        break
                    left -= size_bytes
                    self.check_bought(instance)

    def report_due(self) -> None:
        for broker in self.brokers.values():
            if self.now_ms % REPORT_MS == broker.id * STEP_MS:
                self.report(broker)
                for instance in self.instances:
                    self.shorten(broker, instance)

    def finish(self) -> None:
        """Ends all faults and deletes everything stored: records must be accepted again within 5 s."""
        for broker in self.brokers.values():
            broker.is_paused = False
        self.loss = 0.0
        for _ in range(DEAD_BROKER_MS // STEP_MS):
            self.now_ms += STEP_MS
            self.report_due()
        for instance in self.instances:
            for log in instance.logs:
                log.segments = [[0, self.now_ms]]
        refused = [(instance, log) for instance in self.instances for log in instance.logs]
        for _ in range(TAKEN_AGAIN_MS // STEP_MS):
            self.now_ms += STEP_MS
            self.report_due()
            refused = [pair for pair in refused if self.write(*pair, pair[0].bought_bytes // 1_000) != OK]
        if refused:
            raise Broken(
                f"produces of {refused[0][0].name} are refused {TAKEN_AGAIN_MS} ms after all records were deleted"
            )

    def close(self) -> None:
        """Does nothing: the run has no resources."""

    # -- promises ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        for instance in self.instances:
            self.check_bought(instance)

    def check_bought(self, instance: Instance) -> None:
        if instance.stored_bytes > instance.bought_bytes * MOST:
            raise Broken(
                f"{self.now_ms} ms: {instance.stored_bytes:,} bytes are stored of {instance.bought_bytes:,} bought"
            )

    def check_age(self, gone: list[list[int]]) -> None:
        if any(self.now_ms - newest < FLOOR_MS for _, newest in gone):
            raise Broken(f"{self.now_ms} ms: a record younger than the minimum age was deleted")

    def check_not_too_much(self, instance: Instance) -> None:
        """Checks that shortening leaves enough.

        Bytes of the last ten seconds count as left, because reports of deletions by tenants may be that old.
        """
        left_bytes = max(
            at.stored_bytes + instance.appended_bytes - at.appended_bytes - (instance.freed_bytes - at.freed_bytes)
            for at in instance.past
        )
        if left_bytes * 100 < instance.bought_bytes * LEFT_PERCENT:
            raise Broken(f"{self.now_ms} ms: shortened at {instance.stored_bytes:,} of {instance.bought_bytes:,} bytes")


def run(seed: int, steps: int) -> World:
    world = World(seed)
    for _ in range(steps):
        world.step()
    return world
