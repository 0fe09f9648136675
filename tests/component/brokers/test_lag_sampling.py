"""Rounds of the lag sampler: bounded in groups and partitions, in turn, and under the tenants' names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from django.core.cache import cache
from structlog.testing import capture_logs

from brokers.monitoring import lag_sampling
from brokers.monitoring.lag_sampling import next_ids, within_limits
from instances.groups import lag_history
from instances.groups.interfaces import CommittedOffset, Partition
from instances.limits import LAG_PARTITIONS_PER_GROUP_MAX
from instances.naming import internal_scoped, internal_topic

ONE, OTHER = "ins-aaaaaaaa", "ins-bbbbbbbb"
NOW_MS = 1_790_000_000_000
LONG = "x" * 249


class FakeLags:
    """Groups with offsets by (instance, group, topic, partition); each log ends at 100."""

    is_partial = False

    def __init__(self, offsets: Mapping[tuple[str, str, str, int], int]) -> None:
        self.found: dict[str, list[CommittedOffset]] = {}
        for (instance, group, topic, index), offset in offsets.items():
            item = CommittedOffset(topic=internal_topic(instance, topic), partition=index, offset=offset)
            self.found.setdefault(internal_scoped(instance, group), []).append(item)
        self.asked: list[set[Partition]] = []
        self.deaf: set[Partition] = set()
        self.listed = 0
        self.owners: list[tuple[str, list[str]]] = []
        self.silent = False
        self._names = {internal_topic(instance, topic): topic for instance, _, topic, _ in offsets}

    def group_ids(self) -> list[str]:
        self.listed += 1
        return sorted(self.found)

    def committed_offsets(self, ids: Sequence[str]) -> Mapping[str, tuple[CommittedOffset, ...]]:
        return {item: tuple(self.found[item]) for item in ids}

    def topic_names(self, instance_id: str, groups: Sequence[str]) -> Mapping[str, str]:
        self.owners.append((instance_id, list(groups)))
        return {} if self.silent else self._names

    def end_offsets(self, places: set[Partition]) -> Mapping[Partition, int]:
        self.asked.append(places)
        return {place: 100 for place in places if place not in self.deaf}


@pytest.fixture(autouse=True)
def _fresh_cache() -> None:
    cache.clear()


def latest(instance_id: str) -> dict[str, dict[str, int]]:
    return {group: by_topic for group, (_, by_topic) in lag_history.latest_lags(instance_id, NOW_MS).items()}


def test_lags_are_kept_by_instance_under_the_names_that_tenants_know() -> None:
    lags = FakeLags({(ONE, "etl", "orders", 0): 40, (ONE, "etl", "clicks", 3): 99, (OTHER, "etl", "orders", 0): 1})
    assert lag_sampling.sample_cluster("cl-1", lags, NOW_MS) == 2
    assert latest(ONE) == {"etl": {"orders": 60, "clicks": 1}}
    assert latest(OTHER) == {"etl": {"orders": 99}}
    assert lag_history.record_lags(ONE, {"etl": 0}, NOW_MS + 10_000)["etl"] == ((NOW_MS, 61), (NOW_MS + 10_000, 0))


def test_the_trend_of_a_page_begins_where_the_sampler_has_been() -> None:
    lags = FakeLags({(ONE, "etl", "orders", 0): 40})
    for at in range(8):
        lags.found[f"{ONE}.etl"][0] = CommittedOffset(topic=f"{ONE}.orders", partition=0, offset=40 - at)
        lag_sampling.sample_cluster("cl-1", lags, NOW_MS + at * 10_000)
    samples = lag_history.record_log_ends(ONE, "etl", {("orders", 0): 100}, NOW_MS + 80_000)
    assert len(samples) == 9
    assert lag_history.has_grown(lag_history.record_lags(ONE, {"etl": 68}, NOW_MS + 80_000)["etl"])


def test_a_lag_with_an_unknown_partition_is_left_out() -> None:
    lags = FakeLags({(ONE, "etl", "orders", 0): 40, (ONE, "etl", "orders", 1): 40, (ONE, "well", "orders", 0): 90})
    lags.deaf = {(f"{ONE}.orders", 1)}
    lag_sampling.sample_cluster("cl-1", lags, NOW_MS)
    assert latest(ONE) == {"well": {"orders": 10}}


def test_a_topic_that_the_cluster_knows_by_a_hash_appears_under_its_owners_name_or_not_at_all() -> None:
    lags = FakeLags({(ONE, "etl", LONG, 0): 40, (ONE, "well", "orders", 0): 90})
    lags.silent = True
    lag_sampling.sample_cluster("cl-1", lags, NOW_MS)
    assert latest(ONE) == {"well": {"orders": 10}}

    lags.silent = False
    lag_sampling.sample_cluster("cl-1", lags, NOW_MS)
    assert latest(ONE) == {"well": {"orders": 10}, "etl": {LONG: 60}}
    assert lags.owners == [(ONE, ["etl"])] * 2


def test_owners_asked_in_a_round_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_sampling, "LAG_OWNERS_PER_ROUND_MAX", 1)
    lags = FakeLags({(ONE, "a", LONG, 0): 40, (ONE, "b", LONG, 0): 50, (OTHER, "c", LONG, 0): 60})
    assert lag_sampling.sample_cluster("cl-1", lags, NOW_MS) == 2
    assert lag_sampling.sample_cluster("cl-1", lags, NOW_MS) == 1
    assert lags.owners == [(ONE, ["a", "b"]), (OTHER, ["c"])]
    assert (latest(ONE), latest(OTHER)) == ({"a": {LONG: 60}, "b": {LONG: 50}}, {"c": {LONG: 40}})


def test_a_round_goes_on_where_the_one_before_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_sampling, "LAG_GROUPS_PER_ROUND_MAX", 2)
    lags = FakeLags({(ONE, f"g{at}", "orders", at): 40 for at in range(5)})
    seen = []
    for _ in range(3):
        lag_sampling.sample_cluster("cl-1", lags, NOW_MS)
        seen.append(sorted(index for _, index in lags.asked[-1]))
    assert seen == [[0, 1], [2, 3], [0, 4]]
    assert lags.listed == 2, "the first list serves for two rounds"


def test_large_groups_have_their_turn_and_no_more_than_a_rounds_partitions_are_asked_for_them_in_the_mean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lag_sampling, "LAG_PARTITIONS_PER_GROUP_MAX", 2)
    monkeypatch.setattr(lag_sampling, "LAG_PARTITIONS_PER_ROUND_MAX", 3)
    lags = FakeLags(
        {(ONE, "big", "orders", at): 40 for at in range(7)}
        | {(ONE, "large", "clicks", at): 90 for at in range(3)}
        | {(ONE, "small", "sales", 0): 99}
    )
    seen = [lag_sampling.sample_cluster("cl-1", lags, NOW_MS + at) for at in range(7)]
    message = latest(ONE)
    assert message == {"big": {"orders": 7 * 60}, "large": {"clicks": 3 * 10}, "small": {"sales": 1}}
    # big costs 7: nothing is left for the second round. small is looked at in each.
    assert seen == [2, 1, 2, 2, 1, 2, 2]
    assert max(len(places) for places in lags.asked) <= 3


def test_a_large_group_that_shrank_is_one_of_many_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_sampling, "LAG_PARTITIONS_PER_GROUP_MAX", 2)
    lags = FakeLags({(ONE, "big", "orders", at): 40 for at in range(3)})
    assert lag_sampling.sample_cluster("cl-1", lags, NOW_MS) == 1
    del lags.found[f"{ONE}.big"][1:]
    assert [lag_sampling.sample_cluster("cl-1", lags, NOW_MS) for _ in range(2)] == [0, 1]
    assert latest(ONE) == {"big": {"orders": 60}}


def test_a_group_too_large_for_any_sample_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_sampling, "LAG_PARTITIONS_PER_GROUP_MAX", 2)
    monkeypatch.setattr(lag_sampling, "LAG_LARGE_GROUP_PARTITIONS_MAX", 4)
    lags = FakeLags({(ONE, "huge", "orders", at): 40 for at in range(5)} | {(ONE, "small", "sales", 0): 99})
    assert [lag_sampling.sample_cluster("cl-1", lags, NOW_MS) for _ in range(2)] == [1, 1]
    assert latest(ONE) == {"small": {"sales": 1}}


def test_partitions_of_a_round_are_limited_and_groups_too_large_for_any_round_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lag_sampling, "LAG_PARTITIONS_PER_ROUND_MAX", 5)
    item = CommittedOffset(topic=f"{ONE}.orders", partition=0, offset=0)
    sizes = {"a": 3, "b": LAG_PARTITIONS_PER_GROUP_MAX + 1, "c": 2, "d": 1}
    assert within_limits(sorted(sizes), {name: (item,) * size for name, size in sizes.items()}) == (
        ["a", "c"],
        ["b"],
    )


@pytest.mark.parametrize(("after", "expected"), [("", "abc"), ("a", "bca"), ("bb", "cab"), ("z", "abc")])
def test_ids_come_round_again(after: str, expected: str) -> None:
    assert "".join(next_ids(list("abc"), after)) == expected


def test_an_instance_whose_sample_cannot_be_kept_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    lags = FakeLags({(ONE, "g", "t", 0): 90, (OTHER, "g", "t", 0): 80})
    original = lag_history.record_samples

    def poisoned(instance_id: str, *sample: Any) -> None:
        if instance_id == ONE:
            raise OverflowError
        original(instance_id, *sample)

    monkeypatch.setattr(lag_history, "record_samples", poisoned)
    with capture_logs() as written:
        lag_sampling.sample_cluster("c", lags, NOW_MS)
    assert [line["instance_id"] for line in written if line["event"] == "lags.instance_failed"] == [ONE]
    assert latest(OTHER) == {"g": {"t": 20}}


def test_lists_of_some_instances_leave_out_no_group_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a Kafka cluster a list has the groups of some instances: the next one comes when all of these are sampled."""
    monkeypatch.setattr(lag_sampling, "LAG_GROUPS_PER_ROUND_MAX", 2)
    groups = {(instance, f"g{number}", "orders", 0): 90 for instance in (ONE, OTHER) for number in range(3)}
    lags = FakeLags(groups)
    lags.is_partial = True
    all_ids, turns = sorted(lags.found), iter([ONE, OTHER, ONE, OTHER])

    def next_groups() -> list[str]:
        owner = next(turns)
        return [group for group in all_ids if group.startswith(owner)]

    monkeypatch.setattr(lags, "group_ids", next_groups)
    sampled = [lag_sampling.sample_cluster("cl-kafka", lags, NOW_MS + number) for number in range(4)]
    assert sampled == [2, 1, 2, 1]
    assert latest(ONE).keys() == latest(OTHER).keys() == {"g0", "g1", "g2"}
