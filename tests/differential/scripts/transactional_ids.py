"""InitProducerId with a transactional id, in every version and state of the transaction (TXN-5, TXN-6)."""

from __future__ import annotations

from tests.differential.members import begin_script
from tests.differential.play import Player
from tests.differential.transacting import CONCURRENT, TIMEOUT_MS, Transactional

PREFIX = "diff.ids"
TOPIC = f"{PREFIX}.topic"
MAX_TIMEOUT_MS = 900_000
EXPECTED_FROM = 3


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    player.make_topic(TOPIC)
    for version in range(6):
        _states(player, version)
        _timeouts(player, version)
        if version >= EXPECTED_FROM:
            _expected(player, version)
            _expected_in_a_transaction(player, version)


def _states(player: Player, version: int) -> None:
    item = Transactional(player, f"{PREFIX}.v{version}")
    item.init(f"v{version}: an empty transactional id", version, transactional_id="")
    item.init(f"v{version}: a first id", version)
    item.init(f"v{version}: again", version)
    item.init(f"v{version}: with another time-out", version, transaction_timeout_ms=TIMEOUT_MS + 1)
    item.add(None, {TOPIC: [0]})
    old = Transactional(player, item.name)
    old.id, old.epoch = item.id, item.epoch
    item.init(f"v{version}: in a transaction", version)
    item.until("CompleteAbort")
    old.end(f"v{version}: an end by the one before", committed=True)
    item.init(f"v{version}: after its abort", version)
    for committed in (True, False):
        item.add(None, {TOPIC: [0]})
        item.finish(committed=committed)
        item.init(f"v{version}: after {'a commit' if committed else 'an abort'}", version)
    item.add(f"v{version}: and a transaction with it", {TOPIC: [0]})
    item.finish(committed=True)


def _timeouts(player: Player, version: int) -> None:
    for timeout_ms in (0, -1, MAX_TIMEOUT_MS, MAX_TIMEOUT_MS + 1, 1):
        item = Transactional(player, f"{PREFIX}.v{version}.timeout{timeout_ms}", timeout_ms)
        item.init(f"v{version}: time-out {timeout_ms}", version)
    known = Transactional(player, f"{PREFIX}.v{version}.known")
    known.init(None)
    known.init(f"v{version}: time-out 0 of a known one", version, transaction_timeout_ms=0)
    known.init(f"v{version}: and a right one", version)
    nobody = Transactional(player, f"{PREFIX}.v{version}.nobody", 0)
    nobody.init(f"v{version}: no transactional id, time-out 0", version, transactional_id=None)
    nobody.init(f"v{version}: empty and time-out 0", version, transactional_id="")


def _expected(player: Player, version: int) -> None:
    """With the id and epoch that the producer has."""
    item = Transactional(player, f"{PREFIX}.v{version}.expected")

    def ask(what: str, id: int, epoch: int) -> None:
        item.init(f"v{version}: {what}", version, producer_id=id, producer_epoch=epoch)

    item.init(f"v{version}: a stranger's id with a name not yet known", version, producer_id=4_000, producer_epoch=7)
    id, epoch = item.id, item.epoch
    ask("an id alone", id, -1)
    ask("an epoch alone", -1, epoch)
    ask("epoch -2", id, -2)
    ask("the epoch ahead", id, epoch + 1)
    ask("another id", id + 1, epoch)
    ask("the epoch it has", id, epoch)
    ask("the epoch before", id, epoch)
    ask("the epoch before, again", id, epoch)
    ask("the epoch it has, again", id, epoch + 1)
    ask("two epochs before", id, epoch)
    item.init(f"v{version}: without what it has", version)
    ask("the epoch before one without", id, epoch + 2)
    ask("the epoch after one without", id, item.epoch)


def _expected_in_a_transaction(player: Player, version: int) -> None:
    for what, id_ahead, epoch_ahead in (
        ("the epoch ahead", 0, 1),
        ("another id", 1_000_000, 0),
        ("its own epoch", 0, 0),
    ):
        item = Transactional(player, f"{PREFIX}.v{version}.open.{id_ahead}.{epoch_ahead}").begun({TOPIC: [0]})
        id, epoch = item.id, item.epoch
        at = f"v{version}, in a transaction: {what}"
        answer = item.init(at, version, producer_id=id + id_ahead, producer_epoch=epoch + epoch_ahead)
        if answer.error_code == CONCURRENT:
            item.until("CompleteAbort")
        item.init(f"{at}, then its own", version, producer_id=id, producer_epoch=epoch)
        item.until("CompleteAbort")
        item.init(f"{at}, then its own again", version, producer_id=id, producer_epoch=epoch)
        item.init(f"{at}, then nothing", version)
