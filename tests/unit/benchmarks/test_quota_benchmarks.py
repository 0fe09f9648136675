"""What the benchmarks of limits make of what floods saw, and the fixed places at which a flood reads its answers."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import flood, hot_partition, quota_accuracy, raw_requests
from benchmarks.quota_accuracy import QUICK, WHOLE, Cell, figures_of
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_response
from brokers.engine.protocol.messages.metadata import MetadataResponse
from brokers.engine.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from brokers.engine.protocol.messages.topics import (
    CreatableTopicResult,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsResponse,
)
from brokers.engine.protocol.messages.versions import ApiVersionsResponse

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
        tally.note(now_s, weight, error, throttle_ms)
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
    errors, waits = quota_accuracy.errors_table(taken, targets, 60), quota_accuracy.waits_table(taken, targets)
    for table in (errors, waits):
        lines = table.splitlines()
        assert len({line.count("|") for line in lines}) == 1, table
        assert len(lines) == 2 + len(cells)
    assert "not offered" in errors


def test_cells_have_names_of_their_own_and_the_quick_ones_take_three_minutes_for_two_targets() -> None:
    assert len({cell.name for cell in WHOLE}) == len(WHOLE) == 96
    _, seconds = quota_accuracy.SIZES["quick"]
    assert 2 * len(QUICK) * (seconds + 2) <= 180


def test_the_fullest_span_is_wherever_it_lies() -> None:
    assert hot_partition.most_over_a_span([0] * 37 + [5] * 100 + [1] * 20) == 50.0
    assert hot_partition.most_over_a_span([5] * 20) == 10.0
