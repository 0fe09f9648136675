"""Topics are read consistently with their states, at the latest after retries; unchanged partitions are reused (ZK-10,
ZK-12).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument, TopicDocument
from brokers.engine.cluster.loader import LISTED_PARTITIONS_MIN, read_topics
from brokers.engine.cluster.tree import Create, Node, Set
from tests.testkit.fake_store import FakeEnsemble, FakeTree

TOPIC = "orders"
STATE = paths.partition_state(TOPIC, 0)
WHOLE = {TOPIC: None}


def document(*replicas: int) -> bytes:
    return TopicDocument(topic_id="", assignment={0: replicas, 1: (1, 2)}).to_json()


def state(leader: int, *isr: int) -> bytes:
    return PartitionStateDocument(leader=leader, leader_epoch=1, controller_epoch=1, isr=isr).to_json()


async def stored(tree: FakeTree, replicas: tuple[int, ...], isr: tuple[int, ...]) -> None:
    above = [f"{paths.topic(TOPIC)}/partitions", *(f"{paths.topic(TOPIC)}/partitions/{index}" for index in range(2))]
    await tree.commit(
        [
            Create("/brokers", b""),
            Create(paths.TOPICS, b""),
            Create(paths.topic(TOPIC), document(*replicas)),
            *(Create(path, b"") for path in above),
            Create(STATE, state(isr[0], *isr)),
            Create(paths.partition_state(TOPIC, 1), state(1, 1, 2)),
        ]
    )


class Interrupted:
    """A tree with a write just before the states are read, a given number of times."""

    def __init__(self, tree: FakeTree, write: Callable[[], None], times: int = 1) -> None:
        self._tree = tree
        self._write = write
        self._times = times

    async def get_many(self, wanted: Sequence[str]) -> list[Node | None]:
        if STATE in wanted and self._times:
            self._times -= 1
            self._write()
        return await self._tree.get_many(wanted)


async def test_a_reassignment_that_ends_between_two_reads_is_read_consistently() -> None:
    ensemble = FakeEnsemble()
    tree = ensemble.connect()
    await stored(tree, (2, 1), (1, 2))

    def moved() -> None:
        ensemble.commit(tree, [Set(STATE, state(1, 1, 3), None), Set(paths.topic(TOPIC), document(1, 3), None)])

    result = await read_topics(Interrupted(tree, moved), WHOLE, {})  # type: ignore[arg-type]
    topic = result[TOPIC]
    assert topic is not None
    assert (topic.partitions[0].replicas, topic.partitions[0].isr) == ((1, 3), (1, 3))


async def test_a_permanent_inconsistency_is_shown_as_stored() -> None:
    """Written by a writer that does not keep them consistent."""
    tree = FakeEnsemble().connect()
    await stored(tree, (1, 2), (1, 3))
    topic = (await read_topics(tree, WHOLE, {}))[TOPIC]
    assert topic is not None
    assert (topic.partitions[0].replicas, topic.partitions[0].isr) == ((1, 2), (1, 3))


async def test_unchanged_partitions_are_reused_and_the_others_are_read() -> None:
    tree = FakeEnsemble().connect()
    await stored(tree, (1, 2, 3), (1, 2))
    known = await read_topics(tree, WHOLE, {})
    before = known[TOPIC]
    assert before is not None
    await tree.commit([Set(STATE, state(2, 2, 3), None)])
    after = (await read_topics(tree, WHOLE, {TOPIC: before}))[TOPIC]
    assert after is not None
    assert (after.partitions[0].leader, after.partitions[0].isr) == (2, (2, 3))
    assert after.partitions[1] is before.partitions[1]


async def test_a_partition_with_other_replicas_keeps_its_state() -> None:
    tree = FakeEnsemble().connect()
    await stored(tree, (1, 2), (1, 2))
    before = (await read_topics(tree, WHOLE, {}))[TOPIC]
    assert before is not None
    await tree.commit([Set(paths.topic(TOPIC), document(1, 2, 3), None)])
    after = (await read_topics(tree, WHOLE, {TOPIC: before}))[TOPIC]
    assert after == (await read_topics(tree, WHOLE, {}))[TOPIC]
    assert after is not None
    assert after.partitions[0].replicas == (1, 2, 3)


class Listening:
    """A tree that records which states were read."""

    def __init__(self, tree: FakeTree) -> None:
        self._tree = tree
        self.asked: list[str] = []

    async def get_many(self, wanted: Sequence[str]) -> list[Node | None]:
        self.asked += [path for path in wanted if path.endswith("/state")]
        return await self._tree.get_many(wanted)

    async def children_many(self, wanted: Sequence[str]) -> list[list[str] | None]:
        return await self._tree.children_many(wanted)


async def test_only_partitions_with_a_state_are_read_among_very_many() -> None:
    tree = FakeEnsemble().connect()
    assignment = dict.fromkeys(range(LISTED_PARTITIONS_MIN), (1, 2))
    body = TopicDocument(topic_id="", assignment=assignment).to_json()
    await tree.commit([Create("/brokers", b""), Create(paths.TOPICS, b""), Create(paths.topic(TOPIC), body)])
    listening = Listening(tree)

    created = (await read_topics(listening, WHOLE, {}))[TOPIC]  # type: ignore[arg-type]

    assert created is not None
    assert (len(created.partitions), listening.asked) == (LISTED_PARTITIONS_MIN, [])
    above = [paths.partitions(TOPIC), paths.partition(TOPIC, 7)]
    await tree.commit([*(Create(path, b"") for path in above), Create(paths.partition_state(TOPIC, 7), state(2, 1, 2))])
    led = (await read_topics(listening, WHOLE, {TOPIC: created}))[TOPIC]  # type: ignore[arg-type]
    assert led is not None
    assert listening.asked == [paths.partition_state(TOPIC, 7)]
    assert [partition.index for partition in led.partitions if partition.leader == 2] == [7]


async def test_only_changed_states_of_a_known_topic_are_read() -> None:
    tree = FakeEnsemble().connect()
    await stored(tree, (1, 2), (1, 2))
    before = (await read_topics(tree, WHOLE, {}))[TOPIC]
    assert before is not None
    await tree.commit([Set(STATE, state(2, 2), None)])
    listening = Listening(tree)
    for indexes, leader in ((set[int](), 1), ({1}, 1), ({0, 9}, 2)):
        known = {TOPIC: before}
        topic = (await read_topics(listening, {TOPIC: indexes}, known))[TOPIC]  # type: ignore[arg-type]
        assert topic is not None
        assert topic.partitions[0].leader == leader
        assert listening.asked == [paths.partition_state(TOPIC, index) for index in sorted(indexes & {0, 1})]
        listening.asked.clear()


async def test_a_recreated_topic_is_read_completely() -> None:
    tree = FakeEnsemble().connect()
    await stored(tree, (1, 2), (1, 2))
    before = (await read_topics(tree, WHOLE, {}))[TOPIC]
    assert before is not None
    other = replace(before, topic_id=b"another topic id")
    await tree.commit([Set(STATE, state(2, 2), None)])
    topic = (await read_topics(tree, {TOPIC: set()}, {TOPIC: other}))[TOPIC]
    assert topic is not None
    assert (topic.topic_id, topic.partitions[0].leader) == (before.topic_id, 2)
    assert (await read_topics(tree, {TOPIC: {1}}, {}))[TOPIC] == topic


async def test_a_document_newer_than_the_named_states_causes_a_complete_read() -> None:
    """The change that names the other half is announced, but not read yet."""
    tree = FakeEnsemble().connect()
    await stored(tree, (2, 1), (1, 2))
    before = (await read_topics(tree, WHOLE, {}))[TOPIC]
    assert before is not None
    await tree.commit([Set(STATE, state(1, 1, 3), None), Set(paths.topic(TOPIC), document(1, 3), None)])
    topic = (await read_topics(tree, {TOPIC: {1}}, {TOPIC: before}))[TOPIC]
    assert topic is not None
    assert (topic.partitions[0].replicas, topic.partitions[0].isr) == ((1, 3), (1, 3))
