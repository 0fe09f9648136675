"""The writer of samples: idempotent, complete over restarts, refilled after a lost cache, and bounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.cache import cache

from brokers.limits import SAMPLE_SPAN_MS
from brokers.models import Broker, Cluster, PortLease
from brokers.monitoring import observe, second_samples, traffic_samples
from brokers.monitoring.observe import AdminPortObservation, AdminTarget, BrokerAnswers
from instances.interfaces import BrokerUnresponsive
from instances.models import Instance, ThrottledMinute
from tests.testkit.api_cases import make_member
from tests.testkit.fleet import make_fleet, make_running

pytestmark = pytest.mark.django_db

BEGAN_MS = 1_790_000_000_000 // 60_000 * 60_000
CAUSE = {
    "kind": "instance_bandwidth", "quota": "producer_byte_rate", "level": None, "entity": {}, "whole_limit_per_s": 5e6,
    "count": 3, "waited_ms": 90, "longest_ms": 40, "clients": [["u", "etl", 3, 90]],
}  # fmt: skip


@dataclass
class FakeBroker:
    """Samples of one broker process by instance, with `page` instances in an answer."""

    alive_since_ms: int
    points: dict[str, list[list[int]]] = field(default_factory=dict)
    minutes: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    is_silent: bool = False
    page: int = 100

    def answer(self, path: str, now_ms: int) -> dict[str, Any]:
        parts = urlsplit(path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        since_ms, until_ms = int(query.get("since_ms", 0)), int(query.get("until_ms", 2**53))
        head = {"now_ms": now_ms, "step_ms": 1_000, "alive_since_ms": self.alive_since_ms}
        if "/instances/" in parts.path:
            rows = self.points.get(parts.path.split("/")[3], [])
            return {**head, "points": [row for row in rows if row[0] >= since_ms]}
        ids = sorted(id for id in {*self.points, *self.minutes} if id > query.get("after", ""))
        shown = {
            id: {
                "points": [row for row in self.points.get(id, []) if since_ms <= row[0] < until_ms],
                "throttled": self.minutes.get(id, []),
            }
            for id in ids[: self.page]
        }
        return {**head, "instances": shown, "next": ids[self.page - 1] if len(ids) > self.page else None}


@dataclass
class Fleet:
    """Two brokers of a cluster that serve one instance, and the clock."""

    cluster: Cluster
    instance: Instance
    brokers: dict[int, FakeBroker]
    now_ms: int = BEGAN_MS + 100_000
    asked: list[str] = field(default_factory=list)

    def query_each(self, questions: Sequence[tuple[AdminTarget, str]]) -> BrokerAnswers:
        bodies, silent = {}, []
        for target, path in questions:
            self.asked.append(path)
            if self.brokers[target.number].is_silent:
                silent.append(BrokerUnresponsive(broker_id=target.number, reason="does not answer"))
            else:
                bodies[target.number] = self.brokers[target.number].answer(path, self.now_ms)
        return BrokerAnswers(bodies=bodies, silent=tuple(silent))

    def collect(self) -> int:
        return traffic_samples.collect_samples(self.now_ms)

    def traffic(self) -> Any:
        cache.delete(f"observe:{self.instance.pk}:latest")
        return AdminPortObservation().traffic(self.instance.pk, 0)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    cache.clear()
    cluster = make_fleet(tmp_path, brokers=2)
    instance = make_running(make_member().tenant)
    for port, broker in enumerate(Broker.objects.filter(cluster=cluster)):
        PortLease.objects.create(broker=broker, host=broker.host, instance=instance, port=29_000 + port)
    numbers = list(Broker.objects.filter(cluster=cluster).order_by("number").values_list("number", flat=True))
    result = Fleet(cluster, instance, {number: FakeBroker(BEGAN_MS - 1_000_000) for number in numbers})
    monkeypatch.setattr(observe, "query_each", result.query_each)
    return result


def test_a_restart_takes_away_nothing_but_the_seconds_without_a_process(fleet: Fleet) -> None:
    first, second = fleet.brokers
    at_ms = fleet.now_ms - 10_000
    for number in fleet.brokers:
        fleet.brokers[number].points[fleet.instance.pk] = [[at_ms, 100 * number, 7, 5]]
    assert fleet.collect() == 1
    kept_to_ms = fleet.now_ms
    fleet.now_ms += 8_000
    fleet.brokers[second] = FakeBroker(fleet.now_ms - 2_000)

    seen = fleet.traffic()

    assert {point[0]: point[1:] for point in seen.points}[at_ms] == (100 * (first + second), 14, 5)
    assert seen.known_by_broker[first] == ((kept_to_ms - observe.TRAFFIC_HISTORY_MS, fleet.now_ms),)
    assert [span[1] for span in seen.known_by_broker[second]] == [kept_to_ms, fleet.now_ms]
    assert seen.known_by_broker[second][1][0] == fleet.now_ms - 2_000


def test_collecting_twice_or_by_two_keeps_the_same(fleet: Fleet) -> None:
    number = min(fleet.brokers)
    minute_ms = fleet.now_ms - fleet.now_ms % 60_000
    broker = fleet.brokers[number]
    broker.points[fleet.instance.pk] = [[fleet.now_ms - age * 1_000, age, 0, 0] for age in range(30, 0, -1)]
    broker.minutes[fleet.instance.pk] = [{"minute_ms": minute_ms, "causes": [CAUSE]}]
    for _ in range(3):
        fleet.collect()
    broker.minutes[fleet.instance.pk] = [{"minute_ms": minute_ms, "causes": [CAUSE | {"count": 2}]}]
    fleet.collect()

    kept = second_samples.read_rows(fleet.instance.pk, [number], 0, fleet.now_ms)
    assert [row[1] for row in kept[number]] == list(range(30, 0, -1))
    row = ThrottledMinute.objects.get()
    assert (row.broker_number, row.count, row.causes[0]["clients"][0]["client_id"]) == (number, 3, "etl")
    assert (row.minute, row.causes[0]["unit"]) == (datetime.fromtimestamp(minute_ms / 1_000, UTC), "bytes_per_s")


def test_only_what_is_new_is_asked_for(fleet: Fleet) -> None:
    fleet.collect()
    fleet.asked.clear()
    fleet.now_ms += 5_000
    fleet.collect()
    since_ms = fleet.now_ms - 5_000 - traffic_samples.OVERLAP_MS
    until_ms = since_ms + SAMPLE_SPAN_MS
    assert fleet.asked == [f"/v1/traffic?since_ms={since_ms}&until_ms={until_ms}&after="] * 2


def test_a_lost_cache_is_filled_from_what_brokers_remember(fleet: Fleet) -> None:
    number = min(fleet.brokers)
    fleet.brokers[number].points[fleet.instance.pk] = [[fleet.now_ms - 700_000, 9, 0, 0]]
    fleet.collect()
    cache.clear()
    fleet.collect()
    assert second_samples.read_rows(fleet.instance.pk, [number], 0, fleet.now_ms)[number][0][1] == 9
    assert [point[1] for point in fleet.traffic().points] == [9]


def test_a_silent_broker_is_known_as_far_as_it_was_heard(fleet: Fleet) -> None:
    first, second = fleet.brokers
    fleet.brokers[second].points[fleet.instance.pk] = [[fleet.now_ms - 5_000, 9, 0, 0]]
    fleet.collect()
    kept_to_ms = fleet.now_ms
    fleet.brokers[second].is_silent = True
    fleet.now_ms += 30_000
    fleet.collect()
    seen = fleet.traffic()
    assert [point[1] for point in seen.points] == [9]
    assert seen.known_by_broker[second][-1][1] == kept_to_ms
    assert seen.known_by_broker[first][-1][1] == fleet.now_ms


def test_a_reader_far_behind_goes_on_in_the_next_round(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_samples, "SAMPLE_PAGES_MAX", 10)
    number = min(fleet.brokers)
    fleet.brokers[number].points[fleet.instance.pk] = [
        [fleet.now_ms - age * 1_000, age, 0, 0] for age in range(890, 0, -1)
    ]
    first_ms = fleet.now_ms - observe.TRAFFIC_HISTORY_MS
    ends = []
    for _ in range(3):
        fleet.collect()
        ends.append(second_samples.read_spans(fleet.cluster.pk, [number])[number])
    assert ends[0] == ((first_ms, first_ms + 10 * SAMPLE_SPAN_MS),)
    assert ends[2][0][0] == first_ms
    fleet.collect()
    assert second_samples.read_spans(fleet.cluster.pk, [number])[number] == ((first_ms, fleet.now_ms),)
    kept = second_samples.read_rows(fleet.instance.pk, [number], 0, fleet.now_ms)[number]
    assert [row[1] for row in kept] == list(range(890, 0, -1))


def test_while_less_is_kept_than_a_broker_remembers_a_page_asks_for_all_of_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = min(fleet.brokers)
    fleet.brokers[number].points[fleet.instance.pk] = [[fleet.now_ms - 100_000, 9, 0, 0]]
    monkeypatch.setattr(observe.time, "time_ns", lambda: fleet.now_ms * 1_000_000)
    second_samples.store_spans(fleet.cluster.pk, {number: ((fleet.now_ms - 10_000, fleet.now_ms),)})
    assert [point[1] for point in fleet.traffic().points] == [9]
    assert fleet.asked[0].endswith("since_ms=0")


def test_an_answer_in_pages_is_kept_whole(fleet: Fleet) -> None:
    number = min(fleet.brokers)
    others = [make_running(fleet.instance.tenant).pk for _ in range(4)]
    fleet.brokers[number].page = 2
    for instance_id in others:
        fleet.brokers[number].points[instance_id] = [[fleet.now_ms - 5_000, 9, 0, 0]]
    assert fleet.collect() == 4
    for instance_id in others:
        assert second_samples.read_rows(instance_id, [number], 0, fleet.now_ms)[number]


def test_reports_about_instances_that_are_gone_are_left_out(fleet: Fleet) -> None:
    number = min(fleet.brokers)
    fleet.brokers[number].minutes["ins-00000000"] = [{"minute_ms": BEGAN_MS, "causes": [CAUSE]}]
    fleet.collect()
    assert not ThrottledMinute.objects.exists()
