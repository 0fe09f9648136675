"""ElectLeaders in every version: preferred leaders, and a leader at any price (REP-28, REP-29, REP-31)."""

from __future__ import annotations

from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from brokers.engine.protocol.messages.reassignment import ElectLeadersRequest, ElectLeadersTopicPartitions
from tests.differential.batches import batch
from tests.differential.scripts.produce import produced
from tests.differential.trio.play import TrioPlayer

TOPIC, FRAGILE = "trio.elections", "trio.elections.fragile"
PREFERRED, UNCLEAN = 0, 1


def script(play: TrioPlayer) -> None:
    play.make(TOPIC, "ABC", "BCA")
    play.make(FRAGILE, "CB")
    for version in range(3):
        _refused(play, version)
    for version, order in enumerate(("BAC", "CAB", "ABC")):
        play.reassign(TOPIC, order)
        play.until(TOPIC, 0, lambda line, order=order: line.replica_nodes == play.ids(order))
        ask(play, f"v{version}: another leader and the one there is", version, (TOPIC, (0, 1)))
        play.until(TOPIC, 0, lambda line, order=order: line.leader_id == play.ids(order)[0])
        play.show(f"v{version}: another leader, shown", TOPIC)
    play.reassign(TOPIC, "BAC")
    play.until(TOPIC, 0, lambda line: line.replica_nodes == play.ids("BAC"))
    ask(play, "of everything, one to elect", 2)
    _without_replicas(play)


def ask(
    play: TrioPlayer,
    label: str,
    version: int,
    *wanted: tuple[str, tuple[int, ...]],
    kind: int = PREFERRED,
    role: str = "A",
    timeout_ms: int = 10_000,
    nothing: bool = False,
) -> None:
    """Without `wanted` everything is asked for, unless it is for `nothing`; what concerns others is left out then."""
    topics = [ElectLeadersTopicPartitions(topic=play.inside(name), partitions=list(lines)) for name, lines in wanted]
    request = ElectLeadersRequest(
        election_type=kind, topic_partitions=topics if wanted or nothing else None, timeout_ms=timeout_ms
    )
    player = play.operator[role]
    answer: Any = player.call(ApiKey.ELECT_LEADERS, version, request)
    if not wanted:
        ours = play.inside(TOPIC)
        answer.replica_election_results = [
            item for item in answer.replica_election_results if item.topic.startswith(ours)
        ]
    answer.replica_election_results.sort(key=lambda result: result.topic)
    for result in answer.replica_election_results:
        result.partition_result.sort(key=lambda line: line.partition_id)
    player.write_down_answer(label, answer)


def _refused(play: TrioPlayer, version: int) -> None:
    ask(play, f"v{version}: who leads already", version, (TOPIC, (0, 1)))
    ask(play, f"v{version}: at another broker", version, (TOPIC, (0,)), role="B")
    ask(play, f"v{version}: of everything", version)
    ask(play, f"v{version}: of nothing", version, nothing=True)
    ask(play, f"v{version}: of no partition", version, (TOPIC, ()))
    ask(play, f"v{version}: an unknown topic", version, ("trio.elections.unknown", (0,)), (TOPIC, (0,)))
    ask(play, f"v{version}: a topic that cannot be", version, ("a/b", (0,)))
    ask(play, f"v{version}: a partition there is none of", version, (TOPIC, (0, 2, -1)))
    ask(play, f"v{version}: a partition twice", version, (TOPIC, (0, 0)))
    ask(play, f"v{version}: a topic twice", version, (TOPIC, (0,)), (TOPIC, (0, 1)))
    ask(play, f"v{version}: at once", version, (TOPIC, (0,)), timeout_ms=0)
    if version:
        ask(play, f"v{version}: unclean, who leads already", version, (TOPIC, (0,)), kind=UNCLEAN)
        ask(play, f"v{version}: unclean, of everything", version, kind=UNCLEAN)
        ask(play, f"v{version}: unclean, an unknown topic", version, ("trio.elections.unknown", (0,)), kind=UNCLEAN)
        for kind in (9, -1):
            ask(play, f"v{version}: a kind of election {kind}", version, (TOPIC, (0,)), kind=kind)


def _without_replicas(play: TrioPlayer) -> None:
    """B has what C had; C goes on alone, goes, and B is all there is."""
    play.at["C"].call(ApiKey.PRODUCE, 9, produced(FRAGILE, batch(b"a", b"b")))
    play.stop("B", "AC")
    play.until_in_sync(FRAGILE, "C", roles="AC")
    play.at["C"].call(ApiKey.PRODUCE, 9, produced(FRAGILE, batch(b"c"), acks=1))
    play.stop("C", "A")
    play.until(FRAGILE, 0, lambda line: line.leader_id == -1, roles="A")
    for version in range(3):
        ask(play, f"v{version}: nobody is there", version, (FRAGILE, (0,)))
        if version:
            ask(play, f"v{version}: unclean, nobody is there", version, (FRAGILE, (0,)), kind=UNCLEAN)
    play.show("nobody is there, shown", FRAGILE)
    play.start("B", "AB")
    ask(play, "the preferred leader is away", 2, (FRAGILE, (0,)))
    play.show("only who was not in sync, shown", FRAGILE)
    ask(play, "unclean, only who was not in sync", 2, (FRAGILE, (0,)), kind=UNCLEAN)
    play.until(FRAGILE, 0, lambda line: line.leader_id == play.trio.ids["B"], roles="AB")
    play.show("unclean, shown", FRAGILE)
    play.at["B"].call(ApiKey.PRODUCE, 9, produced(FRAGILE, batch(b"d"), acks=1))
    play.start("C")
    play.until_in_sync(FRAGILE, "BC")
    ask(play, "the preferred leader is back", 2, (FRAGILE, (0,)))
    play.until(FRAGILE, 0, lambda line: line.leader_id == play.trio.ids["C"])
    play.show("the preferred leader is back, shown", FRAGILE)
    line = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=500, min_bytes=1 << 20, topics=[FetchTopic(topic=FRAGILE, partitions=[line])])
    # C follows what B took for the truth: its own third record is gone.
    play.at["C"].ask("what is left", ApiKey.FETCH, 11, request)
    play.until_in_sync(TOPIC, "ABC")
    play.until_in_sync(TOPIC, "ABC", 1)
