"""Random sequences of commits, transactions, deletions, expiries, refusals and moves of the coordinator give the
offsets that a dictionary holds (GRP-21…27, TXN-9).
"""

from __future__ import annotations

from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from brokers.engine.coordinators.groups import removals
from brokers.engine.coordinators.groups.offsets import BYTES, Commit, Producer
from brokers.engine.protocol.errors import ErrorCode
from tests.testkit import depth
from tests.unit.brokers.engine.coordinators.groups.committing import (
    commit,
    commit_in_transaction,
    delete_group,
    delete_offsets,
    end_transaction,
    everything,
    exists,
    fetched,
)
from tests.unit.brokers.engine.coordinators.groups.members import Shard

EXAMPLES = depth.number_from("OFFSETS_MODEL_EXAMPLES", short=8, long=15)
RETENTION_MS = 10_000_000
CHECK_MS = 1_000_000
STEP_MS = 2_000
GROUPS = ("ins-aaaaaaaa.g", "ins-aaaaaaaa.h", "ins-bbbbbbbb.g")
TOPICS = ("ins-aaaaaaaa.t", "ins-aaaaaaaa.u")

groups = st.sampled_from(GROUPS)
topics = st.sampled_from(TOPICS)
# Few, so that operations often meet on the same partition.
PARTITIONS = 2
partitions = st.integers(0, PARTITIONS - 1)
keys = st.tuples(topics, partitions)
producers = st.sampled_from((1, 2))
offsets = st.dictionaries(keys, st.integers(0, 1_000), min_size=1, max_size=4)


class Entry(NamedTuple):
    offset: int
    committed_ms: int
    expire_ms: int | None
    # Sequence number of the write.
    turn: int


