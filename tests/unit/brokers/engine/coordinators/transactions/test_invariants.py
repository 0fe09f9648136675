"""Producers, zombies, markers, time-outs, failing appends and failovers in random order. Invariants: an outcome is
decided once, epochs never decrease, fenced producers change nothing, every decided transaction completes once its
markers are written (TXN-4, TXN-11, TXN-12, TXN-16, TXN-17, TXN-26).
"""

from __future__ import annotations

from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from brokers.engine.coordinators.limits import COMPLETION_RETRY_MS
from brokers.engine.coordinators.transactions.metadata import TransactionMetadata
from brokers.engine.coordinators.transactions.replies import InitProducerIdReply, SendMarkers
from brokers.engine.coordinators.transactions.states import DECIDED, TransactionState, may_follow
from tests.testkit import depth
from tests.unit.brokers.engine.coordinators.fakes import Call, FakeLog
from tests.unit.brokers.engine.coordinators.transactions.coordinator import Coordinator, Producer

EXAMPLES = depth.number_from("PENSTOCK_TRANSACTION_EXAMPLES", short=10, long=25)
IDS = ("one", "two")
PARTITIONS = tuple((topic, index) for topic in ("a", "b") for index in (0, 1))
UNFINISHED = ("PrepareCommit", "PrepareAbort")
ENDED = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
REFUSALS = (0, 0, 19, 6, 10)

ids = st.sampled_from(IDS)
partitions = st.sets(st.sampled_from(PARTITIONS), max_size=3)


