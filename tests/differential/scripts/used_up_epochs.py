"""Transactional ids whose producer id has no epoch left (TXN-6). Takes tens of thousands of calls for each of them."""

from __future__ import annotations

from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.headers import encode_request_frame
from brokers.engine.protocol.messages.transactions import InitProducerIdRequest
from tests.differential.members import begin_script
from tests.differential.play import Player
from tests.differential.transacting import CONCURRENT, TIMEOUT_MS, Transactional

PREFIX = "diff.epochs"
TOPIC = f"{PREFIX}.topic"
VERSION = 4
# The last epoch that a client is given.
LAST = 32_766
# Questions on their way at once.
BATCH = 200


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    player.make_topic(TOPIC)
    _without(player)
    _expected(player)
    _open(player)
    _previous(player)


def _worn(player: Player, name: str, epoch: int) -> Transactional:
    """A producer that was given this epoch."""
    item = Transactional(player, f"{PREFIX}.{name}")
    item.init(None)
    request = InitProducerIdRequest(transactional_id=item.name, transaction_timeout_ms=TIMEOUT_MS)
    frame = encode_request_frame(
        ApiKey.INIT_PRODUCER_ID,
        VERSION,
        0,
        "differential",
        codec.encode_request(ApiKey.INIT_PRODUCER_ID, VERSION, request),
    )
    while item.epoch < epoch - 1:
        count = min(BATCH, epoch - 1 - item.epoch)
        item.epoch += _asked_at_once(player, frame, count)
    answer = item.init(None)
    assert answer.producer_epoch == epoch, answer
    return item


def _asked_at_once(player: Player, frame: bytes, count: int) -> int:
    """Returns the number of requests that got an epoch; the others came too early."""
    connection = player._connection()
    connection.sendall(frame * count)
    error_at = 4 + 1 + 4
    return sum(player._receive(20.0)[error_at : error_at + 2] == b"\0\0" for _ in range(count))


def _without(player: Player) -> None:
    item = _worn(player, "without", LAST - 1)
    item.init("without: the last epoch")
    old = item.id, item.epoch
    item.init("without: one more")
    for version in (3, 4):
        item.init(f"without: the one before, v{version}", version, producer_id=old[0], producer_epoch=old[1])
    item.init("without: and the next")


def _expected(player: Player) -> None:
    item = _worn(player, "expected", LAST - 1)
    for what in ("the last epoch", "the next producer id", "the next epoch of that"):
        id, epoch = item.id, item.epoch
        for again in ("", ", again", ", a third time"):
            item.init(f"expected: {what}{again}", VERSION, producer_id=id, producer_epoch=epoch)


def _open(player: Player) -> None:
    item = _worn(player, "open", LAST)
    id = item.id
    item.add("open: add", {TOPIC: [0]})
    item.produce("open: produce", TOPIC, b"last")
    other = Transactional(player, item.name)
    answer = other.init("open: another producer")
    assert answer.error_code == CONCURRENT, answer
    item.until("CompleteAbort")
    item.produce("open: produce when fenced", TOPIC, b"fenced")
    for ahead in (0, 1):
        at = f"open, epoch {LAST + ahead}"
        item.add(f"{at}: add", {TOPIC: [0]}, producer_id=id, producer_epoch=LAST + ahead)
        item.end(f"{at}: end", committed=False, producer_id=id, producer_epoch=LAST + ahead)
        item.until("CompleteAbort")
        item.init(f"{at}: expected", VERSION, producer_id=id, producer_epoch=LAST + ahead)
    other.init("open: another producer after the abort")
    other.add("open: add by the other", {TOPIC: [0]})
    other.produce("open: produce by the other", TOPIC, b"first")
    other.end("open: end by the other", committed=True)


def _previous(player: Player) -> None:
    """A producer that has the last epoch and named the one before asks again."""
    item = _worn(player, "previous", LAST - 1)
    id, epoch = item.id, item.epoch
    item.init("previous: the last epoch", VERSION, producer_id=id, producer_epoch=epoch)
    item.init("previous: asked again", VERSION, producer_id=id, producer_epoch=epoch)
    item.init("previous: two before", VERSION, producer_id=id, producer_epoch=epoch - 1)
    item.init("previous: ahead", VERSION, producer_id=id, producer_epoch=epoch + 2)
