"""Reasons to close a connection: a slow client is not a stalled one, and waiting for the broker costs no place."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from brokers.engine.network import closing
from brokers.engine.network.buffers import FrameBuffers, LargeFrame, UnreadBytes
from brokers.engine.network.closing import ConnectionDeadlines
from brokers.engine.network.inbound_frames import SIZE, InboundFrames

SWEEP_MS = 10_000
DEADLINES = ConnectionDeadlines(idle_ms=600_000, sweep_ms=SWEEP_MS)
MIB = 1_048_576


@dataclass
class Peer:
    """A connection, and the acts of its client between sweeps."""

    peer_host: str = "192.0.2.1"
    idle_sweeps: int = 0
    is_busy: bool = False
    is_stalled: bool = False
    is_waiting: bool = False
    unsent_bytes: int = 0
    inbound: InboundFrames = field(default_factory=lambda: InboundFrames(UnreadBytes(), FrameBuffers(), "ins-a"))

    def close(self, reason: str) -> None:
        raise AssertionError(reason)

    def half(self, size_bytes: int) -> Peer:
        self.is_stalled = True
        if size_bytes > 65_536:
            buffer = FrameBuffers().rent(size_bytes, "ins-a")
            assert buffer is not None
            self.inbound.large_frame = LargeFrame(buffer, size_bytes, memoryview(b"x"))
        else:
            self.inbound.set_pending(SIZE.pack(size_bytes) + b"x")
        return self

    def ends_after_ms(self, *, trickles: bool = False, is_contended: bool = False, sweeps_max: int = 1_000) -> int:
        """Returns the time of its closing, 0 if it is not closed. `trickles`: a byte arrives between any two sweeps."""
        for sweep in range(1, sweeps_max + 1):
            if trickles:
                self.idle_sweeps = 0
            closing.count_sweep(self)
            if self.reason(is_contended):
                return sweep * SWEEP_MS
        return 0

    def reason(self, is_contended: bool = False) -> str | None:
        return closing.reason_to_close(self, DEADLINES, is_contended)


def asked(peer: Peer) -> Peer:
    peer.inbound.frame_count = peer.inbound.swept_frame_count = 1
    return peer


def test_a_client_that_asked_once_may_be_idle_for_ten_minutes() -> None:
    peer = asked(Peer())
    assert peer.ends_after_ms() == 610_000
    assert peer.reason() == closing.IDLE


def test_a_client_that_never_asked_has_a_minute() -> None:
    peer = Peer()
    assert peer.ends_after_ms() == 70_000
    assert peer.reason() == closing.NO_REQUEST


def test_a_client_that_stops_in_the_middle_of_a_request_is_closed_after_half_a_minute() -> None:
    peer = Peer().half(MIB)
    assert peer.ends_after_ms() == 40_000
    assert peer.reason() == closing.STALLED


@pytest.mark.parametrize(
    ("size_bytes", "at_ms"), [(30, 30_000), (60_000, 40_000), (MIB, 50_000), (100 * MIB, 1_630_000)]
)
def test_a_request_may_take_half_a_minute_and_a_second_for_each_64_kib(size_bytes: int, at_ms: int) -> None:
    assert request_ends_ms(size_bytes) == at_ms
    assert closing.request_ms_max(size_bytes, False) <= at_ms


def request_ends_ms(size_bytes: int) -> int:
    peer = asked(Peer()).half(size_bytes)
    ends_ms = peer.ends_after_ms(trickles=True)
    assert peer.reason() == closing.SLOW_REQUEST
    return ends_ms


def test_one_request_after_the_other_is_no_slow_one() -> None:
    peer = asked(Peer()).half(60_000)
    for _ in range(100):
        peer.inbound.frame_count += 1
        peer.idle_sweeps = 0
        closing.count_sweep(peer)
        assert peer.reason() is None


def test_where_others_wait_for_its_memory_a_large_request_has_ten_seconds() -> None:
    assert asked(Peer()).half(MIB).ends_after_ms(trickles=True, is_contended=True) == 10_000
    assert asked(Peer()).half(60_000).ends_after_ms(trickles=True, is_contended=True) == 40_000, "takes no buffer"


def test_idle_time_begins_when_the_broker_has_answered() -> None:
    peer = asked(Peer(is_busy=True, is_waiting=True))
    assert not peer.ends_after_ms()
    peer.is_busy = peer.is_waiting = False
    assert peer.ends_after_ms() == 610_000
    assert peer.reason() == closing.IDLE


def test_an_answer_after_a_long_wait_may_be_partly_unsent_for_half_a_minute() -> None:
    peer = asked(Peer(is_busy=True, is_waiting=True))
    assert not peer.ends_after_ms()
    peer.is_waiting, peer.is_stalled = False, True
    assert peer.ends_after_ms() == 40_000
    assert peer.reason() == closing.STALLED


@pytest.mark.parametrize("trickles", [False, True])
def test_a_client_that_is_muted_or_waits_for_the_broker_is_not_slow(trickles: bool) -> None:
    peer = asked(Peer(is_busy=True, is_waiting=True)).half(MIB)
    assert not peer.ends_after_ms(trickles=trickles)
    peer.is_busy = peer.is_waiting = False
    peer.idle_sweeps = 0
    assert peer.ends_after_ms(trickles=trickles) >= 40_000, "the time before does not count"
