"""How long a connection may stay in each phase. All of a header or body counts: a byte now and then gains no time."""

from __future__ import annotations

from enum import IntEnum

from config.web.limits import (
    ANSWER_BYTES_PER_S_MIN,
    ANSWER_S,
    ANSWER_S_MAX,
    BODY_S_MAX,
    HEAD_S_MAX,
    IDLE_S_MAX,
    LINGER_S_MAX,
)


class Phase(IntEnum):
    """Where a connection is; those before HEAD are the first to be given up for others."""

    LINGER = 0  # it has its last answer; what still comes is thrown away
    IDLE = 1  # kept open, and nothing of another request has come
    HEAD = 2
    BODY = 3
    ANSWER = 4  # the answer is made, and not all of it is sent
    WORK = 5  # waits for a thread, or has one


_SECONDS = {
    Phase.LINGER: LINGER_S_MAX,
    Phase.IDLE: IDLE_S_MAX,
    Phase.HEAD: HEAD_S_MAX,
    Phase.BODY: BODY_S_MAX,
}


def due_s(phase: Phase, since_s: float) -> float | None:
    """When a phase that began at `since_s` has to be over; None for those that `answer_due_s` knows."""
    seconds = _SECONDS.get(phase)
    return None if seconds is None else since_s + seconds


def answer_due_s(since_s: float, sent_bytes: int) -> float:
    """When an answer that was first held up at `since_s` has to be taken, by what was taken of it since."""
    return since_s + min(ANSWER_S + sent_bytes / ANSWER_BYTES_PER_S_MIN, ANSWER_S_MAX)
