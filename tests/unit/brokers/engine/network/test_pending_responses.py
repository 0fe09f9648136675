"""Deferred responses are sent in the order of their requests, whatever the order of their completion (WIRE-9)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.network.buffers import UnsentBytes
from brokers.engine.network.pending_responses import PendingResponses
from brokers.engine.network.sending import Outgoing, merge_plain_responses


class Wire:
    """Takes all responses that may be sent, when notified."""

    def __init__(self) -> None:
        self.notified = 0
        self.unsent = UnsentBytes()
        self.pending_responses = PendingResponses(self.on_first, self.unsent)
        self.sent: list[Any] = []

    def on_first(self) -> None:
        self.notified += 1

    def take(self) -> None:
        for outgoing in self.pending_responses.pop_complete():
            self.sent += outgoing.parts


@given(st.lists(st.booleans(), max_size=12), st.randoms(use_true_random=False))
def test_answers_leave_in_order_and_none_is_forgotten(owed: list[bool], dice: Any) -> None:
    wire = Wire()
    deferred = []
    for number, is_owed in enumerate(owed):
        if is_owed or not len(wire.pending_responses):
            deferred.append((number, wire.pending_responses.defer(lambda: None)))
        else:
            wire.pending_responses.add(Outgoing([b"%d" % number], None))
    dice.shuffle(deferred)
    for number, pending in deferred:
        notified = wire.notified
        pending.complete(b"%d" % number)
        if wire.notified > notified:
            wire.take()
    assert wire.sent == [b"%d" % number for number in range(len(owed))]
    assert len(wire.pending_responses) == 0


def test_the_connection_is_notified_once_until_the_first_answers_are_taken() -> None:
    wire = Wire()
    first, second = wire.pending_responses.defer(lambda: None), wire.pending_responses.defer(lambda: None)
    second.complete(b"2")
    assert wire.notified == 0
    first.complete(b"1")
    first.complete(b"again")
    assert wire.notified == 1
    wire.take()
    assert wire.sent == [b"1", b"2"]


def test_an_unfinished_response_hears_that_the_connection_is_gone() -> None:
    wire = Wire()
    heard = []
    kept = wire.pending_responses.defer(lambda: heard.append("kept"))
    late = wire.pending_responses.defer(lambda: heard.append("late"))
    kept.complete(b"1")
    written: list[int] = []
    wire.pending_responses.add(Outgoing([b"3"], written.append))
    wire.pending_responses.drop()
    assert (heard, written) == (["late"], [0])
    late.complete(b"2")
    assert len(wire.pending_responses) == 0


def test_plain_answers_are_sent_together_and_others_by_themselves() -> None:
    sent = Outgoing([b"c"], lambda count: None)
    joined = merge_plain_responses([Outgoing([b"a"], None), Outgoing([b"b"], None), sent, Outgoing([b"d"], None)])
    assert [outgoing.parts for outgoing in joined] == [[b"ab"], [b"c"], [b"d"]]
    assert joined[1] is sent
