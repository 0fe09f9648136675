"""Epochs of a new ZooKeeper exceed all that were ever used."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.backup.zookeeper_epoch import EPOCH_BITS, S_PER_HOUR, holds_data, newest_transaction, next_epoch

HOUR = 498_000
NOW_S = HOUR * S_PER_HOUR + 59.0
INTEGER_OF_JSON_MAX = 2**53


@pytest.mark.parametrize(
    ("seen", "epoch"),
    [
        ([], HOUR),
        ([0], HOUR),
        ([7 << EPOCH_BITS], HOUR),
        ([HOUR << EPOCH_BITS], HOUR + 1),
        ([1, (HOUR << EPOCH_BITS) + 5, 2], HOUR + 1),
    ],
)
def test_the_next_epoch_is_above_all_and_not_that_of_an_earlier_restore(seen: list[int], epoch: int) -> None:
    assert next_epoch(seen, NOW_S) == epoch
    assert epoch << EPOCH_BITS < INTEGER_OF_JSON_MAX


def test_transactions_are_found_by_the_names_of_the_files(tmp_path: Path) -> None:
    assert (holds_data(tmp_path), newest_transaction(tmp_path)) == (False, 0)
    data = tmp_path / "data" / "version-2"
    data.mkdir(parents=True)
    assert not holds_data(tmp_path)
    for name in ("snapshot.0", "log.1", "log.2a00000001", "snapshot.nonsense", "acceptedEpoch", "other.ffffffffffff"):
        (data / name).touch()
    assert (holds_data(tmp_path), newest_transaction(tmp_path)) == (True, 0x2A00000001)
