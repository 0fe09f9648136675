"""Damage in a log in use, and damage reports of a start: file, byte and offset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from brokers.engine.partitions.listing import list_offsets
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.reports import RecoveryReport
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records import error_codes
from brokers.engine.storage import checkpoints
from brokers.engine.storage.directories import META_FILE, DirectoryRefused
from brokers.engine.storage.leader_epochs import FILE_NAME as EPOCHS
from brokers.engine.storage.leader_epochs import without_decreasing_epochs
from tests.simulation.log import CONFIG, NOW_MS, TOPIC, SimulatedLog

LENGTH_AT = 8
FIRST = "00000000000000000000"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SimulatedLog]:
    """Writes two batches of two records in a closed segment and one in the next."""
    made = SimulatedLog(tmp_path)
    for number in range(3):
        if number == 2:
            made.roll()
        made.append(2)
    yield made
    made.table.close()


def second_batch(partition: Partition) -> int:
    return [position for position, _ in partition.log.segments[0].headers(0)][1]


def flip(file: Path, at: int, bit: int = 0) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1 << bit
    file.write_bytes(content)


def started(top: Path) -> tuple[PartitionTable, RecoveryReport]:
    table = PartitionTable(StorageSettings(roots=(top,), broker_id=1, cluster_id="c", defaults=CONFIG))
    return table, table.recover(NOW_MS)


def test_a_reader_gets_an_error_and_is_not_led_past_damage(log: SimulatedLog, tmp_path: Path) -> None:
    """A wrong length breaks the chain of batches; those behind it must not appear to be missing."""
    partition, file = log.partition, tmp_path / f"{TOPIC}-0" / f"{FIRST}.log"
    position = second_batch(partition)
    flip(file, position + LENGTH_AT + 1)
    partition.log.free_memory()
    with capture_logs() as lines:
        for _ in range(2):
            assert partition.read(2, 1 << 20, min_one_batch=True).error_code == error_codes.CORRUPT_MESSAGE
    assert [(line["event"], line["file"], line["position"], line["offset"]) for line in lines] == [
        ("log_damage_met", str(file), position, 2)
    ]
    for offset in (0, 4):
        result = partition.read(offset, 1 << 20, min_one_batch=True)
        assert (result.error_code, result.slice is None) == (0, False)
        assert result.slice is not None
        result.slice.release()
    assert list_offsets(partition, NOW_MS + 4, isolation=0, version=9).error_code == error_codes.CORRUPT_MESSAGE
    log.append(1)
    assert partition.high_watermark == 7


def test_repeated_reads_behind_damage_need_no_other_scan(log: SimulatedLog, tmp_path: Path) -> None:
    """The file has been deleted, so a scan would fail."""
    partition, file = log.partition, tmp_path / f"{TOPIC}-0" / f"{FIRST}.log"
    flip(file, second_batch(partition) + LENGTH_AT + 1)
    partition.log.free_memory()
    for offset in (2, 3):
        assert partition.read(offset, 1 << 20, min_one_batch=True).error_code == error_codes.CORRUPT_MESSAGE
    partition.log.free_memory()
    away = file.rename(file.with_suffix(".away"))
    for offset in (3, 2):
        assert partition.read(offset, 1 << 20, min_one_batch=True).error_code == error_codes.CORRUPT_MESSAGE
    away.rename(file)
    log.truncate(1)
    assert not partition.log.segments[0].damage_by_offset, "the truncated part is written again"


def test_a_start_reports_where_a_log_was_truncated(log: SimulatedLog, tmp_path: Path) -> None:
    file = tmp_path / f"{TOPIC}-0" / f"{FIRST}.log"
    position = second_batch(log.partition)
    for root in log.table._roots:
        root.unlock()
    flip(file, position + 70)
    table, report = started(tmp_path)
    ((topic, number, damage),) = report.damages
    assert (topic, number, damage[:3]) == (TOPIC, 0, (str(file), position, 2))
    assert f"{report.truncated_bytes} bytes" in damage.description
    table.close()


def test_leader_epochs_that_contradict_the_batches_are_rebuilt_from_them(log: SimulatedLog, tmp_path: Path) -> None:
    """With wrong epochs on the leader, a follower would keep records that no other replica has."""
    log.elect()
    log.append(2)
    epochs = log.partition.log.epochs.entries
    log.table.close()
    for content in (b"0\n2\n0 0\n1 5\n", b"0\n2\n0 0\n1 9\n", b"0\n1\n0 0\n", b"0\n2\n0 0\n", b"0\n0\n"):
        file = tmp_path / f"{TOPIC}-0" / EPOCHS
        file.write_bytes(content)
        table, report = started(tmp_path)
        partition = table.get(TOPIC, 0)
        assert partition is not None
        assert partition.log.epochs.entries == epochs
        assert [damage.file for _, _, damage in report.damages] == [str(file)]
        table.close()


def test_an_impossible_start_offset_does_not_empty_a_log(log: SimulatedLog, tmp_path: Path) -> None:
    """LOG-38 applies to logs that lost their end; this one was stopped cleanly with all records."""
    log.table.close()
    checkpoint = tmp_path / checkpoints.LOG_START_OFFSETS
    checkpoint.write_text(f"0\n1\n{TOPIC} 0 90\n")
    table, report = started(tmp_path)
    partition = table.get(TOPIC, 0)
    assert partition is not None
    assert (partition.log_start_offset, partition.log_end_offset) == (0, 6)
    assert [(damage.file, damage.offset) for _, _, damage in report.damages] == [(str(checkpoint), 90)]
    table.close()


@pytest.mark.parametrize("content", ["0\n1\nt 0\n", "1\n0\n", f"0\n1\n{TOPIC} 3 0\n"])
def test_impossible_checkpoints_are_reported(log: SimulatedLog, tmp_path: Path, content: str) -> None:
    log.table.close()
    (tmp_path / checkpoints.LOG_START_OFFSETS).write_text(content)
    table, report = started(tmp_path)
    assert report.unreadable
    assert len(table) == 1
    table.close()


def test_a_garbled_owner_of_a_directory_is_refused_in_one_line(log: SimulatedLog, tmp_path: Path) -> None:
    log.table.close()
    flip(tmp_path / META_FILE, len("version=0\nbroker"), 7)
    with pytest.raises(DirectoryRefused, match="belongs to broker") as refused:
        started(tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([], []),
        ([(0, 0), (0, 5), (3, 9)], [(0, 0), (3, 9)]),
        ([(0, 0), (1 << 30, 5), (0, 6), (3, 9)], [(0, 0), (3, 9)]),
        ([(4, 0), (4, 3), (0, 5), (4, 6)], [(4, 0)]),
        ([(3, 0), (3, 3), (0, 5), (4, 6)], [(3, 0), (4, 6)]),
        ([(1, 0), (2, 5), (1 << 20, 6), (3, 7)], [(1, 0), (2, 5), (3, 7)]),
    ],
)
def test_a_decreasing_epoch_is_a_flipped_bit(batches: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    assert without_decreasing_epochs(batches) == expected
