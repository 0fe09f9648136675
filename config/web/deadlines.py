"""Deadlines of the phases of a connection. They apply to a whole header or body, so slow sending gains no time."""

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


class ConnectionPhase(IntEnum):
    """Phase of a connection; phases before HEAD are closed first."""

    LINGER = 0  # the last response is sent; further input is discarded
    IDLE = 1  # kept alive, without any byte of another request
    HEAD = 2
    BODY = 3
    ANSWER = 4  # the response is complete but not entirely sent
    LIVE = 5  # a live response, between two of its parts
    WORK = 6  # waits for a thread, or has one


_SECONDS = {
    ConnectionPhase.LINGER: LINGER_S_MAX,
    ConnectionPhase.IDLE: IDLE_S_MAX,
    ConnectionPhase.HEAD: HEAD_S_MAX,
    ConnectionPhase.BODY: BODY_S_MAX,
}


def due_s(phase: ConnectionPhase, since_s: float) -> float | None:
    """Returns the deadline of a phase that began at `since_s`; None for phases of `response_due_s`."""
    seconds = _SECONDS.get(phase)
    return None if seconds is None else since_s + seconds


def response_due_s(since_s: float, sent_bytes: int) -> float:
    """Returns the deadline of a response that was first blocked at `since_s`, extended by the bytes sent since."""
    return since_s + min(ANSWER_S + sent_bytes / ANSWER_BYTES_PER_S_MIN, ANSWER_S_MAX)
