"""Transactions that nobody ends: aborted by the coordinator, their producer fenced (TXN-17)."""

from __future__ import annotations

from tests.differential.commits import fetch, offset
from tests.differential.members import begin_script
from tests.differential.play import Player
from tests.differential.transacting import Transactional

PREFIX = "diff.timeouts"
SHORT_MS = 500


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    player.make_topic(PREFIX, 2)
    producers = [Transactional(player, f"{PREFIX}.{number}", SHORT_MS) for number in range(6)]
    group = f"{PREFIX}.group"
    for producer in producers:
        producer.begun({PREFIX: [0]})
        producer.add_offsets(None, group)
        producer.commit_offsets(None, group, {PREFIX: [offset(0, 7)]})
        producer.produce(None, PREFIX, b"late")
    for producer in producers:
        producer.until("CompleteAbort")
    first, *others = producers
    for version in range(3, 12):
        first.produce(f"produce v{version}", PREFIX, b"later", version=version)
        first.produce(f"produce v{version}, elsewhere", PREFIX, b"later", partition=1, version=version)
    for version in range(4):
        first.add(f"add v{version}", {PREFIX: [1]}, version)
        first.add(f"add v{version}, what was in it", {PREFIX: [0]}, version)
    for version in range(5):
        first.add_offsets(f"add offsets v{version}", group, version)
        first.commit_offsets(f"commit offsets v{version}", group, {PREFIX: [offset(0, 9)]}, version)
        for committed in (True, False):
            first.end(f"end v{version}, {'commit' if committed else 'abort'}", committed=committed, version=version)
    for version, producer in zip((3, 4, 5), others, strict=False):
        id, epoch = producer.id, producer.epoch
        producer.init(f"init v{version}, with the old epoch", version, producer_id=id, producer_epoch=epoch)
        producer.init(f"init v{version}, with the epoch after", version, producer_id=id, producer_epoch=epoch + 1)
        producer.init(f"init v{version}, with nothing", version)
        producer.init(f"init v{version}, with the old epoch again", version, producer_id=id, producer_epoch=epoch)
    others[-1].init("init v0", 0)
    fetch(player, "offsets after that", 9, group, None)
