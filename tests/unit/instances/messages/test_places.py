"""Start of reading, tokens of further pages, and the limit of concurrent readers."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances.messages import limits, page_token
from instances.messages.interfaces import NEWER, OFFSET, OLDER, TIME, Positions, Start
from instances.messages.limiters import ReadLimiter
from instances.messages.start import OFFSET_MAX, WrongStart, parse
from tenants.errors import DomainError, Unavailable
from tenants.limits import PAGE_TOKEN_CHARS_MAX

OFFSETS = st.integers(0, OFFSET_MAX)


def test_words_name_a_place() -> None:
    assert parse("offset:17") == Start(OFFSET, 17)
    assert parse("time:2026-01-31T12:00:00Z") == Start(TIME, 1_769_860_800_000)
    assert parse("time:2026-01-31T13:00:00.250+01:00") == Start(TIME, 1_769_860_800_250)


@pytest.mark.parametrize(
    "words",
    ["", "latest", "offset:", "offset:-1", "offset:9223372036854775808", "time:", "time:now",
     "time:2026-01-31T12:00:00", "time:1969-12-31T23:59:59Z", "time:0001-01-01T00:00:00+14:00",
     "time:9999-12-31T23:59:59-14:00x"],
)  # fmt: skip
def test_other_words_are_refused(words: str) -> None:
    with pytest.raises(WrongStart):
        parse(words)


@given(
    offsets=st.dictionaries(st.integers(0, 999), OFFSETS, max_size=limits.PAGE_PARTITIONS_MAX),
    direction=st.sampled_from((OLDER, NEWER)),
)
def test_a_token_brings_back_its_positions_and_fits_into_an_address(offsets: dict[int, int], direction: str) -> None:
    token = page_token.encode(Positions(direction=direction, offsets=offsets), "list")
    assert len(token) <= PAGE_TOKEN_CHARS_MAX
    assert page_token.decode(token, "list") == Positions(direction=direction, offsets=offsets)


def test_a_token_of_the_most_and_largest_positions_fits() -> None:
    import random

    places = random.sample(range(1_000), limits.PAGE_PARTITIONS_MAX)
    offsets = {index: random.randrange(OFFSET_MAX // 2, OFFSET_MAX) for index in places}
    assert len(page_token.encode(Positions(direction=OLDER, offsets=offsets), "list")) <= PAGE_TOKEN_CHARS_MAX


@pytest.mark.parametrize("change", [lambda token: token[:-2] + "xx", lambda token: token * 60, lambda _token: "x"])
def test_a_token_of_another_list_or_a_forged_one_is_refused(change) -> None:  # type: ignore[no-untyped-def]
    token = page_token.encode(Positions(direction=OLDER, offsets={0: 1}), page_token.binding_of("ins-1", "a", {}))
    for binding in (page_token.binding_of("ins-2", "a", {}), page_token.binding_of("ins-1", "a", {"contains": "x"})):
        with pytest.raises(DomainError):
            page_token.decode(token, binding)
    with pytest.raises(DomainError):
        page_token.decode(change(token), page_token.binding_of("ins-1", "a", {}))


def test_a_tenant_that_reads_keeps_its_own_others_waiting_and_leaves_turns_to_neighbours() -> None:
    limiter = ReadLimiter(at_once=2, per_tenant=1, wait_s_max=0.01)
    with limiter.slot("greedy"):
        with pytest.raises(Unavailable), limiter.slot("greedy"):
            pass
        with limiter.slot("neighbour"), pytest.raises(Unavailable), limiter.slot("third"):
            pass
        with limiter.slot("third"):
            pass
    with limiter.slot("greedy"):
        pass


def test_a_waiting_reader_has_its_turn_when_the_one_before_is_done() -> None:
    limiter = ReadLimiter(at_once=1, per_tenant=1, wait_s_max=10)
    began, done, waited = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        with limiter.slot("first"):
            began.set()
            done.wait(10)

    def wait() -> None:
        with limiter.slot("second"):
            waited.set()

    threads = [threading.Thread(target=hold), threading.Thread(target=wait)]
    threads[0].start()
    assert began.wait(10)
    threads[1].start()
    assert not waited.wait(0.05)
    done.set()
    assert waited.wait(10)
    for thread in threads:
        thread.join()
