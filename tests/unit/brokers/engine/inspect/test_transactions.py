"""The log tools on a partition with transactions: markers, `.txnindex`, snapshots (LOG-12, LOG-13)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from brokers.engine.inspect.findings import Findings
from brokers.engine.inspect.verify import verify_partition
from brokers.engine.inspect.verify_segments import Rules
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.transactions import append_marker
from brokers.engine.partitions.verification import UNVERIFIED_OK
from brokers.engine.records.batch import TRANSACTIONAL
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.storage.producer_state import ProducerState
from tests.unit.brokers.engine.inspect.sample import NOW_MS, findings, lead, run, table

FIRST = "00000000000000000000"


def write(partition: Partition, producer_id: int, sequence: int) -> None:
    data = build_batch(
        [Record(NOW_MS, None, b"v" * 40)],
        attributes=TRANSACTIONAL,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )
    assert (
        partition.append(
            memoryview(data), NOW_MS, acks=1, produce_version=9, verification_token=UNVERIFIED_OK
        ).error_code
        == 0
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Write a partition of two segments, cleanly stopped: producers 7 and 8 abort, 9 commits, 8 has an open
    transaction at the end.
    """
    held = table(tmp_path / "data")
    partition = lead(held, 0)
    for producer_id in (7, 8, 9):
        write(partition, producer_id, 0)
    append_marker(partition, 8, 0, 3, False, NOW_MS)
    append_marker(partition, 7, 0, 3, False, NOW_MS)
    partition.log.roll(NOW_MS)
    append_marker(partition, 9, 0, 4, True, NOW_MS)
    write(partition, 8, 1)
    write(partition, 7, 1)
    append_marker(partition, 7, 0, 4, False, NOW_MS)
    held.close()
    return tmp_path / "data" / "orders-0"


def faults(directory: Path, *, gaps: bool = False, whole: bool = True) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    verify_partition(directory, Findings(rows.append, "orders-0"), Rules(deep=True, gaps=gaps, whole=whole))
    return [row for row in rows if row["row"] == "fault"]


def test_a_directory_written_by_a_broker_passes(directory: Path) -> None:
    code, rows = run("verify", directory)
    assert (code, findings(rows)) == (0, [])


def test_every_flipped_bit_of_the_list_of_aborted_transactions_is_reported(directory: Path) -> None:
    missed = []
    for file in sorted(directory.glob("*.txnindex")):
        whole = file.read_bytes()
        for at in range(len(whole)):
            for bit in range(8):
                damaged = bytearray(whole)
                damaged[at] ^= 1 << bit
                file.write_bytes(damaged)
                if not faults(directory):
                    missed.append((file.name, at, bit))
        file.write_bytes(whole)
    assert not missed


def test_a_transaction_that_is_not_listed_is_missed_unless_a_cleaner_may_have_taken_it(directory: Path) -> None:
    file = directory / f"{FIRST}.txnindex"
    whole = file.read_bytes()
    file.write_bytes(whole[:34])
    (fault,) = faults(directory)
    assert (fault["file"], fault["what"]) == (file.name, "does not list the transaction that is aborted at offset 4")
    assert faults(directory, gaps=True) == []
    file.unlink()
    assert [fault["what"] for fault in faults(directory)] == [
        "does not list the transaction that is aborted at offset 3"
    ]


@pytest.mark.parametrize(
    ("producer_id", "opened", "coordinator_epoch", "what"),
    [
        (9, -1, -1, "producer 9 had a transaction open from offset 2, not -1"),
        (8, 1, 3, "producer 8 had no open transaction, not 1"),
        (8, -1, 5, "the last marker of producer 8 has coordinator epoch 3, not 5"),
    ],
)
def test_a_snapshot_that_contradicts_the_log_is_reported(
    directory: Path, producer_id: int, opened: int, coordinator_epoch: int, what: str
) -> None:
    file = directory / "00000000000000000005.snapshot"
    state = ProducerState()
    assert state.restore(file.read_bytes(), 5)
    state.producers[producer_id].transaction_first_offset = opened
    state.producers[producer_id].coordinator_epoch = coordinator_epoch
    file.write_bytes(state.to_bytes())
    assert [fault["what"] for fault in faults(directory)] == [what]


def test_a_transaction_whose_beginning_was_deleted_is_taken_at_its_word(tmp_path: Path) -> None:
    """LOG-42: retention does not wait for transactions."""
    held = table(tmp_path / "data")
    partition = lead(held, 0)
    write(partition, 7, 0)
    write(partition, 8, 0)
    partition.log.roll(NOW_MS)
    write(partition, 7, 1)
    append_marker(partition, 7, 0, 3, False, NOW_MS)
    partition.log.advance_start(2)
    held.maintain(NOW_MS)
    held.close()
    directory = tmp_path / "data" / "orders-0"
    assert not (directory / f"{FIRST}.log").exists()
    assert faults(directory) == []


def test_a_dump_shows_markers_lists_and_states(directory: Path) -> None:
    _, rows = run("dump", directory, "--records", "--indexes")
    markers = [(row["offset"], row["marker"], row["coordinator_epoch"]) for row in rows if "marker" in row]
    assert markers == [(3, "abort", 3), (4, "abort", 3), (5, "commit", 4), (8, "abort", 4)]
    listed = [
        (row["producer_id"], row["first_offset"], row["last_offset"], row["last_stable_offset"])
        for row in rows
        if row["row"] == "aborted"
    ]
    assert listed == [(8, 1, 3, 0), (7, 0, 4, 2), (7, 7, 8, 6)]
    known = [row for row in rows if row["row"] == "producer"]
    assert {(row["producer_id"], row["transaction_first_offset"]) for row in known[:3]} == {(7, -1), (8, -1), (9, 2)}
    assert {(row["producer_id"], row["transaction_first_offset"]) for row in known[3:]} == {(7, -1), (8, 6), (9, -1)}
    flags = {row["base_offset"]: row["flags"] for row in rows if row["row"] == "batch"}
    assert (flags[0], flags[3]) == (["transactional"], ["transactional", "control"])


def test_recovery_foresees_and_restores_the_list(directory: Path) -> None:
    """Recovery rebuilds the transaction indexes from the log, as an unclean start does."""
    wanted = {file.name: file.read_bytes() for file in directory.glob("*.txnindex")}
    assert len(wanted) == 2
    for name in wanted:
        (directory / name).unlink()
    assert run("recover", directory.parent, "--yes", "--whole")[0] in (0, 1)
    assert {file.name: file.read_bytes() for file in directory.glob("*.txnindex")} == wanted
    assert faults(directory) == []
