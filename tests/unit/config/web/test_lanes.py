"""Lanes of threads by path, with clients in turn."""

from __future__ import annotations

from collections import Counter

import pytest

from config.web.lanes import LANES, Lane, LaneQueue, WaitingRequest, lane_of
from config.web.limits import QUEUED_MAX, QUEUED_PER_CLIENT_MAX, QUEUED_S_MAX

LANE = Lane("some", threads=4, threads_per_client=2)


def filled(*clients: str) -> LaneQueue[int]:
    queue: LaneQueue[int] = LaneQueue(LANE)
    for number, client in enumerate(clients):
        assert queue.put(WaitingRequest(client, float(number), number)) is None
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
        ("/api/v1/agent/wanted", "agents"),
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
        assert 1 <= lane.threads_per_client <= lane.threads


def test_clients_have_turns() -> None:
    assert taken(filled("a", "a", "a", "b", "c"), 4) == [0, 3, 4, 1]


def test_one_client_leaves_threads_to_others() -> None:
    queue = filled("a", "a", "a", "a")
    assert taken(queue, 3) == [0, 1, None]
    assert queue.put(WaitingRequest("b", 9.0, 9)) is None
    assert taken(queue, 2) == [9, None]
    queue.finish("a")
    assert taken(queue, 2) == [2, None]
    assert (len(queue), queue.running) == (1, 3)


def test_waiting_requests_of_a_client_are_limited() -> None:
    queue = filled(*("a" for _ in range(QUEUED_PER_CLIENT_MAX)))
    refused = queue.put(WaitingRequest("a", 0.0, 99))
    assert refused is not None
    assert refused.item == 99
    assert queue.put(WaitingRequest("b", 0.0, 100)) is None


def test_in_a_full_lane_the_latest_of_who_has_most_goes_for_who_has_few() -> None:
    clients = QUEUED_MAX // QUEUED_PER_CLIENT_MAX + 1
    queue = filled(*(f"hostile {number % clients}" for number in range(QUEUED_MAX)))
    for number in range(3):
        refused = queue.put(WaitingRequest("neighbour", 0.0, 1_000 + number))
        assert refused is not None
        assert refused.client.startswith("hostile")
        assert refused.item >= QUEUED_MAX - 2 * clients
        assert len(queue) == QUEUED_MAX
    found = taken(queue, 2 * (clients + 1))
    assert {1_000, 1_001} <= set(found)
    one_more = queue.put(WaitingRequest("hostile 0", 0.0, 2_000))
    assert one_more is None, "there is room again"


def test_in_a_full_lane_of_clients_with_as_many_the_newcomer_goes() -> None:
    queue = filled(*(f"client {number}" for number in range(QUEUED_MAX)))
    refused = queue.put(WaitingRequest("one more", 0.0, 1_000))
    assert refused is not None
    assert refused.item == 1_000


@pytest.mark.parametrize("addresses", [6, 20, 100])
def test_one_page_of_a_neighbour_is_never_refused_whatever_addresses_flood(addresses: int) -> None:
    """Without turns, six addresses with 160 connections each made one page in six answer 503."""
    queue: LaneQueue[int] = LaneQueue(LANE)
    refused_of: Counter[str] = Counter()
    pages, waits = 0, False
    for number in range(20_000):
        client = f"hostile {number % addresses}" if waits else "neighbour"
        waits = True
        refused = queue.put(WaitingRequest(client, 0.0, number))
        if refused is not None:
            refused_of[refused.client] += 1
        if number % 10 == 0 and (begun := queue.take()) is not None:
            queue.finish(begun.client)
            if begun.client == "neighbour":
                pages, waits = pages + 1, False
    assert refused_of.total() > 1_000
    assert refused_of["neighbour"] == 0
    assert pages >= 20_000 // 10 // (addresses + 1) - 1


def test_a_request_that_waits_too_long_is_removed() -> None:
    queue = filled("a", "b", "a")
    assert [one.item for one in queue.pop_expired(QUEUED_S_MAX + 1.5)] == [0, 1]
    assert len(queue) == 1
    assert taken(queue, 2) == [2, None]
