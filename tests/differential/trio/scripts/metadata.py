"""Metadata and DescribeCluster while a broker is away, in every version."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.cluster import DescribeClusterRequest
from tests.differential.trio.play import TrioPlayer

PREFIX = "trio.metadata"
REPLICATED, ALONE = f"{PREFIX}.replicated", f"{PREFIX}.alone"
LEADERS = ("ABC", "BCA", "CAB")


def script(play: TrioPlayer) -> None:
    play.make(REPLICATED, *LEADERS)
    play.make(ALONE, "C", "A")
    _describe(play, "all there")
    with play.stopped("C"):
        for index in range(len(LEADERS)):
            play.until_in_sync(REPLICATED, "AB", index, roles="AB")
            play.until(REPLICATED, index, lambda line: line.leader_id in play.ids("AB"), roles="AB")
        play.until(ALONE, 0, lambda line: line.leader_id == -1, roles="AB")
        _describe(play, "C away")
    for index in range(len(LEADERS)):
        play.until_in_sync(REPLICATED, "ABC", index)
    play.until(ALONE, 0, lambda line: line.leader_id in play.ids("C"))
    _describe(play, "C back")


def _describe(play: TrioPlayer, when: str) -> None:
    for version in range(13):
        for name in (REPLICATED, ALONE):
            play.show(f"{when}: v{version} of {name}", name, version)
    play.show(f"{when}: asked at B", REPLICATED, 12, "B")
    for version in range(2):
        request = DescribeClusterRequest()
        play.at["B"].ask(f"{when}: cluster v{version}", ApiKey.DESCRIBE_CLUSTER, version, request)
