"""Clients with a rack: whom the leader sends them to, and what a follower answers them (KIP-392, WIRE-32)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from brokers.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.differential.batches import batch
from tests.differential.trio.cluster import rack_of
from tests.differential.trio.play import TrioPlayer
from tests.testkit.waiting import eventually

TOPIC = "trio.racks"
IDS_FROM = 13
END = 3
BYTES_MAX = 1 << 20


def script(play: TrioPlayer) -> None:
    topic_id = play.make(TOPIC, "ABC", "BCA", "ACB")
    epoch = play.name_epoch(TOPIC, "first")
    for index, leader in enumerate("ABA"):
        _produce(play, leader, index)
    for role in "ABC":
        _until_readable(play, role)
    asking = _Asking(play, topic_id)
    for version in (11, 12, 13, 17):
        for name, rack in _racks(play).items():
            asking.ask(f"A: v{version}, {name}", "A", version, rack)
        asking.ask(f"A: v{version}, the rack of B, from the end", "A", version, _rack(play, "B"), offset=END)
        asking.ask(f"A: v{version}, the rack of B, beyond the end", "A", version, _rack(play, "B"), offset=END + 1)
        asking.ask(f"A: v{version}, the rack of B, before the start", "A", version, _rack(play, "B"), offset=-1)
        asking.ask(f"A: v{version}, the rack of B, read_committed", "A", version, _rack(play, "B"), isolation=1)
        for name, wanted in (("the first", epoch), ("one to come", epoch + 1), ("minus two", -2)):
            asking.ask(f"A: v{version}, the rack of B, {name}", "A", version, _rack(play, "B"), epoch=wanted)
            asking.ask(f"B: v{version}, its rack, {name}", "B", version, _rack(play, "B"), epoch=wanted)
        asking.ask(f"A: v{version}, the rack of B, all partitions", "A", version, _rack(play, "B"), indexes=(0, 1, 2))
        asking.ask(f"B: v{version}, its rack", "B", version, _rack(play, "B"))
        asking.ask(f"B: v{version}, its rack, from the end", "B", version, _rack(play, "B"), offset=END)
        asking.ask(f"B: v{version}, its rack, beyond the end", "B", version, _rack(play, "B"), offset=END + 1)
        asking.ask(f"B: v{version}, its rack, read_committed", "B", version, _rack(play, "B"), isolation=1)
        asking.ask(f"B: v{version}, the rack of C", "B", version, _rack(play, "C"))
        asking.ask(f"B: v{version}, its rack, all partitions", "B", version, _rack(play, "B"), indexes=(0, 1, 2))
    asking.ask("A: v10", "A", 10, "")
    asking.ask("B: v10", "B", 10, "")
    _one_is_late(play, asking)


def _one_is_late(play: TrioPlayer, asking: _Asking) -> None:
    """B does not fetch any more: a client is sent to it for what it has, and from the moment it is out of sync not."""
    with play.paused("B"):
        _produce(play, "A", 0, acks=1)
        asking.ask("A: B is late, what it has", "A", 12, _rack(play, "B"))
        asking.ask("A: B is late, its end", "A", 12, _rack(play, "B"), offset=END)
        play.until_in_sync(TOPIC, "AC", roles="AC")
        asking.ask("A: B is out of sync", "A", 12, _rack(play, "B"))
        asking.ask("A: C is in sync", "A", 12, _rack(play, "C"))
    play.until_in_sync(TOPIC, "ABC")
    asking.ask("A: B is in sync again", "A", 12, _rack(play, "B"))


def _rack(play: TrioPlayer, role: str) -> str:
    return rack_of(play.trio.ids[role])


def _racks(play: TrioPlayer) -> dict[str, str]:
    named = {f"the rack of {role}": _rack(play, role) for role in "ABC"}
    return {**named, "no rack": "", "an unknown rack": "elsewhere", "another case": _rack(play, "B").lower()}


class _Asking:
    """Fetches of a topic whose id is `topic_id`."""

    def __init__(self, play: TrioPlayer, topic_id: bytes) -> None:
        self.play = play
        self.topic_id = topic_id

    def ask(
        self,
        label: str,
        role: str,
        version: int,
        rack: str,
        *,
        offset: int = 0,
        epoch: int = -1,
        isolation: int = 0,
        indexes: tuple[int, ...] = (0,),
    ) -> None:
        """No request waits: a leader that names a replica answers at once, however long it may wait."""
        wait_ms = 2_000 if role == "A" and rack == _rack(self.play, "B") and not offset else 0
        request = _fetch_request(
            rack, indexes, offset=offset, epoch=epoch, isolation=isolation, wait_ms=wait_ms,
            named={"topic_id": self.topic_id} if version >= IDS_FROM else {"topic": TOPIC},
        )  # fmt: skip
        self.play.at[role].ask(label, ApiKey.FETCH, version, request)


def _fetch_request(
    rack: str,
    indexes: tuple[int, ...],
    *,
    offset: int = 0,
    epoch: int = -1,
    isolation: int = 0,
    wait_ms: int = 0,
    named: dict[str, object],
) -> FetchRequest:
    lines = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=BYTES_MAX, current_leader_epoch=epoch)
        for index in indexes
    ]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=BYTES_MAX if wait_ms else 1,
        isolation_level=isolation,
        topics=[FetchTopic(**named, partitions=lines)],
        rack_id=rack,
    )


def _produce(play: TrioPlayer, role: str, index: int, acks: int = -1) -> None:
    def is_taken() -> bool:
        data = PartitionProduceData(index=index, records=batch(b"a", b"b", b"c"))
        topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
        answer = play.at[role].call(ApiKey.PRODUCE, 9, ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics))
        return bool(answer.responses[0].partition_responses[0].error_code == 0)

    eventually(is_taken, what="the records to be taken")


def _until_readable(play: TrioPlayer, role: str) -> None:
    """Waits until the broker knows that all records of all partitions are committed."""
    request = _fetch_request(_rack(play, role), (0, 1, 2), named={"topic": TOPIC})

    def is_readable() -> bool:
        answer = play.at[role].call(ApiKey.FETCH, 12, request)
        return {line.high_watermark for line in answer.responses[0].partitions} == {END}

    eventually(is_readable, what="the broker to know the high watermarks")
