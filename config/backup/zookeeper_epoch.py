"""Epoch of an embedded ZooKeeper that is created again: its transaction ids begin above all that were ever assigned.

Brokers distinguish their incarnations by the transaction ids of their registrations, and usage is counted by
incarnation. A fresh server begins at zero, and would assign the ids of earlier incarnations again. An ensemble that
elects a leader begins a new epoch in the upper half of its ids; a restored server does the same, by the name of the
snapshot that it starts from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from config.embedded.process import wait_until
from config.embedded.zookeeper import START_TIMEOUT_S, EmbeddedZooKeeper

EPOCH_BITS: Final = 32
S_PER_HOUR: Final = 3_600
_SNAPSHOT: Final = "snapshot"
_FILES: Final = (_SNAPSHOT, "log")


def next_epoch(newest_transactions: list[int], now_s: float) -> int:
    """Returns an epoch above those of the transactions.

    It is at least the number of hours since 1970, so that two restores of the same backup differ, and the ids stay
    below 2^53, which is what JSON can carry everywhere.
    """
    newest_epoch = max((transaction >> EPOCH_BITS for transaction in newest_transactions), default=0)
    return max(newest_epoch + 1, int(now_s // S_PER_HOUR))


def newest_transaction(directory: Path) -> int:
    """Returns the highest transaction id in the names of a server's files; 0 without files. Later transactions are not
    in the names, but no file has transactions of a later epoch.
    """
    return max((_named_by(file) for file in _data(directory).glob("*.*")), default=0)


def holds_data(directory: Path) -> bool:
    """True if a server has stored data in the directory."""
    return _data(directory).is_dir() and any(_data(directory).iterdir())


def begin(server: EmbeddedZooKeeper, epoch: int) -> None:
    """Creates the data directory of a server that has none, and leaves the server running in the given epoch.

    Raises:
        StartFailed: it does not start.
    """
    server.start()
    wait_until(server.answers, child=server.child, timeout_s=START_TIMEOUT_S)
    server.child.stop()
    data = _data(server.directory)
    for log in data.glob("log.*"):
        log.unlink()
    (snapshot,) = data.glob(f"{_SNAPSHOT}.*")
    snapshot.rename(data / f"{_SNAPSHOT}.{epoch << EPOCH_BITS:x}")
    server.start()
    wait_until(server.is_ready, child=server.child, timeout_s=START_TIMEOUT_S)


def _data(directory: Path) -> Path:
    return directory / "data" / "version-2"


def _named_by(file: Path) -> int:
    kind, _, number = file.name.partition(".")
    try:
        return int(number, 16) if kind in _FILES else 0
    except ValueError:
        return 0
