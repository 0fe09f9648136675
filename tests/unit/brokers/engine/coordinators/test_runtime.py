"""The coordinator runtime: append, replay, reply on commit; load, unload, and replies to pending requests."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.engine.coordinators.result import REPLY_PENDING
from brokers.engine.coordinators.runtime import FAILED_REPLAYS_MAX, RELOAD_DELAY_MS, Runtime
from brokers.engine.coordinators.shard import LOAD_IN_PROGRESS, NOT_COORDINATOR, READ_TIMEOUT_MS, REQUEST_TIMED_OUT
from tests.unit.brokers.engine.coordinators.fakes import Call, Counter, FakeLog, FakeLoop

TIMEOUT_MS = 5_000


class House:
    def __init__(self, *, at_once: bool = False) -> None:
        self.loop = FakeLoop()
        self.effects: list[object] = []
        self.log = FakeLog(at_once=at_once)
        self.runtime: Runtime[Counter] = Runtime(
            topic="__state",
            new_machine=lambda log: Counter(),
            loop=self.loop,
            commit_timeout_ms=TIMEOUT_MS,
            perform_effect=lambda index, effect: self.effects.append(effect),
        )
        self.runtime.partitions = 1

    def lead(self) -> None:
        self.runtime.lead(self.log)
        self.loop.turn()

    @property
    def machine(self) -> Counter:
        return next(self.runtime.shards()).machine

    def put(self, value: bytes, call: Call | None = None, **more: Any) -> Any:
        ticket = (call or Call()).ticket
        return self.runtime.perform("id", lambda machine, now, _: machine.put(b"k", value, **more), ticket)

    def get(self, call: Call | None = None) -> Any:
        return self.runtime.perform("id", lambda machine, now, _: machine.get(b"k"), (call or Call()).ticket)

    def leave_unanswered(self, call: Call) -> Any:
        return self.runtime.perform("id", lambda machine, now, ticket: machine.leave_unanswered(ticket), call.ticket)


@pytest.fixture
def house() -> House:
    return House()


def test_a_decision_whose_record_is_committed_at_once_is_answered_at_once() -> None:
    house = House(at_once=True)
    house.lead()

    assert house.put(b"1") == "put"
    assert house.get() == b"1"
    assert house.effects == [("effect", b"1")]


def test_a_decision_is_answered_when_its_record_is_committed_and_not_before(house: House) -> None:
    house.lead()
    call, waiting = Call(), Call()
    assert house.leave_unanswered(waiting) is REPLY_PENDING

    assert house.put(b"1", call) is REPLY_PENDING
    assert house.machine.values == {b"k": b"1"}, "the next decision builds on it"
    assert (call.replies, waiting.replies, house.effects) == ([], [], [])

    house.log.replicate()
    assert (call.replies, waiting.replies, house.effects) == (["put"], ["woken"], [("effect", b"1")])


def test_a_read_waits_for_what_it_tells_of(house: House) -> None:
    house.lead()
    assert house.get() is None
    house.put(b"1")
    call = Call()

    assert house.get(call) is REPLY_PENDING
    house.log.replicate()

    assert call.replies == [b"1"]


def test_a_refused_append_has_changed_nothing(house: House) -> None:
    house.lead()
    house.log.refuses = 19

    assert house.put(b"1") == ("refused", 19)
    assert house.machine.values == {}
    assert house.effects == []


def test_a_commit_that_takes_too_long_is_said_so_and_still_counts(house: House) -> None:
    house.lead()
    call, waiting = Call(), Call()
    house.leave_unanswered(waiting)
    house.put(b"1", call)

    house.loop.advance(TIMEOUT_MS)
    assert call.replies == [("failed", REQUEST_TIMED_OUT)]
    assert waiting.replies == []

    house.log.replicate()
    assert (call.replies, waiting.replies) == ([("failed", REQUEST_TIMED_OUT)], ["woken"])
    assert house.effects == [("effect", b"1")], "what follows from a committed record is done"


def test_waiting_calls_fail_when_the_leadership_goes(house: House) -> None:
    house.lead()
    unanswered, woken, writer, reader = Call(), Call(), Call(), Call()
    house.leave_unanswered(woken)
    house.put(b"1", writer)
    house.get(reader)
    house.leave_unanswered(unanswered)

    house.log.lose()

    gone = [("failed", NOT_COORDINATOR)]
    assert (writer.replies, reader.replies, woken.replies) == (gone, gone, gone)
    assert unanswered.replies == ["unloaded"]
    assert house.effects == []
    assert house.put(b"2") == ("failed", NOT_COORDINATOR)


def test_a_leadership_that_is_back_in_the_same_epoch_is_loaded_anew(house: House) -> None:
    house.lead()
    before = house.machine
    house.put(b"1")
    house.log.lose()
    house.log.is_led = True

    house.lead()

    assert house.machine is not before
    assert house.machine.values == {b"k": b"1"}


def test_a_shard_that_loads_says_so_and_then_knows_what_is_in_the_log(house: House) -> None:
    house.lead()
    for value in (b"1", b"2", b"3"):
        house.put(value)
    house.log.replicate()
    house.runtime.resign(0)

    house.runtime.lead(house.log)
    assert house.get() == ("failed", LOAD_IN_PROGRESS)
    house.loop.turn()

    assert house.get() == b"3"
    assert house.machine.offsets == [0, 1, 2]


def test_a_record_uncommitted_before_the_load_is_not_read_before_it_is_committed(house: House) -> None:
    house.lead()
    house.put(b"1")
    house.runtime.resign(0)
    house.lead()
    call = Call()

    assert house.get(call) is REPLY_PENDING
    house.log.replicate()
    assert call.replies == [b"1"]


def test_a_transaction_counts_when_its_marker_says_so_live_and_at_load(house: House) -> None:
    house.lead()
    house.put(b"committed", producer_id=7)
    house.log.replicate()
    assert house.machine.values == {}

    offset = house.log.mark(7, committed=True)
    house.runtime.on_marker_appended(0, 7, True, offset)
    house.put(b"aborted", producer_id=8)
    house.runtime.on_marker_appended(0, 8, False, house.log.mark(8, committed=False))
    house.log.replicate()
    assert house.get() == b"committed"

    house.runtime.resign(0)
    house.lead()
    assert house.get() == b"committed"
    assert house.machine.pending == {}


def test_a_log_that_cannot_be_read_is_tried_again(house: House) -> None:
    house.log.unreadable = True
    house.lead()
    assert house.get() == ("failed", LOAD_IN_PROGRESS)

    house.log.unreadable = False
    house.loop.advance(RELOAD_DELAY_MS)
    house.loop.turn()

    assert house.get() is None


def test_timers_ring_while_the_shard_is_led(house: House) -> None:
    house.lead()
    house.loop.advance(99)
    assert house.machine.rang == []
    house.loop.advance(50)
    assert house.machine.rang == ["loaded"]


def test_a_deadline_that_fails_keeps_no_other_from_coming_up(house: House) -> None:
    house.lead()
    house.runtime.perform("id", lambda machine, now, _: machine.arm("before", "mistake", "after"), Call().ticket)

    house.loop.advance(200)

    assert house.machine.rang == ["before", "mistake", "after", "loaded"]


def test_a_load_that_fails_by_our_mistake_is_tried_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: object) -> None:
        raise ValueError("our own")

    house.lead()
    house.put(b"1")
    house.log.replicate()
    house.runtime.resign(0)
    with monkeypatch.context() as patched:
        patched.setattr(Counter, "replay", mistaken)
        house.lead()
        assert house.get() == ("failed", LOAD_IN_PROGRESS)

    house.loop.advance(RELOAD_DELAY_MS)
    house.loop.turn()

    assert house.get() == b"1"


@pytest.mark.parametrize("what", ["record", "marker"])
def test_a_record_that_cannot_be_replayed_is_skipped_in_the_third_load(
    house: House, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Otherwise a record that cannot be loaded would block every group of the same partition for ever."""

    def replay(machine: Counter, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        taken(machine, key, value, offset, producer_id)
        assert offset != wrong or what != "record", "our own"

    def replay_marker(machine: Counter, producer_id: int, committed: bool, offset: int) -> None:
        raise ValueError("our own")

    house.lead()
    house.put(b"1")
    wrong = house.log.end_offset
    house.log.mark(7, True) if what == "marker" else house.put(b"2")
    house.log.replicate()
    house.runtime.resign(0)
    taken = Counter.replay
    monkeypatch.setattr(Counter, "replay", replay)
    monkeypatch.setattr(Counter, "replay_marker", replay_marker)
    house.lead()
    for _ in range(FAILED_REPLAYS_MAX):
        assert house.get() == ("failed", LOAD_IN_PROGRESS)
        house.loop.advance(RELOAD_DELAY_MS)
        house.loop.turn()

    assert house.get() == b"1"


def test_a_closed_shard_rings_no_more(house: House) -> None:
    house.lead()
    machine = house.machine
    house.runtime.resign(0)
    house.loop.advance(1_000)
    assert machine.rang == []


def test_a_client_that_went_away_is_not_answered(house: House) -> None:
    house.lead()
    call = Call()
    house.put(b"1", call)
    call.ticket.abandon()
    house.log.replicate()
    assert call.replies == []
    assert house.machine.values == {b"k": b"1"}


def test_a_topic_that_does_not_exist_has_no_coordinator(house: House) -> None:
    house.runtime.partitions = 0
    assert house.get() == ("failed", NOT_COORDINATOR)


def test_a_read_waits_until_it_is_known_that_nobody_else_coordinates(house: House) -> None:
    """Decision 76: the state of a deposed coordinator may be behind that of its successor."""
    house.lead()
    house.log.is_sole_in_sync_replica = False
    call = Call()

    assert house.get(call) is REPLY_PENDING
    house.log.confirm()

    assert call.replies == [None]


def test_a_read_of_what_was_just_written_waits_for_both_at_a_time(house: House) -> None:
    house.lead()
    house.log.is_sole_in_sync_replica = False
    house.put(b"1")
    first, second = Call(), Call()
    house.get(first)
    house.log.replicate()
    assert first.replies == []
    house.log.confirm()
    house.put(b"2")
    house.get(second)
    house.log.confirm()
    assert second.replies == []
    house.log.replicate()

    assert (first.replies, second.replies) == ([b"1"], [b"2"])


def test_a_read_that_nobody_confirms_is_to_be_asked_again(house: House) -> None:
    """A time-out is fatal to clients, and NOT_COORDINATOR would claim what is not known."""
    house.lead()
    house.log.is_sole_in_sync_replica = False
    call = Call()
    house.get(call)

    house.loop.advance(READ_TIMEOUT_MS)
    assert call.replies == [("failed", LOAD_IN_PROGRESS)]
    house.log.confirm()

    assert call.replies == [("failed", LOAD_IN_PROGRESS)]


def test_a_read_at_a_coordinator_that_was_deposed_is_sent_elsewhere(house: House) -> None:
    house.lead()
    house.log.is_sole_in_sync_replica = False
    machine = house.machine
    call = Call()
    house.get(call)

    house.log.confirm(6)

    assert call.replies == [("failed", NOT_COORDINATOR)]
    assert house.machine is machine, "no record is in doubt"


def test_a_write_waits_for_its_own_record_alone(house: House) -> None:
    """The commit of the record proves that this broker still leads."""
    house.lead()
    house.log.is_sole_in_sync_replica = False
    call = Call()
    house.put(b"1", call)

    house.log.replicate()

    assert call.replies == ["put"]
