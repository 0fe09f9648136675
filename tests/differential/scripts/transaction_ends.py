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
    one = Transactional(player, f"{PREFIX}.v{version}")

    def ask(what: str, **changes: Any) -> None:
        for committed in (True, False):
            end = "commit" if committed else "abort"
            one.end(f"v{version}: {what}: {end}", committed=committed, version=version, **changes)

    ask("an id that nobody has", producer_id=1, producer_epoch=0)
    ask("an empty id", transactional_id="")
    one.init(None)
    ask("empty")
    _wrong(one, ask, "empty")
    for committed, name in ((True, "commit"), (False, "abort")):
        one.add(None, {TOPIC: [0]})
        _wrong(one, ask, f"ongoing, to {name}")
        one.end(f"v{version}: ongoing, {name}", committed=committed, version=version)
        one.until("CompleteCommit" if committed else "CompleteAbort")
        ask(f"after {name}")
        _wrong(one, ask, f"after {name}")
    one.add_offsets(None, f"{PREFIX}.group")
    one.end(f"v{version}: offsets alone", committed=True, version=version)
    one.until("CompleteCommit")
    one.init(None)
    ask("after a commit and another epoch")
    ask("the epoch before", producer_epoch=one.epoch - 1)


def _wrong(one: Transactional, ask: Any, state: str) -> None:
    ask(f"{state}, another producer id", producer_id=one.id + 1_000_000)
    ask(f"{state}, producer id -1", producer_id=-1)
    ask(f"{state}, the epoch ahead", producer_epoch=one.epoch + 1)
    ask(f"{state}, epoch -1", producer_epoch=-1)
