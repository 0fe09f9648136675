"""Observation of brokers: queries over real sockets, and pure sums of their answers."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from brokers.dataplane.unresponsive_brokers import unresponsive_brokers
from brokers.limits import OBSERVE_ANSWER_TIMEOUT_S
from brokers.models import Cluster
from brokers.monitoring import health
from brokers.monitoring.observe import (
    AdminTarget,
    BrokerAnswers,
    LatestTraffic,
    merge_bandwidth,
    merge_throttles,
    merge_topics,
    merge_traffic,
    query_all,
)
from config.embedded.process import free_port
from instances.interfaces import BrokerUnresponsive
from tests.testkit.fleet import make_fleet

SECRET = "s3cret"


class AdminPort(BaseHTTPRequestHandler):
    """An admin port with given answers, for requests with the secret."""

    def do_GET(self) -> None:
        is_known = self.headers["Authorization"] == f"Bearer {SECRET}"
        raw = self.server.answer if is_known else b"{}"  # type: ignore[attr-defined]
        self.send_response(200 if is_known else 401)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_args: Any) -> None:
        """Logs nothing."""


@pytest.fixture()
def admin_port() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), AdminPort)
    server.answer = json.dumps({"now_ms": 5}).encode()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def target(number: int, port: int, secret: str = SECRET) -> AdminTarget:
    return AdminTarget(number=number, host="127.0.0.1", port=port, secret=secret)


def test_a_broker_that_does_not_answer_is_named_and_the_others_are_heard(admin_port: ThreadingHTTPServer) -> None:
    answers = query_all([target(1, admin_port.server_port), target(2, free_port())], "/v1/status")
    assert answers.bodies == {1: {"now_ms": 5}}
    assert [(item.broker_id, item.reason) for item in answers.silent] == [(2, "does not answer")]


def test_a_broker_that_stands_still_is_waited_for_once_and_is_given_its_time_again_later() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        still = target(1, mute.getsockname()[1])
        took_s = []
        for _ in range(3):
            began_s = time.monotonic()
            assert query_all([still], "/v1/status").bodies == {}
            took_s.append(time.monotonic() - began_s)
        assert took_s[0] >= OBSERVE_ANSWER_TIMEOUT_S > max(took_s[1:])
        noted = unresponsive_brokers._until_s["127.0.0.1", still.port]
        query_all([still], "/v1/status")
        assert unresponsive_brokers._until_s["127.0.0.1", still.port] == noted


@pytest.mark.parametrize("nonsense", [b"not json", b"[]", b""])
def test_nonsense_is_no_answer(admin_port: ThreadingHTTPServer, nonsense: bytes) -> None:
    admin_port.answer = nonsense  # type: ignore[attr-defined]
    answers = query_all([target(1, admin_port.server_port)], "/v1/status")
    assert [item.reason for item in answers.silent] == ["answers nonsense"]


def test_a_wrong_secret_is_no_answer(admin_port: ThreadingHTTPServer) -> None:
    answers = query_all([target(1, admin_port.server_port, "wrong")], "/v1/status")
    assert answers.bodies == {}


def latest(answers: BrokerAnswers) -> LatestTraffic:
    return LatestTraffic(answers=answers, spans={}, since_ms={})


def traffic(now_ms: int, *points: tuple[int, int, int, int]) -> dict[str, Any]:
    return {"now_ms": now_ms, "step_ms": 1000, "alive_since_ms": now_ms // 2, "points": [list(p) for p in points]}


def test_traffic_is_summed_by_second_and_the_longest_delay_is_kept() -> None:
    bodies = {1: traffic(9_400, (7_000, 1, 2, 3), (8_000, 10, 20, 30)), 2: traffic(9_300, (8_000, 100, 200, 5))}
    result = merge_traffic(latest(BrokerAnswers(bodies=bodies, silent=())), since_ms=7_500)
    assert result.points == ((8_000, 110, 220, 30),)
    assert result.by_broker == {1: (10, 20), 2: (100, 200)}
    assert result.now_ms == 9_400
    assert result.alive_since_ms == 4_700
    assert result.known_by_broker == {1: ((4_700, 9_400),), 2: ((4_650, 9_400),)}


def test_samples_kept_of_a_broker_before_its_restart_are_summed_as_ever() -> None:
    body = traffic(100_400, (98_000, 5, 0, 0), (99_000, 6, 0, 0)) | {"alive_since_ms": 97_500}
    kept = {1: [(90_000, 1, 2, 3), (98_000, 4, 0, 0)], 2: [(91_000, 7, 0, 0)]}
    silent = (BrokerUnresponsive(broker_id=2, reason="does not answer"),)
    seen = LatestTraffic(
        answers=BrokerAnswers(bodies={1: body}, silent=silent),
        spans={1: ((50_000, 95_000),), 2: ((50_000, 96_000),)},
        since_ms={1: 94_000, 2: 95_000},
    )
    result = merge_traffic(seen, 0, kept)
    assert result.points == ((90_000, 1, 2, 3), (91_000, 7, 0, 0), (98_000, 5, 0, 0), (99_000, 6, 0, 0))
    assert result.known_by_broker == {1: ((50_000, 95_000), (97_500, 100_400)), 2: ((50_000, 96_000),)}
    assert (result.by_broker, result.alive_since_ms) == ({1: (6, 0)}, 97_500)


def test_a_negative_moment_counts_back_from_the_brokers_clock() -> None:
    bodies = {1: traffic(9_400, (2_000, 1, 0, 0), (8_000, 10, 0, 0))}
    assert merge_traffic(latest(BrokerAnswers(bodies=bodies, silent=())), since_ms=-2_000).points == (
        (8_000, 10, 0, 0),
    )


def test_no_answer_at_all_is_an_empty_image() -> None:
    nothing = BrokerAnswers(bodies={}, silent=())
    assert merge_traffic(latest(nothing), 0).points == ()
    assert merge_throttles(nothing).entries == ()
    assert merge_topics(nothing).topics == {}


def entry(user: str, mean: float, *, active: bool) -> dict[str, Any]:
    return {
        "rule": {"kind": "client_quota", "quota": "producer_byte_rate", "level": 3, "entity": {"user": user}},
        "limit_bytes_per_s": 1.0, "user": user, "client_id": "c", "count": 1, "delay_ms_mean": mean,
        "delay_ms_p95": mean, "delay_ms_max": mean, "waited_ms_total": mean, "since_ms": 0, "last_ms": 0,
        "active": active,
    }  # fmt: skip


def test_the_longest_current_delay_comes_first() -> None:
    body = {"now_ms": 1, "entries": [entry("old", 900, active=False), entry("a", 5, active=True)]}
    other = {"now_ms": 2, "entries": [entry("b", 50, active=True)]}
    result = merge_throttles(BrokerAnswers(bodies={1: body, 2: other}, silent=()))
    assert [(item.user, item.broker_id) for item in result.entries] == [("b", 2), ("a", 1), ("old", 1)]
    assert result.entries[0].level == 3


def test_brokers_that_know_bytes_alone_are_understood_and_newer_ones_say_the_whole_limit() -> None:
    new = entry("a", 5, active=True) | {"limit_per_s": 2.0, "whole_limit_per_s": 6.0}
    body = {"now_ms": 1, "entries": [entry("b", 4, active=True), new], "totals": {"client_quota": [3, 40]}}
    result = merge_throttles(BrokerAnswers(bodies={1: body}, silent=()))
    assert [(item.limit_per_s, item.whole_limit_per_s) for item in result.entries] == [(2.0, 6.0), (1.0, 1.0)]
    assert result.totals == {1: {"client_quota": (3, 40)}}


def test_a_broker_that_does_not_say_its_share_is_not_known_and_none_is_made_up() -> None:
    part = {"bought_bps": 20, "share_bps": 12, "wanted_bps": 30, "admitted_bps": 11, "leaders": 2}
    body = {"now_ms": 1, "policy": "adaptive", "reason": "follows_demand", "produce": part, "consume": part}
    body |= {"loop_used_ms": 70}
    silent = (BrokerUnresponsive(broker_id=2, reason="answers nonsense"),)
    result = merge_bandwidth(BrokerAnswers(bodies={1: body}, silent=silent))
    assert result.brokers[1] is not None
    assert (result.brokers[1].reason, result.brokers[1].produce.share_bytes_per_s) == ("follows_demand", 12)
    assert result.brokers[1].loop_used_ms == 70
    assert result.brokers[2] is None
    assert not result.is_known


def test_where_two_brokers_claim_a_partition_the_later_leader_counts() -> None:
    old = {"partition": 0, "leader_epoch": 1, "log_start_offset": 0, "high_watermark": 5, "size_bytes": 50}
    new = {"partition": 0, "leader_epoch": 2, "log_start_offset": 2, "high_watermark": 9, "size_bytes": 90}
    other = {"partition": 1, "leader_epoch": 0, "log_start_offset": 0, "high_watermark": 1, "size_bytes": 10}
    bodies = {
        1: {"topics": {"t": [old, other]}, "stored_bytes": 150},
        2: {"topics": {"t": [new]}, "stored_bytes": 90},
        3: {"topics": {}, "stored_bytes": 60},
    }
    merged = merge_topics(BrokerAnswers(bodies=bodies, silent=()))
    assert merged.topics == {"t": (100, 8)}
    assert merged.stored_bytes == 300, "followers' replicas take room too"


def test_refused_topics_of_all_brokers_are_listed_once_each() -> None:
    def line(name: str, reason: str, last_ms: int) -> dict[str, object]:
        return {"name": name, "reason": reason, "count": 1, "last_ms": last_ms}

    bodies = {
        1: {"topics": {}, "refused_topics": [line("a", "old", 5), line("b", "b", 7)]},
        2: {"topics": {}, "refused_topics": [line("a", "new", 9)]},
        3: {"topics": {}},
    }
    refused = merge_topics(BrokerAnswers(bodies=bodies, silent=())).refused
    assert [(item.name, item.reason, item.last_ms) for item in refused] == [("a", "new", 9), ("b", "b", 7)]


@pytest.mark.django_db
def test_a_cluster_whose_secret_cannot_be_read_keeps_no_other_from_being_observed(
    admin_port: ThreadingHTTPServer, tmp_path: Path
) -> None:
    unreadable, readable = sorted((make_fleet(tmp_path, brokers=1) for _ in range(2)), key=lambda row: row.pk)
    Cluster.objects.filter(pk=unreadable.pk).update(control_secret_file=str(tmp_path))
    Path(readable.control_secret_file).write_text(SECRET)
    readable.brokers.update(admin_port=admin_port.server_port)
    now = timezone.now()
    assert health.store_statuses(now) == 1
    assert readable.brokers.get().observed_at == now
