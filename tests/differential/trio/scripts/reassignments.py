"""AlterPartitionReassignments and ListPartitionReassignments: moves, while who shall come does not follow (REP-32,
REP-33).
"""

from __future__ import annotations

from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.reassignment import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from brokers.engine.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
)
from tests.differential.trio.play import TrioPlayer
from tests.differential.trio.scripts import elections
from tests.testkit.engine import eventually

TOPIC, GONE, LATE = "trio.moves", "trio.moves.gone", "trio.moves.late"
Wanted = tuple[str, dict[int, str | None]]


def script(play: TrioPlayer) -> None:
    play.make(TOPIC, "AB", "AB", "BC", "AB")
    play.make(GONE, "AB")
    play.make(LATE, "BC", "AB")
    _nothing_moves(play)
    with play.paused("C"):
        _moving(play)
    play.until(GONE, 0, lambda line: line.error_code == 3)
    for index, replicas in enumerate(("BC", "ABC", "BC", "A")):
        play.until_in_sync(TOPIC, replicas, index)
        play.until(TOPIC, index, lambda line, replicas=replicas: line.replica_nodes == play.ids(replicas))
    _until_nothing_moves(play)
    _listed(play, "everything, when all have arrived")
    play.show("all have arrived", TOPIC)
    with play.stopped("C"):
        play.until_in_sync(LATE, "B", roles="AB")
        _move(play, "to who is away", (LATE, {1: "AC"}))
        _move(play, "beside who is away", (LATE, {0: "CAB"}))
        play.until_in_sync(LATE, "AB", roles="AB")
        _listed(play, "who waits for who is away")
        play.show("waiting for who is away", LATE)
    play.until_in_sync(LATE, "ABC")
    _until_nothing_moves(play)
    _listed(play, "everything, at the end")


def _move(play: TrioPlayer, label: str, *wanted: Wanted, role: str = "A", timeout_ms: int = 10_000) -> None:
    topics = [
        ReassignableTopic(
            name=play.inside(name),
            partitions=[
                ReassignablePartition(partition_index=index, replicas=None if roles is None else play.ids(roles))
                for index, roles in lines.items()
            ],
        )
        for name, lines in wanted
    ]
    request = AlterPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics)
    answer: Any = play.operator[role].call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)
    answer.responses.sort(key=lambda topic: topic.name)
    for topic in answer.responses:
        topic.partitions.sort(key=lambda line: line.partition_index)
    play.operator[role].write_down_answer(label, answer)


def _listed(play: TrioPlayer, label: str, *wanted: tuple[str, list[int]], role: str = "A", none: bool = False) -> None:
    """Without `wanted` everything that moves, unless of `none`."""
    topics = [ListPartitionReassignmentsTopics(name=play.inside(name), partition_indexes=at) for name, at in wanted]
    request = ListPartitionReassignmentsRequest(topics=topics if wanted or none else None)
    answer: Any = play.operator[role].call(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, request)
    answer.topics.sort(key=lambda topic: topic.name)
    for topic in answer.topics:
        topic.partitions.sort(key=lambda line: line.partition_index)
    play.operator[role].write_down_answer(f"list: {label}", answer)


def _until_nothing_moves(play: TrioPlayer) -> None:
    def nothing() -> bool:
        asked = ListPartitionReassignmentsRequest(topics=None)
        return not play.operator["A"].call(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, asked).topics

    eventually(nothing, "nothing moves")


def _nothing_moves(play: TrioPlayer) -> None:
    _move(play, "nothing")
    _move(play, "no partition", (TOPIC, {}))
    _move(play, "an unknown topic", ("trio.moves.unknown", {0: "AB"}))
    _move(play, "a topic that cannot be", ("a/b", {0: "AB"}))
    _move(play, "a partition there is none of", (TOPIC, {4: "AB", -1: "AB"}))
    for what, replicas in {"no broker": "", "a broker twice": "AA", "a negative one": "A!", "none such": "A?"}.items():
        _move(play, f"to {what}", (TOPIC, {0: replicas}))
    _move(play, "calling off what does not move", (TOPIC, {0: None}))
    _move(play, "calling off of an unknown topic", ("trio.moves.unknown", {0: None}))
    _move(play, "to where it is", (TOPIC, {0: "AB"}))
    _move(play, "at another broker", (TOPIC, {0: "AB"}), role="B")
    _listed(play, "everything, nothing moves")
    _listed(play, "one that does not move", (TOPIC, [0]))
    _listed(play, "an unknown topic", ("trio.moves.unknown", [0]))
    _listed(play, "nothing", none=True)
    _listed(play, "at another broker", role="B")


def _moving(play: TrioPlayer) -> None:
    at_peace = "AB"
    _move(play, "one of two goes", (TOPIC, {0: "BC"}))
    play.until(TOPIC, 0, lambda line: line.replica_nodes == play.ids("BCA"), at_peace)
    _listed(play, "one moves")
    play.show("one moves", TOPIC)
    _move(play, "one right, one wrong", (TOPIC, {1: "C", 9: "A"}))
    _listed(play, "two move")
    _listed(play, "one of two", (TOPIC, [1, 2, 9]), (LATE, [0]))
    _listed(play, "of no partition", (TOPIC, []))
    _move(play, "to others while it moves", (TOPIC, {0: "C"}))
    _listed(play, "to others")
    _move(play, "back to the start", (TOPIC, {0: "AB"}))
    _listed(play, "back to the start")
    _move(play, "away again", (TOPIC, {0: "BC"}))
    _move(play, "calling off one of two", (TOPIC, {0: None, 2: None}))
    _listed(play, "one called off")
    play.until(TOPIC, 0, lambda line: len(line.replica_nodes) == 2, at_peace)
    play.show("one called off", TOPIC)
    _move(play, "on their way", (TOPIC, {0: "BC", 1: "ABC", 3: "A"}))
    play.until(TOPIC, 3, lambda line: line.replica_nodes == play.ids("A"), at_peace)
    _listed(play, "on their way")
    _beside(play)


def _beside(play: TrioPlayer) -> None:
    """Other requests about a topic that is being reassigned."""
    for version in (0, 3):
        for count in (4, 5):
            grown = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=TOPIC, count=count)], timeout_ms=10_000)
            play.at["A"].ask(f"grow v{version} to {count} while it moves", ApiKey.CREATE_PARTITIONS, version, grown)
    elections.ask(play, "preferred leaders of what moves", 2, (TOPIC, (0, 1, 3)))
    play.until(TOPIC, 0, lambda line: line.leader_id == play.trio.ids["B"], "AB")
    _move(play, "what will be deleted", (GONE, {0: "CB"}))
    request = DeleteTopicsRequest(topic_names=[GONE], timeout_ms=500)
    play.at["A"].ask("delete what moves", ApiKey.DELETE_TOPICS, 4, request)
    _move(play, "what is being deleted", (GONE, {0: "AB"}))
