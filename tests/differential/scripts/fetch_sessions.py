"""Fetch sessions (WIRE-30): opened, used, changed, closed, and asked for wrongly."""

from __future__ import annotations

from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tests.differential.batches import batch
from tests.differential.play import Player
from tests.differential.scripts.fetch import TOPIC_IDS_FROM, UNKNOWN_ID, partition
from tests.differential.scripts.produce import produced

PREFIX = "diff.sessions"


def script(player: Player) -> None:
    for version in range(7, 18):
        _Session(player, version).play()


class _Session:
    def __init__(self, player: Player, version: int) -> None:
        self.player = player
        self.version = version
        self.name = f"{PREFIX}.v{version}"
        self.topic_id = player.make_topic(self.name, 3)
        player.call(ApiKey.PRODUCE, 9, produced(self.name, batch(b"a")))

    def topics(self, *partitions: FetchPartition) -> list[FetchTopic]:
        if not partitions:
            return []
        if self.version >= TOPIC_IDS_FROM:
            return [FetchTopic(topic_id=self.topic_id, partitions=list(partitions))]
        return [FetchTopic(topic=self.name, partitions=list(partitions))]

    def ask(self, what: str, session: int, epoch: int, *partitions: FetchPartition, **fields: Any) -> Any:
        fields = {"max_wait_ms": 50, "min_bytes": 1, "topics": self.topics(*partitions), **fields}
        request = FetchRequest(session_id=session, session_epoch=epoch, **fields)
        return self.player.ask(f"v{self.version}: {what}", ApiKey.FETCH, self.version, request)

    def produce(self, index: int = 0) -> None:
        self.player.call(ApiKey.PRODUCE, 9, produced(self.name, batch(b"more"), partition=index))

    def forgotten(self, *indexes: int) -> list[ForgottenTopic]:
        if self.version >= TOPIC_IDS_FROM:
            return [ForgottenTopic(topic_id=self.topic_id, partitions=list(indexes))]
        return [ForgottenTopic(topic=self.name, partitions=list(indexes))]

    def play(self) -> None:
        opened = self.ask("open", 0, 0, partition(0), partition(1), partition(2))
        session = opened.session_id
        self.ask("advanced, nothing to read", session, 1, partition(0, 1))
        self.ask("nothing asked, nothing to read", session, 2)
        self.produce(1)
        self.ask("nothing asked, data in one", session, 3)
        self.ask("the same data again", session, 4)
        self.ask("advanced", session, 5, partition(1, 1))
        self.ask("a partition added that is not", session, 6, partition(9))
        self.ask("still there", session, 7)
        self.ask("forgotten", session, 8, forgotten_topics_data=self.forgotten(9, 2))
        self.ask("out of range", session, 9, partition(1, 99))
        self.ask("still out of range", session, 10)
        self.ask("back in range", session, 11, partition(1, 1))
        self.ask("a wrong epoch", session, 99)
        self.ask("the right epoch after a wrong one", session, 12)
        self.ask("an epoch again", session, 12)
        self.ask("an unknown session", session ^ 0x5555_5555, 1)
        self.ask("session 0 with an epoch", 0, 5)
        self.ask("a negative session", -1, 1)
        self.ask("all forgotten", session, 13, forgotten_topics_data=self.forgotten(0, 1))
        self.ask("closed", session, -1, partition(0))
        self.ask("after it was closed", session, 14)
        self.ask("open for nothing", 0, 0)
        reopened = self.ask("open and replace", 0, 0, partition(0)).session_id
        self.ask("replaced by a full fetch", reopened, 0, partition(1))
        self.ask("the one replaced", reopened, 1)
        self.ask("sessionless", 0, -1, partition(0))
        self.ask("sessionless with a negative session", -1, -1, partition(0))
        self.ask("sessionless with an unknown session", session ^ 0x5555_5555, -1, partition(0))
        self.ask("open with an unknown session", session ^ 0x5555_5555, 0, partition(0))
        self.ask("open with a negative session", -1, 0, partition(0))
        if self.version >= TOPIC_IDS_FROM:
            self._ids()

    def _ids(self) -> None:
        wanted = [*self.topics(partition(0)), FetchTopic(topic_id=UNKNOWN_ID, partitions=[partition(0)])]
        session = self.ask("open with an unknown id", 0, 0, topics=wanted).session_id
        self.ask("an unknown id stays", session, 1)
