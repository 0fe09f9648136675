"""Connections beyond an instance's rate enter at that rate, in turns by address (QUO-51)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.network.entry_queue import EntryQueue, QueuedCount, network_of


class Loop:
    """An event loop whose timers fire when the test says so."""

    def __init__(self) -> None:
        self.timers: list[Callable[[], object]] = []

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Loop:
        assert delay_s > 0
        self.timers.append(callback)
        return self

    def cancel(self) -> None:
        self.timers.clear()

    def pass_time(self) -> None:
        self.timers.pop()()


class Socket:
    """A socket with a name, which records if it was closed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Instance:
    """An instance that admits one connection after the other."""

    def __init__(self, of_all: QueuedCount | None = None, places: int = 1_000) -> None:
        self.loop = Loop()
        self.entered: list[str] = []
        self.dropped: list[str] = []
        self.of_all = of_all or QueuedCount()
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.places = places
        self.queue = EntryQueue(loop, self.exceeded, self.drop, self.of_all)
        self.queue.pause(2)

    def exceeded(self) -> str | None:
        return "instance" if self.queue.count > self.places else None

    def drop(self, accepted: Any, address: str, cause: str) -> None:
        assert cause == "instance"
        self.dropped.append(accepted.name)

    def come(self, address: str, name: str) -> None:
        self.queue.add(cast(socket.socket, Socket(name)), address, self.enter)

    def enter(self, accepted: Any) -> int:
        self.entered.append(accepted.name)
        return 2

    def pass_time(self) -> None:
        while self.queue.count:
            self.loop.pass_time()


def test_one_address_after_the_other_comes_in() -> None:
    instance = Instance()
    for number in range(5):
        instance.come("192.0.2.1", f"stranger {number}")
    instance.come("192.0.2.2", "honest")
    assert not instance.entered
    instance.pass_time()
    assert instance.entered == ["stranger 0", "honest", "stranger 1", "stranger 2", "stranger 3", "stranger 4"]
    assert instance.queue.is_pacing
    instance.loop.pass_time()
    assert not instance.queue.is_pacing


def test_the_address_with_most_loses_its_newest() -> None:
    instance = Instance(places=4)
    for number in range(6):
        instance.come("192.0.2.1", f"stranger {number}")
    instance.come("192.0.2.2", "honest")
    assert instance.dropped == ["stranger 4", "stranger 5", "stranger 3"]
    instance.pass_time()
    assert instance.entered == ["stranger 0", "honest", "stranger 1", "stranger 2"]


def test_those_that_wait_are_counted_over_all_instances() -> None:
    of_all = QueuedCount()
    instances = [Instance(of_all), Instance(of_all)]
    for number, instance in enumerate(instances):
        for _ in range(3 + number):
            instance.come("192.0.2.1", "somebody")
    assert of_all.count == 7
    instances[0].queue.close_all()
    assert of_all.count == 4
    instances[1].pass_time()
    assert of_all.count == 0


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=60))
def test_everybody_comes_in_once_and_in_the_order_of_its_address(coming: list[str]) -> None:
    instance = Instance()
    for number, address in enumerate(coming):
        instance.come(address, f"{address}{number}")
    instance.pass_time()
    for address in "abc":
        assert [name for name in instance.entered if name[0] == address] == [
            f"{address}{number}" for number, each in enumerate(coming) if each == address
        ]
    assert instance.of_all.count == 0


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.1"),
        ("2001:db8::1", "2001:db8:0:0"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2"),
        ("2001:db8:1:2::6", "2001:db8:1:2"),
        ("::1", "0:0:0:0"),
        ("fe80::1:2:3:4", "fe80:0:0:0"),
        ("fe80::1%eth0.5", "fe80:0:0:0"),
    ],
)
def test_an_ipv6_network_of_64_bits_counts_as_one_address(address: str, network: str) -> None:
    assert network_of(address) == network
