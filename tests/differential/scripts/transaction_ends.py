"""EndTxn in every version and state (TXN-10)."""

from __future__ import annotations

from typing import Any

from tests.differential.members import begin_script
from tests.differential.play import Player
from tests.differential.transacting import Transactional

PREFIX = "diff.ending"
TOPIC = f"{PREFIX}.topic"


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    player.make_topic(TOPIC, 2)
    for version in range(5):
        _ends(player, version)


def _ends(player: Player, version: int) -> None:
    item = Transactional(player, f"{PREFIX}.v{version}")

    def ask(what: str, **changes: Any) -> None:
        for committed in (True, False):
            end = "commit" if committed else "abort"
            item.end(f"v{version}: {what}: {end}", committed=committed, version=version, **changes)

    ask("an id that nobody has", producer_id=1, producer_epoch=0)
    ask("an empty id", transactional_id="")
    item.init(None)
    ask("empty")
    _wrong(item, ask, "empty")
    for committed, name in ((True, "commit"), (False, "abort")):
        item.add(None, {TOPIC: [0]})
        _wrong(item, ask, f"ongoing, to {name}")
        item.end(f"v{version}: ongoing, {name}", committed=committed, version=version)
        item.until("CompleteCommit" if committed else "CompleteAbort")
        ask(f"after {name}")
        _wrong(item, ask, f"after {name}")
    item.add_offsets(None, f"{PREFIX}.group")
    item.end(f"v{version}: offsets alone", committed=True, version=version)
    item.until("CompleteCommit")
    item.init(None)
    ask("after a commit and another epoch")
    ask("the epoch before", producer_epoch=item.epoch - 1)


def _wrong(one: Transactional, ask: Any, state: str) -> None:
    ask(f"{state}, another producer id", producer_id=one.id + 1_000_000)
    ask(f"{state}, producer id -1", producer_id=-1)
    ask(f"{state}, the epoch ahead", producer_epoch=one.epoch + 1)
    ask(f"{state}, epoch -1", producer_epoch=-1)
