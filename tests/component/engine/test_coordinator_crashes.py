"""Crashes of a transaction's coordinator after each of its records, on three real broker processes: every partition and
the group see one outcome, in time, and the producer is fenced (TXN-11, TXN-16, TXN-17, TXN-26).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer, TopicPartition

from brokers.engine.protocol.errors import ErrorCode
from tests.component.engine.crashed import ASKED_AGAIN, PARTITIONS, TIMEOUT_S, Abandoned, Point, Stage
from tests.testkit.crashing import APPENDED, COMMITTED, Crash, CrashOrders
from tests.testkit.engine import EngineCluster
from tests.testkit.waiting import eventually

# The next coordinator may lack the record, if only the first one had it.
POINTS: Final = (
    Point("Empty", 0, True, APPENDED, ("Empty", "")),
    Point("Ongoing", 1, True, APPENDED, ("CompleteAbort", "Empty")),
    Point("Ongoing", 1, True, COMMITTED, ("CompleteAbort",)),
    Point("Ongoing", 2, True, APPENDED, ("CompleteAbort",)),
    Point("Ongoing", 3, True, APPENDED, ("CompleteAbort",)),
    Point("Ongoing", 3, True, COMMITTED, ("CompleteAbort",)),
    Point("PrepareCommit", 3, True, APPENDED, ("CompleteCommit", "CompleteAbort")),
    Point("PrepareCommit", 3, True, COMMITTED, ("CompleteCommit",)),
    Point("PrepareAbort", 3, False, COMMITTED, ("CompleteAbort",)),
    Point("CompleteCommit", 0, True, APPENDED, ("CompleteCommit",)),
    Point("CompleteAbort", 0, False, APPENDED, ("CompleteAbort",)),
)


@pytest.fixture(scope="module")
def stage(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    overrides = {
        "replica.lag.time.max.ms": "4000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
        "leader.imbalance.check.interval.seconds": "1",
    }
    directory: Path = tmp_path_factory.mktemp("crashes")
    orders = CrashOrders(directory / "orders.json")
    with EngineCluster(
        zookeeper_address, directory, size=3, session_timeout_ms=4_000, overrides=overrides, module=orders.module
    ) as cluster:
        yield Stage(cluster, orders)


def test_a_client_that_goes_with_its_coordinator_leaves_one_outcome_everywhere_in_time(stage: Stage) -> None:
    left = [Abandoned(stage, point) for point in POINTS]
    for item in left:
        item.run()
        stage.bring_back()

    result = [item.until_ended() for item in left]

    values = stage.read_committed()
    for item, state in zip(left, result, strict=True):
        is_committed = state == "CompleteCommit"
        assert [partition.count(item.value) for partition in values] == [int(is_committed)] * PARTITIONS, (
            item.name,
            values,
        )
        assert stage.offset_of(item.group) == (7 if is_committed else -1), item.name
    # Nor anything of attempts that took too long.
    committed = {item.value for item, state in zip(left, result, strict=True) if state == "CompleteCommit"}
    names = tuple(f"{item.name}, ".encode() for item in left)
    assert {value for partition in values for value in partition if value.startswith(names)} == committed
    for item in left:
        if item.id >= 0:
            _is_fenced(item)
    assert stage.ends("read_committed") == stage.ends("read_uncommitted")


def _is_fenced(one: Abandoned) -> None:
    """Asserts that a later producer of the transactional id fences this one."""
    heir = Abandoned(one.stage, one.point)
    eventually(lambda: heir.initialise() == 0, within_s=TIMEOUT_S, what="somebody else to begin")
    refusals: dict[str, tuple[Callable[[], int | None], ErrorCode]] = {
        "commit": (partial(one.end, True), ErrorCode.PRODUCER_FENCED),
        "abort": (partial(one.end, False), ErrorCode.PRODUCER_FENCED),
        "add": (partial(one.add, 0), ErrorCode.PRODUCER_FENCED),
        "produce": (partial(one.produce, 0), ErrorCode.INVALID_PRODUCER_EPOCH),
        "offsets": (one.commit_offsets, ErrorCode.INVALID_PRODUCER_EPOCH),
    }
    for what, (ask, code) in refusals.items():
        sent: list[int | None] = []

        def is_answered(ask: Callable[[], int | None] = ask, sent: list[int | None] = sent) -> bool:
            sent[:] = [ask()]
            return sent[0] not in ASKED_AGAIN

        eventually(is_answered, within_s=TIMEOUT_S, what="a zombie to be told")
        assert sent == [code], (one.name, what)


def test_a_client_that_lives_on_commits_through_a_crash_at_every_record(stage: Stage) -> None:
    """A transaction loses its coordinator after each of its records."""
    name, group = "lives-on", "lives-on-group"
    producer = Producer(
        {
            "bootstrap.servers": stage.instance.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 2 * TIMEOUT_S * 1_000,
            "message.timeout.ms": TIMEOUT_S * 1_000,
            "linger.ms": 0,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    consumer = stage.reader("read_committed", group)

    def crash(state: str, partitions: int, step: Callable[[], object]) -> None:
        stage.orders.place(Crash(stage.inside(name), state, partitions, COMMITTED))
        step()
        eventually(lambda: stage.orders.are_executed, within_s=TIMEOUT_S, what=f"the crash at {state}, {partitions}")
        stage.bring_back()

    def produce(index: int) -> None:
        producer.produce(stage.topic, b"through", partition=index)
        assert producer.flush(TIMEOUT_S) == 0

    try:
        crash("Empty", 0, lambda: producer.init_transactions(TIMEOUT_S))
        producer.begin_transaction()
        for index in range(PARTITIONS):
            crash("Ongoing", index + 1, partial(produce, index))
        offsets = [TopicPartition(stage.topic, 0, 5)]
        metadata = consumer.consumer_group_metadata()
        crash("Ongoing", 3, lambda: producer.send_offsets_to_transaction(offsets, metadata, TIMEOUT_S))
        crash("PrepareCommit", 3, lambda: producer.commit_transaction(TIMEOUT_S))
        producer.begin_transaction()
        produce(0)
        crash("CompleteAbort", 0, lambda: producer.abort_transaction(TIMEOUT_S))

        values = stage.read_committed()
        assert [partition.count(b"through") for partition in values] == [1] * PARTITIONS
        assert stage.offset_of(group) == 5
    finally:
        consumer.close()
