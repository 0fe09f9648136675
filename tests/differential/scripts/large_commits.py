"""Commits that are too large for one batch of the offsets topic: none of their offsets is kept (GRP-21)."""

from __future__ import annotations

from brokers.engine.protocol.messages.offsets import OffsetCommitRequestPartition
from tests.differential.commits import Committing, fetch, offset
from tests.differential.members import begin_script, describe
from tests.differential.play import Player
from tests.differential.transacting import Transactional

PREFIX = "diff.large"
TOPIC = f"{PREFIX}.topic"
# With 4,096 bytes of metadata each: one megabyte is exceeded at 256.
PARTITIONS, FITTING = 280, 240
METADATA = "x" * 4_096
VERSIONS, TRANSACTIONAL_VERSIONS = (1, 2, 7, 9), (0, 3)


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    player.make_topic(TOPIC, PARTITIONS)
    for version in VERSIONS:
        group = f"{PREFIX}.v{version}"
        committing = Committing(player, group, version)
        committing.topic = TOPIC
        committing.ask(f"v{version}: first", offset(0, 5))
        committing.ask(f"v{version}: too many", *_offsets(PARTITIONS))
        fetch(player, f"v{version}: what is left", 9, group, None)
        describe(player, f"v{version}: the group", group)
        committing.ask(f"v{version}: as many as fit", *_offsets(FITTING))
    for version in TRANSACTIONAL_VERSIONS:
        group = f"{PREFIX}.transaction.v{version}"
        item = Transactional(player, group).begun()
        item.add_offsets(f"transaction v{version}: the group", group)
        item.commit_offsets(f"transaction v{version}: too many", group, {TOPIC: _offsets(PARTITIONS)}, version)
        item.commit_offsets(f"transaction v{version}: one", group, {TOPIC: [offset(1, 6)]}, version)


def _offsets(count: int) -> list[OffsetCommitRequestPartition]:
    return [offset(index, 7, METADATA) for index in range(count)]
