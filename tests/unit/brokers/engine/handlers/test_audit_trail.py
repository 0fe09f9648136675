"""The audit trail of one broker without its topic: single events, tallies, and waiting events."""

from __future__ import annotations

import asyncio

import pytest

from brokers.contract.audit import SEVERAL, AuditEvent, AuditItem
from brokers.contract.audit_limits import (
    CHANGES_LISTED_BURST,
    COMMITS_REPORTED_EVERY_S,
    COMMITS_REPORTED_KEYS_MAX,
    TALLIES_PER_INSTANCE_MAX,
    TALLIES_REPORTED_EVERY_S,
    TALLY_REPORTED_AFTER_S,
)
from brokers.engine.handlers.audit_trail import (
    NAMES_MAX,
    WAITING_BYTES_MAX,
    WAITING_MAX,
    WRITTEN_PER_TURN,
    AuditTrail,
    Source,
)

MINE = "ins-aaaaaaaa"
READER = Source("reader", "10.0.0.9", "tool", "default")
TOPIC = AuditItem(action="topic.created", kind="topic", name="orders", after={"partitions": 3})
COMMITTED = AuditItem(action="group.offsets_committed", kind="group", name="etl", after={"offsets": {"orders-0": 5}})


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return 1_000_000 + self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class Paper:
    """An audit log that accepts events while `is_led`."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.is_led = True
        self.raw: list[bytes] = []
        self.trail = AuditTrail(1, self.clock)
        self.trail.append = self._append

    def _append(self, instance_id: str, value: bytes) -> bool:
        if self.is_led:
            assert AuditEvent.from_json(value).instance_id == instance_id
            self.raw.append(value)
        return self.is_led

    @property
    def events(self) -> list[AuditEvent]:
        return [AuditEvent.from_json(raw) for raw in self.raw]

    async def after(self, seconds: float) -> list[AuditEvent]:
        """Advances the clock; returns the events written meanwhile."""
        self.raw.clear()
        self.clock.ms += round(seconds * 1000)
        await self.trail.tick()
        return self.events


@pytest.fixture
def paper() -> Paper:
    return Paper()


def test_a_change_is_written_at_once(paper: Paper) -> None:
    paper.trail.report_changes(MINE, READER, [TOPIC], more=2, failed=1)
    (event,) = paper.events
    assert (event.user, event.address, event.client_id, event.route) == READER
    assert (event.items, event.more, event.failed, event.requests) == ((TOPIC,), 2, 1, 1)
    assert (event.at_ms, event.broker_id) == (1_000_000, 1)


async def test_changes_beyond_the_burst_are_counted_and_reported_together(paper: Paper) -> None:
    for number in range(CHANGES_LISTED_BURST + 500):
        paper.trail.report_changes(MINE, READER, [AuditItem(action="topic.created", kind="topic", name=f"t-{number}")])
    assert len(paper.raw) == CHANGES_LISTED_BURST
    (event,) = await paper.after(TALLY_REPORTED_AFTER_S)
    assert event.requests == 500
    (item,) = event.items
    assert item.action == "topic.created"
    assert item.after is not None
    assert item.after["names"] == [f"t-{CHANGES_LISTED_BURST + number}" for number in range(NAMES_MAX)]
    assert paper.trail.counts.merged == 500


async def test_a_change_after_a_pause_of_a_minute_is_reported_by_itself(paper: Paper) -> None:
    for _ in range(CHANGES_LISTED_BURST + 1):
        paper.trail.report_changes(MINE, READER, [TOPIC])
    await paper.after(60)
    paper.raw.clear()
    paper.trail.report_changes(MINE, READER, [TOPIC])
    assert [event.requests for event in paper.events] == [1]


def test_the_burst_of_one_instance_takes_nothing_from_another(paper: Paper) -> None:
    for _ in range(CHANGES_LISTED_BURST + 1):
        paper.trail.report_changes(MINE, READER, [TOPIC])
    paper.raw.clear()
    paper.trail.report_changes("ins-bbbbbbbb", READER, [TOPIC])
    assert len(paper.events) == 1


async def test_failed_sign_ins_of_a_minute_are_one_event(paper: Paper) -> None:
    source = Source("reader", "10.0.0.9", route="default")
    for _ in range(100):
        paper.trail.report_failed_sign_in(MINE, source, "PLAIN", is_refused=False)
    assert not paper.raw
    (first,) = await paper.after(TALLY_REPORTED_AFTER_S)
    assert (first.user, first.address, first.requests) == ("reader", "10.0.0.9", 100)
    assert first.items[0].action == "client.sign_in_failed"
    assert first.items[0].after == {"mechanism": "PLAIN"}
    for _ in range(27):
        paper.trail.report_failed_sign_in(MINE, source, "PLAIN", is_refused=False)
    assert not await paper.after(TALLIES_REPORTED_EVERY_S - 1)
    (second,) = await paper.after(1)
    assert second.requests == 27


async def test_a_flood_from_many_addresses_is_a_bounded_number_of_events(paper: Paper) -> None:
    for number in range(5_000):
        source = Source("", f"10.0.{number // 256}.{number % 256}", route="default")
        paper.trail.report_failed_sign_in(MINE, source, "PLAIN", is_refused=False)
    events = await paper.after(TALLY_REPORTED_AFTER_S)
    assert len(events) == TALLIES_PER_INSTANCE_MAX + 1
    assert sum(event.requests for event in events) == 5_000
    rest = events[-1]
    assert (rest.user, rest.address, rest.requests) == (SEVERAL, "", 5_000 - TALLIES_PER_INSTANCE_MAX)


async def test_a_refused_change_says_what_was_asked(paper: Paper) -> None:
    for name in ("orders", "bills"):
        paper.trail.report_denial(MINE, READER, "topic.deleted", "topic", [name])
    (event,) = await paper.after(TALLY_REPORTED_AFTER_S)
    assert event.requests == 2
    assert event.items[0].action == "client.denied"
    assert event.items[0].after == {"names": ["orders", "bills"], "asked": "topic.deleted"}


async def test_offsets_committed_outside_of_a_group_are_reported_at_once_and_then_each_hour(paper: Paper) -> None:
    paper.trail.report_commit(MINE, READER, COMMITTED)
    (first,) = paper.events
    assert (first.items, first.requests) == ((COMMITTED,), 1)
    for _ in range(719):
        paper.trail.report_commit(MINE, READER, COMMITTED)
    assert not await paper.after(COMMITS_REPORTED_EVERY_S - 1)
    (second,) = await paper.after(1)
    assert second.requests == 719
    assert second.items[0].after == COMMITTED.after


async def test_commits_for_ever_other_groups_are_bounded_as_well(paper: Paper) -> None:
    for number in range(COMMITS_REPORTED_KEYS_MAX + 900):
        item = AuditItem(action=COMMITTED.action, kind="group", name=f"g-{number}")
        paper.trail.report_commit(MINE, READER, item)
    assert len(paper.raw) == COMMITS_REPORTED_KEYS_MAX + 1
    (event,) = await paper.after(COMMITS_REPORTED_EVERY_S)
    assert (event.requests, event.user, event.address) == (899, "reader", "10.0.0.9")
    assert event.items[0].name == ""
    assert event.items[0].after is not None and len(event.items[0].after["names"]) == NAMES_MAX


async def test_changing_client_ids_do_not_hide_a_flood(paper: Paper) -> None:
    for number in range(CHANGES_LISTED_BURST + 300):
        paper.trail.report_changes(MINE, READER._replace(client_id=f"c-{number}"), [TOPIC])
    for number in range(300):
        paper.trail.report_denial(MINE, READER._replace(client_id=f"c-{number}"), "topic.deleted", "topic", ["orders"])
    events = await paper.after(TALLY_REPORTED_AFTER_S)
    assert [(event.user, event.address, event.requests) for event in events] == [("reader", "10.0.0.9", 300)] * 2


async def test_nothing_is_kept_of_an_instance_that_is_quiet(paper: Paper) -> None:
    paper.trail.report_changes(MINE, READER, [TOPIC])
    paper.trail.report_failed_sign_in(MINE, READER, "PLAIN", is_refused=True)
    for _ in range(3):
        await paper.after(2 * COMMITS_REPORTED_EVERY_S)
    assert not paper.trail._by_instance


async def test_events_wait_while_there_is_nowhere_to_write(paper: Paper) -> None:
    paper.is_led = False
    for name in ("a", "b"):
        paper.trail.report_changes(MINE, READER, [AuditItem(action="topic.created", kind="topic", name=name)])
    assert paper.trail.waiting == 2
    paper.is_led = True
    paper.trail.report_changes(MINE, READER, [AuditItem(action="topic.created", kind="topic", name="c")])
    assert not paper.raw, "nothing overtakes what waits"
    assert [event.items[0].name for event in await paper.after(1)] == ["a", "b", "c"]
    assert (paper.trail.waiting, paper.trail.counts.written, paper.trail.counts.lost) == (0, 3, 0)


@pytest.mark.parametrize("name_chars", [1, 200])
async def test_waiting_events_are_limited_and_lost_ones_are_counted(paper: Paper, name_chars: int) -> None:
    paper.is_led = False
    items = [AuditItem(action="topic.created", kind="topic", name="x" * name_chars)] * 60
    instances = 3 * WAITING_MAX // 10
    for number in range(instances):
        for _ in range(10):
            paper.trail.report_changes(f"ins-{number:08}", READER, items)
    assert paper.trail.waiting <= WAITING_MAX
    assert sum(len(value) for _, value in paper.trail._waiting) <= WAITING_BYTES_MAX
    assert paper.trail.waiting + paper.trail.counts.lost == instances * 10


def test_a_process_that_stops_tells_what_it_has_counted(paper: Paper) -> None:
    paper.trail.report_failed_sign_in(MINE, READER, "PLAIN", is_refused=False)
    paper.trail.finish()
    assert [event.requests for event in paper.events] == [1]


async def test_an_event_that_comes_while_tallies_are_written_is_in_the_next_report(paper: Paper) -> None:
    sources = [Source("reader", f"10.0.0.{number}", route="default") for number in range(WRITTEN_PER_TURN)]
    for source in sources:
        paper.trail.report_failed_sign_in(MINE, source, "PLAIN", is_refused=False)
    writing = asyncio.create_task(paper.after(TALLY_REPORTED_AFTER_S))
    await asyncio.sleep(0)
    assert not writing.done(), "the tick lets others run after these tallies"
    paper.trail.report_failed_sign_in(MINE, sources[-1], "PLAIN", is_refused=False)
    assert sum(event.requests for event in await writing) == WRITTEN_PER_TURN
    (event,) = await paper.after(TALLIES_REPORTED_EVERY_S)
    assert (event.address, event.requests) == (sources[-1].address, 1)


async def test_a_commit_that_comes_while_tallies_are_written_is_reported_once(paper: Paper) -> None:
    groups = [
        AuditItem(action="group.offsets_committed", kind="group", name=f"g-{number}", after={"offsets": {"t-0": 1}})
        for number in range(WRITTEN_PER_TURN)
    ]
    for _ in range(2):
        for group in groups:
            paper.trail.report_commit(MINE, READER, group)
    writing = asyncio.create_task(paper.after(COMMITS_REPORTED_EVERY_S))
    await asyncio.sleep(0)
    assert not writing.done(), "the tick lets others run after these tallies"
    paper.trail.report_commit(MINE, READER, groups[-1])
    assert sum(event.requests for event in await writing) == WRITTEN_PER_TURN
    (event,) = await paper.after(COMMITS_REPORTED_EVERY_S)
    assert (event.items[0].name, event.requests) == (groups[-1].name, 1)


async def test_a_tally_whose_write_was_the_last_of_a_stopped_tick_is_not_reported_again(paper: Paper) -> None:
    for number in range(WRITTEN_PER_TURN):
        source = Source("reader", f"10.0.0.{number}", route="default")
        paper.trail.report_failed_sign_in(MINE, source, "PLAIN", is_refused=False)
    writing = asyncio.create_task(paper.after(TALLY_REPORTED_AFTER_S))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    paper.trail.finish()
    assert sum(event.requests for event in paper.events) == WRITTEN_PER_TURN
