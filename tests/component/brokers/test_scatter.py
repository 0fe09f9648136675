"""Queries of several brokers at once: one is down, one never answers, one answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokers.choices import WantedState
from brokers.dataplane import admin_client, link, scatter
from brokers.dataplane.topics import metadata_request
from brokers.dataplane.unresponsive_brokers import UnresponsiveBrokers, unresponsive_brokers
from brokers.limits import SILENCE_REMEMBERED_S
from brokers.models import Cluster
from tenants.errors import Unavailable
from tests.component.brokers.test_admin_client import METADATA, SmallBroker
from tests.component.brokers.test_admin_client import metadata as metadata_answer
from tests.testkit.fleet import make_fleet

pytestmark = pytest.mark.django_db

DEADLINE_S = 0.6


@pytest.fixture()
def answering() -> Iterator[SmallBroker]:
    server = SmallBroker()
    server.answers[METADATA] = metadata_answer
    yield server
    admin_client.links().close()
    unresponsive_brokers.clear_all()
    server.stop()


@pytest.fixture()
def mute() -> Iterator[socket.socket]:
    """A paused broker: the kernel accepts connections, and nobody reads."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture()
def cluster(tmp_path: Path, answering: SmallBroker, mute: socket.socket) -> Cluster:
    """Broker 1 is down, 2 is paused, 3 answers."""
    fleet = make_fleet(tmp_path, brokers=3)
    fleet.brokers.filter(number=2).update(internal_port=mute.getsockname()[1])
    fleet.brokers.filter(number=3).update(internal_port=answering.port)
    return fleet


def asked(cluster: Cluster) -> list[tuple[scatter.Target, Any]]:
    return [(target, metadata_request(["orders"])) for target in scatter.targets(cluster, "ins-00000000").values()]


def test_a_broker_that_does_not_answer_in_time_is_named_and_the_rest_is_used(cluster: Cluster) -> None:
    began_s = time.monotonic()
    result = scatter.scatter(asked(cluster), deadline_s=DEADLINE_S)
    assert time.monotonic() - began_s < DEADLINE_S + 1
    assert [number for number, _ in result.responses] == [3]
    assert {item.broker_id for item in result.silent} == {1, 2}


def test_any_answer_will_do_and_nobody_waits_for_the_one_that_stands_still(cluster: Cluster) -> None:
    began_s = time.monotonic()
    answer = scatter.first_response(
        scatter.targets(cluster, "ins-00000000").values(), lambda: metadata_request(["orders"])
    )
    assert answer.topics[0].name == "orders"
    assert time.monotonic() - began_s < scatter.SCATTER_DEADLINE_S


def test_nobody_answering_is_said_within_the_deadline(cluster: Cluster) -> None:
    silent = [target for number, target in scatter.targets(cluster, "x").items() if number != 3]
    with pytest.raises(Unavailable):
        scatter.first_response(silent, lambda: metadata_request(["orders"]), deadline_s=DEADLINE_S)


def test_a_link_that_died_while_idle_costs_a_second_try(cluster: Cluster, answering: SmallBroker) -> None:
    (third,) = [pair for pair in asked(cluster) if pair[0].number == 3]
    assert scatter.scatter([third]).responses
    answering.drop_all()
    assert scatter.scatter([third]).responses
    assert answering.users == ["ins-00000000", "ins-00000000"]


def test_a_broker_that_was_stopped_on_purpose_is_not_asked(cluster: Cluster) -> None:
    cluster.brokers.filter(number=1).update(wanted=WantedState.STOPPED)
    assert set(scatter.targets(cluster, "ins-00000000")) == {2, 3}
    assert "secret" not in repr(scatter.targets(cluster, "ins-00000000")[2])


def test_a_broker_that_was_silent_is_asked_last_and_waited_for_briefly(
    cluster: Cluster, answering: SmallBroker
) -> None:
    assert {item.broker_id for item in scatter.scatter(asked(cluster), deadline_s=DEADLINE_S).silent} == {1, 2}
    began_s = time.monotonic()
    again = scatter.scatter(asked(cluster))
    assert time.monotonic() - began_s < scatter.SCATTER_DEADLINE_S / 2
    assert [number for number, _ in again.responses] == [3]
    answering.asked.clear()
    began_s = time.monotonic()
    scatter.first_response(scatter.targets(cluster, "ins-00000000").values(), lambda: metadata_request(["orders"]))
    assert time.monotonic() - began_s < scatter.SCATTER_HEDGE_S


def test_calls_that_a_broker_lets_wait_take_the_threads_of_no_other_broker(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every page also queries the paused broker, and each such call waits for its timeout."""
    monkeypatch.setattr(link, "ADMIN_CLIENT_HELLO_TIMEOUT_S", 10.0)
    pairs = {target.number: (target, request) for target, request in asked(cluster)}
    crowd = scatter.scatter([pairs[2]] * (2 * scatter.SCATTER_THREADS_PER_BROKER + 1), deadline_s=0.05)
    assert {item.broker_id for item in crowd.silent} == {2}
    result = scatter.scatter([pairs[3]], deadline_s=5.0)
    assert [number for number, _ in result.responses] == [3]


def test_silence_is_forgotten_after_a_while_and_at_once_by_an_answer() -> None:
    now_s = [100.0]
    kept = UnresponsiveBrokers(clock=lambda: now_s[0])
    kept.mark_unresponsive(("127.0.0.1", 1))
    kept.mark_unresponsive(("127.0.0.1", 2))
    kept.mark_responsive(("127.0.0.1", 2))
    assert kept.is_unresponsive(("127.0.0.1", 1))
    assert not kept.is_unresponsive(("127.0.0.1", 2))
    now_s[0] += SILENCE_REMEMBERED_S
    assert not kept.is_unresponsive(("127.0.0.1", 1))
