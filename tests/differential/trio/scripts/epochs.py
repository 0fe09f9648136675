"""OffsetForLeaderEpoch in every version, of a partition that had four leader epochs, one of them without records."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.list_offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from brokers.engine.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.differential.batches import batch
from tests.differential.scripts.produce import produced
from tests.differential.trio.play import TrioPlayer

TOPIC = "trio.epochs"


def script(play: TrioPlayer) -> None:
    play.make(TOPIC, "AB")
    epochs = {"first": play.name_epoch(TOPIC, "first")}
    play.at["A"].call(ApiKey.PRODUCE, 9, produced(TOPIC, batch(b"a", b"b", b"c")))
    for order, name, values in (("BA", "second", (b"d",)), ("AB", "third", ()), ("BA", "fourth", (b"e", b"f"))):
        play.lead(TOPIC, order)
        epochs[name] = play.name_epoch(TOPIC, name)
        if values:
            play.at[order[0]].call(ApiKey.PRODUCE, 9, produced(TOPIC, batch(*values)))
    epochs |= {"to come": epochs["fourth"] + 1, "none": -1, "minus two": -2}
    for version in range(5):
        _ask(play, version, epochs)
    # From here on the log begins in the second epoch.
    start = DeleteRecordsPartition(partition_index=0, offset=3)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=[start])], timeout_ms=10_000)
    play.at["B"].ask("the first is deleted", ApiKey.DELETE_RECORDS, 2, request)
    for name, epoch in epochs.items():
        _about(play, f"v4: {name}, when the first is deleted", 4, (0, epoch))


def _ask(play: TrioPlayer, version: int, epochs: dict[str, int]) -> None:
    for name, epoch in epochs.items():
        _about(play, f"v{version}: {name}", version, (0, epoch))
    first = epochs["first"]
    _about(play, f"v{version}: a partition there is none of", version, (1, first))
    _about(play, f"v{version}: a negative partition", version, (-1, first))
    _about(play, f"v{version}: a partition twice", version, (0, first), (0, epochs["second"]))
    _about(play, f"v{version}: no partition", version)
    _about(play, f"v{version}: an unknown topic", version, (0, first), topic="trio.epochs.unknown")
    _about(play, f"v{version}: a topic that cannot be", version, (0, first), topic="a/b")
    _about(play, f"v{version}: at the follower", version, (0, first), role="A")
    _about(play, f"v{version}: where no replica is", version, (0, first), role="C")
    request = OffsetForLeaderEpochRequest(replica_id=-1)
    play.at["B"].ask(f"v{version}: no topic", ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)
    if version >= 3:
        for replica in (-2, play.trio.ids["A"], 77):
            name = {-2: "minus two", 77: "nobody"}.get(replica, "A")
            _about(play, f"v{version}: as replica {name}", version, (0, first), replica=replica)


def _about(
    play: TrioPlayer,
    label: str,
    version: int,
    *asked: tuple[int, int],
    topic: str = TOPIC,
    role: str = "B",
    replica: int = -1,
) -> None:
    lines = [OffsetForLeaderPartition(partition=index, leader_epoch=epoch) for index, epoch in asked]
    topics = [OffsetForLeaderTopic(topic=topic, partitions=lines)]
    request = OffsetForLeaderEpochRequest(replica_id=replica, topics=topics)
    play.at[role].ask(label, ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)
