"""Agents of many hosts at the web server: they hold threads of their own, and nobody else's."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from brokers.contract.agent_requests import WANTED_PATH
from config.web.lanes import WaitingRequest, lane_of
from config.web.threads import LaneThreads
from tests.testkit.waiting import eventually

AGENTS = 100
OTHERS = ("/", "/api/v1/instances", "/operator/", "/accounts/login/", "/healthz")


class SlowAgents:
    """Work that is done at once, but for agents, which wait until they are let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.begun: list[str] = []
        self.done: list[str] = []

    def __call__(self, path: str) -> None:
        self.begun.append(path)
        if path == WANTED_PATH:
            self.let_go.wait(60)
        self.done.append(path)


@pytest.fixture()
def work() -> Iterator[SlowAgents]:
    made = SlowAgents()
    yield made
    made.let_go.set()


def test_a_hundred_agents_at_once_hold_their_own_threads_and_are_all_answered(work: SlowAgents) -> None:
    threads: LaneThreads[str] = LaneThreads(work)
    for number in range(AGENTS):
        assert threads.submit(WANTED_PATH, WaitingRequest(f"10.0.0.{number}", 0.0, WANTED_PATH)) is None
    for path in OTHERS:
        assert threads.submit(path, WaitingRequest("203.0.113.7", 0.0, path)) is None
    eventually(lambda: set(work.done) == set(OTHERS), what="the requests of others")
    assert work.begun.count(WANTED_PATH) == lane_of(WANTED_PATH).threads
    work.let_go.set()
    eventually(lambda: work.done.count(WANTED_PATH) == AGENTS, what="all agents")
    threads.close()
