"""Threads by path, and clients in turn."""

from __future__ import annotations

import pytest

from config.web.lanes import LANES, Lane, LaneQueue, Waiting, lane_of
from config.web.limits import QUEUED_MAX, QUEUED_S_MAX

LANE = Lane("some", threads=4, per_client=2)


def filled(*clients: str) -> LaneQueue[int]:
    queue: LaneQueue[int] = LaneQueue(LANE)
    for number, client in enumerate(clients):
        assert queue.put(Waiting(client, float(number), number))
    return queue


def taken(queue: LaneQueue[int], count: int) -> list[int | None]:
    return [None if (one := queue.take()) is None else one.item for _ in range(count)]


@pytest.mark.parametrize(
    ("path", "lane"),
    [
        ("/healthz", "health"),
        ("/readyz", "probes"),
        ("/operator/", "operators"),
        ("/operator/login/", "operators"),
        ("/api/v1/operator/clusters", "operators"),
        ("/accounts/login/", "sign-in"),
        ("/static/console/app.css", "files"),
        ("/", "tenants"),
        ("/api/v1/instances", "tenants"),
        ("/%6fperator/", "tenants"),
        ("//operator/", "tenants"),
        ("", "tenants"),
    ],
)
def test_a_path_has_a_lane(path: str, lane: str) -> None:
    assert lane_of(path).name == lane


def test_every_lane_has_threads_and_one_client_never_all_where_there_are_several() -> None:
    for lane in LANES:
        assert 1 <= lane.per_client <= lane.threads


def test_clients_have_turns() -> None:
    assert taken(filled("a", "a", "a", "b", "c"), 4) == [0, 3, 4, 1]


def test_one_client_leaves_threads_to_others() -> None:
    queue = filled("a", "a", "a", "a")
    assert taken(queue, 3) == [0, 1, None]
    assert queue.put(Waiting("b", 9.0, 9))
    assert taken(queue, 2) == [9, None]
    queue.finish("a")
    assert taken(queue, 2) == [2, None]
    assert (len(queue), queue.running) == (1, 3)


def test_a_full_lane_takes_no_more() -> None:
    queue = filled(*("a" for _ in range(QUEUED_MAX)))
    assert not queue.put(Waiting("b", 0.0, 0))


def test_who_waits_too_long_waits_no_more() -> None:
    queue = filled("a", "b", "a")
    assert [one.item for one in queue.expired(QUEUED_S_MAX + 1.5)] == [0, 1]
    assert len(queue) == 1
    assert taken(queue, 2) == [2, None]