class Transactions(RuleBasedStateMachine):
    """A state machine test. `granted` lists all producers that clients were given, by transactional id and in order;
    `written` holds the markers in partitions, which are the actual outcomes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.producer_ids = count(1000)
        self.coordinator = Coordinator(producer_ids=self.producer_ids)
        self.granted: dict[str, list[Producer]] = {name: [] for name in IDS}
        self.waiting: list[tuple[str, Call]] = []
        self.to_write: list[SendMarkers] = []
        self.delivered: list[SendMarkers] = []
        self.seen = 0
        self.last: dict[str, TransactionMetadata] = {}
        self.results: dict[tuple[str, int], bool] = {}
        self.transaction: dict[str, int] = dict.fromkeys(IDS, 0)

    # -- what clients do -----------------------------------------------------------------------------------------------

    @rule(name=ids, expects=st.booleans())
    def initialise(self, name: str, expects: bool) -> None:
        mine = self.granted[name]
        reply = self.coordinator.initialise(name, mine[-1].identity if expects and mine else None)
        self._granted(name, reply)

    @rule(name=ids, which=st.integers(0, 3), added=partitions)
    def add(self, name: str, which: int, added: set[tuple[str, int]]) -> None:
        if self.granted[name]:
            producer = self._pick(name, which)
            self._check_fenced(producer, self.coordinator.add(producer, *added))

    @rule(name=ids, which=st.integers(0, 3), committed=st.booleans())
    def end(self, name: str, which: int, committed: bool) -> None:
        if self.granted[name]:
            producer = self._pick(name, which)
            self._check_fenced(producer, self.coordinator.end(producer, committed))

    def _pick(self, name: str, back: int) -> Producer:
        mine = self.granted[name]
        return mine[max(0, len(mine) - 1 - back)]

    def _granted(self, name: str, reply: Any) -> None:
        if isinstance(reply, Call):
            self.waiting.append((name, reply))
        elif isinstance(reply, InitProducerIdReply) and reply.error == 0:
            self.granted[name].append(Producer(name, reply.producer_id, reply.producer_epoch))

    def _check_fenced(self, producer: Producer, reply: Any) -> None:
        """Check that a producer with a newer successor had no effect."""
        newer = self.granted[producer.transactional_id][-1]
        if newer.identity != producer.identity:
            assert not isinstance(reply, Call), "it was appended"
            assert reply != 0 or self.coordinator.log.is_led is False, f"{producer} acts although {newer} came after it"

    # -- what the world does -------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def some_markers_are_written(self, data: st.DataObject) -> None:
        if self.to_write:
            sent = data.draw(st.sampled_from(self.to_write))
            some = data.draw(st.sets(st.sampled_from(sorted(sent.partitions)))) if sent.partitions else set()
            self.coordinator.written(sent, some)
            self.delivered.append(sent)

    @rule(data=st.data())
    def an_old_answer_comes_again(self, data: st.DataObject) -> None:
        if self.delivered:
            sent = data.draw(st.sampled_from(self.delivered))
            before = len(self.coordinator.log.batches)
            if sent not in self.to_write[-len(IDS) :]:
                self.coordinator.written(sent, sent.partitions)
            assert len(self.coordinator.log.batches) - before <= 1

    @rule()
    def all_markers_are_written(self) -> None:
        # Twice, because another transaction may time out while completions are retried.
        for _ in range(2):
            self._replicate()
            self._write_all()
            self.coordinator.loop.advance(2 * COMPLETION_RETRY_MS)
        self._replicate()
        self._write_all()
        self._replicate()
        for name in IDS:
            assert self.coordinator.log.refuses or self.coordinator.state(name) not in UNFINISHED

    def _write_all(self) -> None:
        self.markers_are_taken_over()
        for sent in self.to_write:
            self.coordinator.written(sent, sent.partitions)

    @rule(by_ms=st.sampled_from([100, 10_000, 70_000]))
    def time_passes(self, by_ms: int) -> None:
        self.coordinator.loop.advance(by_ms)

    @rule(code=st.sampled_from(REFUSALS))
    def the_log_refuses_or_not(self, code: int) -> None:
        self.coordinator.log.refuses = code

    @rule(at_once=st.booleans())
    def commits_take_time_or_not(self, at_once: bool) -> None:
        self.coordinator.log.commits(at_once)
        if at_once:
            self._replicate()

    @rule()
    def replicate(self) -> None:
        self._replicate()

    def _replicate(self) -> None:
        self.coordinator.log.replicate()
        waiting, self.waiting = self.waiting, []
        for name, call in waiting:
            if call.replies:
                self._granted(name, call.replies[0])
            else:
                self.waiting.append((name, call))

    @rule(lost=st.booleans())
    def the_coordinator_dies(self, lost: bool) -> None:
        """Fail over to a coordinator with all committed records; `lost` drops the uncommitted ones."""
        before = self.coordinator.log
        log = FakeLog(leader_epoch=before.leader_epoch + 1, at_once=True)
        log.batches = [batch for batch in before.batches if not lost or batch.last_offset < before.high_watermark]
        log.high_watermark = log.end_offset
        if lost:
            self._unlearn(log)
        self.waiting.clear()
        self.to_write.clear()
        self.delivered.clear()
        self.coordinator = Coordinator(log=log, producer_ids=self.producer_ids)

    def _unlearn(self, log: FakeLog) -> None:
        """Forget the lost records; no reply depended on them."""
        kept = Coordinator(log=log).records
        self.seen = min(self.seen, len(kept))
        self.last = {name: record for name, record in kept if record is not None}
        self.results, self.transaction = {}, dict.fromkeys(IDS, 0)
        for name, record in kept:
            self._count(name, record)

    # -- what always holds ---------------------------------------------------------------------------------------------

    @invariant()
    def markers_are_taken_over(self) -> None:
        self.to_write += self.coordinator.sent
        self.coordinator.sent.clear()

    @invariant()
    def records_follow_the_law(self) -> None:
        records = self.coordinator.records
        for name, record in records[self.seen :]:
            before = self.last.get(name)
            self._count(name, record)
            if record is None:
                self.last.pop(name, None)
                continue
            if before is not None:
                is_said_again = record == before and record.state in ENDED
                assert is_said_again or may_follow(before.state, record.state), (before, record)
                if record.producer_id == before.producer_id:
                    assert before.producer_epoch <= record.producer_epoch <= before.producer_epoch + 1
                assert record.last_update_ms >= before.last_update_ms
                if record.state is TransactionState.ONGOING and before.state is TransactionState.ONGOING:
                    assert record.partitions >= before.partitions
                    assert record.start_ms == before.start_ms
            self.last[name] = record
        self.seen = len(records)

    def _count(self, name: str, record: TransactionMetadata | None) -> None:
        """Check that each transaction has one outcome."""
        if record is None:
            return
        if record.state in DECIDED:
            decided = record.state is TransactionState.PREPARE_COMMIT
            key = (name, self.transaction[name])
            assert self.results.setdefault(key, decided) is decided
        if record.state in ENDED:
            number = self.transaction[name]
            committed = record.state is TransactionState.COMPLETE_COMMIT
            if (name, number) in self.results:
                assert self.results[name, number] is committed
                self.transaction[name] += 1
            else:
                # A repeated end of a completed transaction writes its decision again.
                assert self.results[name, number - 1] is committed

    @invariant()
    def markers_say_what_the_log_says(self) -> None:
        if not self.to_write:
            return
        decided = {
            (record.producer_id, record.producer_epoch, record.state is TransactionState.PREPARE_COMMIT)
            for _, record in self.coordinator.committed_records
            if record is not None and record.state in DECIDED
        }
        for sent in self.to_write:
            assert (sent.producer_id, sent.producer_epoch, sent.committed) in decided, "told before it was durable"

    def teardown(self) -> None:
        """Check that all transactions complete once nothing fails any more."""
        self.coordinator.log.refuses = 0
        self.coordinator.log.commits(True)
        for _ in range(3):
            self._replicate()
            self.coordinator.loop.advance(80_000)
            self._replicate()
            self._write_all()
        self._replicate()
        self.records_follow_the_law()
        for name in IDS:
            assert self.coordinator.state(name) in ("", "Empty", "CompleteCommit", "CompleteAbort")


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=EXAMPLES, stateful_step_count=40)
