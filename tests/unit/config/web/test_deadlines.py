"""Deadlines of a connection: for the whole of each phase, however slowly bytes arrive."""

from __future__ import annotations

from config.web.deadlines import ConnectionPhase, due_s, response_due_s
from config.web.limits import (
    ANSWER_BYTES_PER_S_MIN,
    ANSWER_S,
    ANSWER_S_MAX,
    BODY_S_MAX,
    HEAD_S_MAX,
    IDLE_S_MAX,
    LINGER_S_MAX,
)


def test_each_phase_that_waits_for_the_client_has_an_end() -> None:
    ends = {phase: due_s(phase, 100.0) for phase in ConnectionPhase}
    assert ends == {
        ConnectionPhase.LINGER: 100 + LINGER_S_MAX,
        ConnectionPhase.IDLE: 100 + IDLE_S_MAX,
        ConnectionPhase.HEAD: 100 + HEAD_S_MAX,
        ConnectionPhase.BODY: 100 + BODY_S_MAX,
        ConnectionPhase.ANSWER: None,
        ConnectionPhase.LIVE: None,
        ConnectionPhase.WORK: None,
    }


def test_an_answer_may_take_longer_the_more_of_it_is_taken_but_not_for_ever() -> None:
    assert response_due_s(100.0, 0) == 100 + ANSWER_S
    assert response_due_s(100.0, 60 * ANSWER_BYTES_PER_S_MIN) == 100 + ANSWER_S + 60
    assert response_due_s(100.0, 1 << 40) == 100 + ANSWER_S_MAX
