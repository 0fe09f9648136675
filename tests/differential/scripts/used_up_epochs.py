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
    one = Transactional(player, f"{PREFIX}.{name}")
    one.init(None)
    request = InitProducerIdRequest(transactional_id=one.name, transaction_timeout_ms=TIMEOUT_MS)
    frame = encode_request_frame(
        ApiKey.INIT_PRODUCER_ID,
        VERSION,
        0,
        "differential",
        codec.encode_request(ApiKey.INIT_PRODUCER_ID, VERSION, request),
    )
    while one.epoch < epoch - 1:
        count = min(BATCH, epoch - 1 - one.epoch)
        one.epoch += _asked_at_once(player, frame, count)
    answer = one.init(None)
    assert answer.producer_epoch == epoch, answer
    return one


def _asked_at_once(player: Player, frame: bytes, count: int) -> int:
    """How many of them were given an epoch; the others came too early."""
    connection = player._connection()
    connection.sendall(frame * count)
    error_at = 4 + 1 + 4
    return sum(player._receive(20.0)[error_at : error_at + 2] == b"\0\0" for _ in range(count))


def _without(player: Player) -> None:
    one = _worn(player, "without", LAST - 1)
    one.init("without: the last epoch")
    old = one.id, one.epoch
    one.init("without: one more")
    for version in (3, 4):
        one.init(f"without: the one before, v{version}", version, producer_id=old[0], producer_epoch=old[1])
    one.init("without: and the next")


def _expected(player: Player) -> None:
    one = _worn(player, "expected", LAST - 1)
    for what in ("the last epoch", "the next producer id", "the next epoch of that"):
        id, epoch = one.id, one.epoch
        for again in ("", ", again", ", a third time"):
            one.init(f"expected: {what}{again}", VERSION, producer_id=id, producer_epoch=epoch)


def _open(player: Player) -> None:
    one = _worn(player, "open", LAST)
    id = one.id
    one.add("open: add", {TOPIC: [0]})
    one.produce("open: produce", TOPIC, b"last")
    other = Transactional(player, one.name)
    answer = other.init("open: another producer")
    assert answer.error_code == CONCURRENT, answer
    one.until("CompleteAbort")
    one.produce("open: produce when fenced", TOPIC, b"fenced")
    for ahead in (0, 1):
        at = f"open, epoch {LAST + ahead}"
        one.add(f"{at}: add", {TOPIC: [0]}, producer_id=id, producer_epoch=LAST + ahead)
        one.end(f"{at}: end", committed=False, producer_id=id, producer_epoch=LAST + ahead)
        one.until("CompleteAbort")
        one.init(f"{at}: expected", VERSION, producer_id=id, producer_epoch=LAST + ahead)
    other.init("open: another producer after the abort")
    other.add("open: add by the other", {TOPIC: [0]})
    other.produce("open: produce by the other", TOPIC, b"first")
    other.end("open: end by the other", committed=True)


def _previous(player: Player) -> None:
    """Who has the last epoch because it named the one before asks again."""
    one = _worn(player, "previous", LAST - 1)
    id, epoch = one.id, one.epoch
    one.init("previous: the last epoch", VERSION, producer_id=id, producer_epoch=epoch)
    one.init("previous: asked again", VERSION, producer_id=id, producer_epoch=epoch)
    one.init("previous: two before", VERSION, producer_id=id, producer_epoch=epoch - 1)
    one.init("previous: ahead", VERSION, producer_id=id, producer_epoch=epoch + 2)