class OffsetsModel(RuleBasedStateMachine):
    """A model of the committed and pending offsets of each group; writes are numbered, and the latest one wins."""

    @initialize()
    def begin(self) -> None:
        self.shard = Shard(retention_ms=RETENTION_MS, retention_check_interval_ms=CHECK_MS)
        self.committed: dict[tuple[str, tuple[str, int]], Entry] = {}
        self.pending: dict[int, dict[tuple[str, tuple[str, int]], Entry]] = {}
        self.turn = 0
        # Small batches, so that many deletions take several.
        self.patched, removals.BATCH_KEY_BYTES_MAX = removals.BATCH_KEY_BYTES_MAX, 60  # type: ignore[misc]

    def teardown(self) -> None:
        if hasattr(self, "patched"):
            removals.BATCH_KEY_BYTES_MAX = self.patched  # type: ignore[misc]

    def entry(self, offset: int, retention_ms: int | None = None) -> Entry:
        self.turn += 1
        now_ms = self.shard.loop.now().wall_ms
        return Entry(offset, now_ms, None if retention_ms is None else now_ms + retention_ms, self.turn)

    def remove(self, group: str, key: tuple[str, int]) -> None:
        self.committed.pop((group, key), None)
        for held in self.pending.values():
            held.pop((group, key), None)

    def is_held(self, group: str, key: tuple[str, int]) -> bool:
        return any((group, key) in held for held in self.pending.values())

    def knows(self, group: str) -> bool:
        return any(of == group for of, _ in self.committed) or any(
            of == group for held in self.pending.values() for of, _ in held
        )

    @rule(group=groups, wanted=offsets, retention_ms=st.none() | st.integers(0, 3 * RETENTION_MS))
    def commits(self, group: str, wanted: dict[tuple[str, int], int], retention_ms: int | None) -> None:
        call = commit(
            self.shard,
            *(Commit(topic, partition, offset) for (topic, partition), offset in wanted.items()),
            group=group,
            retention_ms=-1 if retention_ms is None else retention_ms,
        )
        assert call.replies == [[0] * len(wanted)]
        for key, offset in wanted.items():
            self.committed[group, key] = self.entry(offset, retention_ms)

    @rule(group=groups, producer=producers, wanted=offsets)
    def commits_in_a_transaction(self, group: str, producer: int, wanted: dict[tuple[str, int], int]) -> None:
        call = commit_in_transaction(
            self.shard,
            *(Commit(topic, partition, offset) for (topic, partition), offset in wanted.items()),
            group=group,
            producer=Producer(producer, 0),
        )
        assert call.replies == [[0] * len(wanted)]
        for key, offset in wanted.items():
            self.pending.setdefault(producer, {})[group, key] = self.entry(offset)

    @precondition(lambda self: any(self.pending.values()))
    @rule(data=st.data(), offset=st.integers(0, 1_000))
    def commits_over_what_a_transaction_holds(self, data: st.DataObject, offset: int) -> None:
        held = sorted(at for held in self.pending.values() for at in held)
        group, key = data.draw(st.sampled_from(held))
        assert commit(self.shard, Commit(*key, offset), group=group).replies == [[0]]
        self.committed[group, key] = self.entry(offset)

    @rule(producer=producers, committed=st.booleans())
    def a_transaction_ends(self, producer: int, committed: bool) -> None:
        end_transaction(self.shard, committed=committed, producer=Producer(producer, 0))
        for at, entry in self.pending.pop(producer, {}).items():
            held = self.committed.get(at)
            if committed and (held is None or held.turn < entry.turn):
                self.committed[at] = entry

    @rule(group=groups, wanted=st.sets(keys, min_size=1, max_size=8))
    def offsets_are_deleted(self, group: str, wanted: set[tuple[str, int]]) -> None:
        known = self.knows(group)
        call = delete_offsets(self.shard, *sorted(wanted), group=group)
        self.shard.advance(STEP_MS)
        if not known:
            assert call.replies == [(ErrorCode.GROUP_ID_NOT_FOUND, [])]
            return
        assert call.replies == [(0, [0] * len(wanted))]
        for key in wanted:
            self.remove(group, key)

    @rule(group=groups)
    def a_group_is_deleted(self, group: str) -> None:
        known = self.knows(group)
        call = delete_group(self.shard, group)
        self.shard.advance(STEP_MS)
        assert call.replies == [0 if known else ErrorCode.GROUP_ID_NOT_FOUND]
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                self.remove(group, (topic, partition))

    @rule(topic=topics)
    def a_topic_is_deleted(self, topic: str) -> None:
        self.shard.ask(lambda machine, now, _: machine.removals.on_topics_deleted(now, [topic]))
        self.shard.advance(STEP_MS)
        for group in GROUPS:
            # Clients commit only for topics of their own instance.
            for partition in range(PARTITIONS):
                if group.startswith("ins-aaaaaaaa"):
                    self.remove(group, (topic, partition))

    @rule(by_ms=st.integers(0, RETENTION_MS))
    def time_passes(self, by_ms: int) -> None:
        self.shard.advance(by_ms)
        # All groups are checked within this time; deletions follow.
        self.shard.advance(CHECK_MS + STEP_MS)
        now_ms = self.shard.loop.now().wall_ms
        for (group, key), entry in list(self.committed.items()):
            over_ms = entry.committed_ms + RETENTION_MS if entry.expire_ms is None else entry.expire_ms
            if self.is_held(group, key):
                continue
            if over_ms <= now_ms:
                # The model does not predict whether the last check came before the expiry.
                late = now_ms - over_ms >= 2 * CHECK_MS
                if late or (key[0], key[1]) not in everything(self.shard, group):
                    del self.committed[group, key]

    @rule(group=groups, wanted=offsets, code=st.sampled_from((19, 56, 10)))
    def the_log_refuses(self, group: str, wanted: dict[tuple[str, int], int], code: int) -> None:
        self.shard.log.refuses = code
        sent = {19: 15, 56: 16, 10: 28}[code]
        call = commit(self.shard, *(Commit(*key, offset) for key, offset in wanted.items()), group=group)
        assert call.replies == [[sent] * len(wanted)]
        self.shard.log.refuses = 0

    @rule()
    def the_coordinator_moves(self) -> None:
        self.shard.reload()

    @invariant()
    def what_is_fetched_is_what_was_committed(self) -> None:
        for group in GROUPS:
            wanted = {key: entry.offset for (of, key), entry in self.committed.items() if of == group}
            assert everything(self.shard, group) == wanted
            assert exists(self.shard, group) == self.knows(group)

    @invariant()
    def what_a_transaction_holds_is_unstable(self) -> None:
        for held in self.pending.values():
            for group, (topic, partition) in held:
                position = fetched(self.shard, partition, topic, group=group, require_stable=True)
                assert position.error == ErrorCode.UNSTABLE_OFFSET_COMMIT

    @invariant()
    def the_sums_agree(self) -> None:
        machine = self.shard.machine.offsets
        assert len(machine) == len(self.committed)
        bytes_held = sum(held.bytes for held in machine.offsets_by_group.values())
        instances = {held.instance_id for held in machine.offsets_by_group.values()}
        assert sum(machine.shards.used(instance_id, BYTES) for instance_id in instances) == bytes_held


TestOffsetsModel = OffsetsModel.TestCase
TestOffsetsModel.settings = settings(max_examples=EXAMPLES, stateful_step_count=25)
