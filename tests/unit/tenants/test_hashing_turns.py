"""Bounds on password hashing: concurrency, waiting requests, and separate slots for operators."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from django.contrib.auth.hashers import check_password, make_password

from tenants import hashing, limits
from tests.testkit.waiting import eventually

WAIT_MS = 20_000


class Slow:
    """Holds a turn until a test releases it."""

    def __init__(self, slots: hashing.HashingSlots) -> None:
        self.is_in = threading.Event()
        self.may_go = threading.Event()
        self.refused: list[hashing.HashingBusy] = []
        self._slots = slots
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            with self._slots.acquire():
                self.is_in.set()
                self.may_go.wait(WAIT_MS / 1000)
        except hashing.HashingBusy as refusal:
            self.refused.append(refusal)

    def end(self) -> None:
        self.may_go.set()
        self.thread.join(WAIT_MS / 1000)


def test_no_more_than_the_limit_hash_at_a_time_and_who_is_beyond_those_who_wait_is_refused_at_once() -> None:
    slots = hashing.HashingSlots(at_once=2, waiting=1, wait_ms=WAIT_MS)
    first, second = Slow(slots), Slow(slots)
    assert first.is_in.wait(5) and second.is_in.wait(5)
    third = Slow(slots)
    eventually(lambda: slots._admitted._value == 0, what="the third to wait")  # type: ignore[attr-defined]
    assert not third.is_in.is_set()
    with pytest.raises(hashing.HashingBusy) as refusal, slots.acquire():
        pytest.fail("a fourth has a turn")
    assert (refusal.value.http_status, refusal.value.retry_after_s) == (503, hashing.RETRY_AFTER_S)
    first.end()
    assert third.is_in.wait(5)
    for slow in (second, third):
        slow.end()
    with slots.acquire():
        pass


def test_a_wait_beyond_the_deadline_is_refused_and_leaves_its_place() -> None:
    slots = hashing.HashingSlots(at_once=1, waiting=1, wait_ms=10)
    holder = Slow(slots)
    assert holder.is_in.wait(5)
    for _ in range(3):
        with pytest.raises(hashing.HashingBusy), slots.acquire():
            pytest.fail("two have the only turn")
    holder.end()
    with slots.acquire():
        pass


def fill(slots: hashing.HashingSlots, count: int) -> list[Slow]:
    held = [Slow(slots) for _ in range(count)]
    assert all(slow.is_in.wait(5) for slow in held)
    return held


@pytest.mark.parametrize("make", [hashing.Argon2InTurn, hashing.PBKDF2InTurn])
def test_operators_hash_while_everybody_elses_turns_are_taken(
    make: Callable[[], hashing.Argon2InTurn], monkeypatch: pytest.MonkeyPatch
) -> None:
    everybody = hashing.HashingSlots(at_once=limits.HASHINGS_AT_ONCE_MAX, waiting=0, wait_ms=10)
    operators = hashing.HashingSlots(at_once=1, waiting=0, wait_ms=10)
    monkeypatch.setattr(hashing, "_default_slots", everybody)
    monkeypatch.setattr(hashing, "_operator_slots", operators)
    hasher = make()
    held = fill(everybody, limits.HASHINGS_AT_ONCE_MAX)
    try:
        with hashing.for_operators(False), pytest.raises(hashing.HashingBusy):
            hasher.encode("a password", "a long enough salt")
        with hashing.for_operators():
            encoded = hasher.encode("a password", "a long enough salt")
            assert hasher.verify("a password", encoded)
            assert not hasher.verify("another", encoded)
    finally:
        for slow in held:
            slow.end()


def test_passwords_of_django_itself_stay_good() -> None:
    from django.contrib.auth.hashers import Argon2PasswordHasher

    encoded = Argon2PasswordHasher().encode("a password", "a long enough salt")
    assert hashing.Argon2InTurn().verify("a password", encoded)
    assert check_password("x", make_password("x"))
