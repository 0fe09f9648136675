"""Evaluation of floods in the benchmarks of limits, and the fixed places at which a flood reads its answers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from benchmarks import flood, hot_partition, quota_accuracy, raw_requests, stock_client
from benchmarks.quota_accuracy import FLOODS, FULL_SIZE, QUICK_SIZE, Cell, figures_of, groups_of
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_response
from brokers.engine.protocol.messages.metadata import MetadataResponse
from brokers.engine.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from brokers.engine.protocol.messages.sasl import ApiVersionsResponse
from brokers.engine.protocol.messages.topics import (
    CreatableTopicResult,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsResponse,
)

CORRELATION = b"\x00\x00\x00\x01"


def answer(api_key: ApiKey, version: int, message: Any) -> bytes:
    return CORRELATION + encode_response(api_key, version, message)


def result(slots: list[int], throttled: int = 1) -> dict[str, Any]:
    return {"slots": slots, "throttled": throttled, "throttle_ms_p50": 5, "throttle_ms_p99": 9, "throttle_ms_max": 9,
            "errors": {}, "lost": 0}  # fmt: skip


def test_a_flood_reads_error_and_throttle_time_of_each_kind_of_answer() -> None:
    partition = PartitionProduceResponse(index=0, error_code=-1, base_offset=7)
    produced = ProduceResponse(
        responses=[TopicProduceResponse(name="a-topic", partition_responses=[partition])], throttle_time_ms=250
    )
    made = CreateTopicsResponse(topics=[CreatableTopicResult(name="a", error_code=36)], throttle_time_ms=70)
    deleted = DeleteTopicsResponse(responses=[DeletableTopicResult(name="ab", error_code=3)], throttle_time_ms=80)
    listed = MetadataResponse(throttle_time_ms=90)
    versions = ApiVersionsResponse(error_code=35)
    read = raw_requests.read_produced("a-topic")
    assert read(answer(ApiKey.PRODUCE, raw_requests.PRODUCE, produced)) == (-1, 250)
    assert raw_requests.read_mutation(answer(ApiKey.CREATE_TOPICS, raw_requests.CREATE, made)) == (36, 70)
    assert raw_requests.read_mutation(answer(ApiKey.DELETE_TOPICS, raw_requests.DELETE, deleted)) == (3, 80)
    assert raw_requests.read_throttled(answer(ApiKey.METADATA, raw_requests.METADATA, listed)) == (0, 90)
    assert raw_requests.read_api_versions(answer(ApiKey.API_VERSIONS, 0, versions)) == (35, 0)


@pytest.mark.parametrize("batch_bytes", [1_000, 16_000, 128_000, 1_000_000])
def test_a_batch_weighs_about_what_is_wanted(batch_bytes: int) -> None:
    frame = raw_requests.produce("client", "topic", 0, batch_bytes)
    assert batch_bytes - 10 <= len(frame) <= batch_bytes + 100


def test_a_tally_counts_in_tenths_of_a_second_since_the_first_answer() -> None:
    tally = flood.Tally()
    for now_s, weight, error, throttle_ms in ((5.0, 10, 0, 0), (5.05, 10, 0, 30), (5.31, 7, 0, 50), (5.4, 99, 3, 0)):
        tally.record_response(now_s, weight, error, throttle_ms)
    summary = tally.summary()
    assert summary["slots"] == [20, 0, 0, 7]
    assert summary["errors"] == {"3": 1}
    assert (summary["throttled"], summary["throttle_ms_mean"], summary["throttle_ms_max"]) == (2, 40.0, 50)
    assert flood.per_s(summary, 0, 0.4) == 27 / 0.4


def test_errors_are_those_of_the_whole_time_and_of_each_ten_seconds() -> None:
    tenth = quota_accuracy.MB // 10
    figures = figures_of(result([2 * tenth] * 100 + [tenth] * 500), Cell(1, 1_000, 1.0, 1), 60)
    assert figures["error_percent"] == 16.7
    assert (figures["span_error_percent"], figures["span_error_percent_worst"]) == (0.0, 100.0)
    assert figures["is_offered"]
    assert not figures_of(result([tenth // 2] * 600, 0), Cell(1, 1_000, 1.0, 1), 60)["is_offered"]


def test_tables_have_a_column_for_each_figure_of_each_target() -> None:
    cells = (Cell(1, 1_000, 1.0, 1), Cell(1, 1_000, 1.0, 3), Cell(10, 16_000, 50.0, 1))
    quiet = figures_of(result([10] * 600, 0), cells[2], 60)
    figures = figures_of(result([quota_accuracy.MB // 10] * 600), cells[0], 60)
    taken = {(cell, target): figures for cell in cells[:2] for target in ("penstock", "peer")}
    taken |= {(cells[2], target): quiet for target in ("penstock", "peer")}
    targets = ("penstock", "peer")
    errors, waits = quota_accuracy.errors_table(taken, targets, 60), quota_accuracy.delays_table(taken, targets)
    for table in (errors, waits):
        lines = table.splitlines()
        assert len({line.count("|") for line in lines}) == 1, table
        assert len(lines) == 2 + len(cells)
    assert "not offered" in errors


def test_cells_have_names_of_their_own_and_the_quick_ones_take_three_minutes_for_two_targets() -> None:
    assert len(FLOODS) == 96
    assert len({cell.name for cell in FULL_SIZE}) == len(FULL_SIZE) == len(FLOODS) + 8
    _, seconds = quota_accuracy.SIZES["quick"]
    before_s = 2 * max(stock_client.BURST_S, stock_client.IDLE_S)
    assert 2 * len(groups_of(QUICK_SIZE)) * (seconds + 2 + before_s) <= 180


def test_the_peak_window_may_begin_at_any_slot() -> None:
    assert hot_partition.peak_bytes_per_s([0] * 37 + [5] * 100 + [1] * 20) == 50.0
    assert hot_partition.peak_bytes_per_s([5] * 20) == 10.0


def test_each_pattern_of_a_stock_client_is_a_row_of_its_own() -> None:
    cells = tuple(Cell(1, 16_000, 1.0, 3, load) for load in ("flood", *stock_client.KINDS))
    figures = figures_of(result([quota_accuracy.MB // 10] * 600), cells[0], 60)
    taken = {(cell, "penstock"): figures for cell in cells}
    for table in (
        quota_accuracy.errors_table(taken, ["penstock"], 60),
        quota_accuracy.delays_table(taken, ["penstock"]),
    ):
        rows = [line.split(" | ")[0] for line in table.splitlines()[2:]]
        assert sorted(rows) == ["| first-burst", "| flood", "| serial"]
    for size in ("quick", "patterns", "whole"):
        assert {cell.load for cell in quota_accuracy.SIZES[size][0]} >= set(stock_client.KINDS)


class InstantProducer:
    """Stand-in for confluent-kafka's producer: acknowledges all records 50 ms after the first poll."""

    def __init__(self, conf: dict[str, Any], clock: list[float]) -> None:
        self.conf = conf
        self.partitions: list[int] = []
        self.flushed_at: list[int] = []
        self._waiting: list[Any] = []
        self._clock = clock

    def list_topics(self, topic: str, _timeout_s: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=dict.fromkeys(range(3)))})

    def produce(self, _topic: str, _value: bytes, *, partition: int, on_delivery: Any) -> None:
        self.partitions.append(partition)
        self._waiting.append(on_delivery)

    def poll(self, timeout_s: float) -> None:
        self._clock[0] += timeout_s
        self.flush(0)

    def flush(self, _timeout_s: float) -> int:
        self._clock[0] += 0.05
        self.flushed_at.append(len(self.partitions))
        waiting, self._waiting = self._waiting, []
        for deliver in waiting:
            deliver(None, None)
        return 0

    def purge(self) -> None:
        self._waiting = []


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[stock_client.StockClient, Any]]:
    clock = [100.0]
    monkeypatch.setattr(stock_client, "Producer", lambda conf: InstantProducer(conf, clock))
    monkeypatch.setattr(stock_client, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def made(kind: str) -> tuple[stock_client.StockClient, Any]:
        given = argparse.Namespace(
            kind=kind, bootstrap="", client_id="c", topic="t", batch_bytes=100_000, limit=1_000_000, seconds=1.0
        )
        result = stock_client.StockClient(given)
        return result, result._producer

    return made


def test_a_serial_client_waits_for_each_record_in_turn_after_a_spell_that_is_not_counted(client: Any) -> None:
    serial, producer = client("serial")
    tally = serial.run()
    spell = producer.flushed_at[0]
    assert spell == pytest.approx(stock_client.BURST_S * 10, abs=1)
    assert set(producer.partitions[:spell]) == {0}
    after = producer.partitions[spell:]
    assert all(later == (sooner + 1) % 3 for sooner, later in pairwise(after))
    assert producer.flushed_at[1:-1] == list(range(spell + 1, spell + 1 + len(after)))
    assert sum(tally.slots) / len(after) == pytest.approx(100_000, rel=0.001)


def test_a_first_burst_is_sent_at_once_after_idle_time_and_goes_on(client: Any) -> None:
    burst, producer = client("first-burst")
    tally = burst.run()
    first, idle, at_once = producer.flushed_at[:3]
    assert (first, idle) == (3, 3)
    assert at_once - idle == pytest.approx(stock_client.BURST_S * 10, abs=1)
    assert len(producer.partitions) > at_once
    assert tally.answers == len(producer.partitions) - first


def test_a_stock_client_notes_waits_errors_and_nothing_that_it_gave_up_itself(client: Any) -> None:
    stock, _ = client("serial")
    for wait_s in (0.25, 0.0):
        stock._on_throttle(SimpleNamespace(throttle_time=wait_s))
    for code in (*stock_client.GIVEN_UP, 7):
        stock._on_delivery(SimpleNamespace(code=lambda code=code: code), None)
    for code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
        stock._on_error(SimpleNamespace(code=lambda code=code: code))
    summary = stock.tally.summary()
    assert (summary["throttled"], summary["throttle_ms_max"]) == (1, 250)
    assert (summary["errors"], summary["slots"]) == ({str(KafkaError._ALL_BROKERS_DOWN): 1, "7": 1}, [])
    assert summary["lost"] == 1
