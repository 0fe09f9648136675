"""Logs that cannot be served are kept for an operator: of another topic, or in an old format."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from brokers.engine.partitions.deletion import delete_before
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records import error_codes
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.records.message_set import encode_message
from brokers.engine.storage.directories import META_FILE, NO_TOPIC_ID
from tests.unit.brokers.engine.inspect.sample import run as inspect
from tests.unit.brokers.engine.partitions.test_start_offsets import crash, persist_log_start_offsets
from tests.unit.brokers.engine.partitions.test_table import NOW_MS, opened, produce

TOPIC_ID, OTHER_ID = b"0123456789abcdef", b"0123456789abcdeg"


def produced(root: Path, topic: str = "t") -> bytes:
    """Produces to one partition and stops its broker; returns the content of its segment."""
    table = opened(root)
    table.become_leader(topic, 0, TOPIC_ID, 0, {}, now_ms=NOW_MS)
    produce(table, topic, 0, times=3)
    table.close()
    return (root / f"{topic}-0" / f"{0:020d}.log").read_bytes()


def flush(table: PartitionTable) -> None:
    batch = table.flusher.plan_flush()
    batch.run()
    batch.finish()


def test_a_log_with_another_topic_id_becomes_a_stray_and_is_never_removed(tmp_path: Path) -> None:
    """A bit of the topic id may have flipped; the id alone cannot distinguish that from a recreated topic."""
    content = produced(tmp_path)
    metadata = tmp_path / "t-0" / "partition.metadata"
    data = bytearray(metadata.read_bytes())
    data[-10] ^= 1
    metadata.write_bytes(data)
    for _ in range(2):
        table = opened(tmp_path)
        partition = table.become_leader("t", 0, TOPIC_ID, 1, {}, now_ms=NOW_MS)
        assert (partition.log_end_offset, partition.topic_id) == (0, TOPIC_ID)
        table.maintain(NOW_MS + 10**9)
        table.close()
    (aside,) = tmp_path.glob("t-0.*-stray")
    assert (aside / f"{0:020d}.log").read_bytes() == content


FOREIGN_FILES = ("dump.sql", "00000000000000000000.log.gz", "nested/00000000000000000000.log")


@pytest.mark.parametrize("name", FOREIGN_FILES)
def test_a_foreign_directory_with_the_name_of_a_partition_is_ignored(tmp_path: Path, name: str) -> None:
    """It would be taken for the log of a deleted topic, and be deleted."""
    file = tmp_path / "backup-2024" / name
    file.parent.mkdir(parents=True)
    file.write_bytes(b"precious")
    table = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c"))
    report = table.recover(NOW_MS)
    assert (report.partitions, len(table)) == (0, 0)
    assert report.foreign == [str(tmp_path / "backup-2024")]
    table.close()
    assert [path for path in (tmp_path / "backup-2024").rglob("*") if path.is_file()] == [file]


@pytest.mark.parametrize(
    "name",
    [
        "", "partition.metadata", "partition.metadata.tmp", "leader-epoch-checkpoint", f"{0:020d}.log",
        f"{7:020d}.index", f"{7:020d}.snapshot", f"{0:020d}.log.swap", f"{0:020d}.log.deleted",
    ],
)  # fmt: skip
def test_the_files_that_a_crash_leaves_still_count_as_a_partition(tmp_path: Path, name: str) -> None:
    """A directory is created before its files, and the log file is created by the first append."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    if name:
        (directory / name).touch()
    table = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c"))
    report = table.recover(NOW_MS)
    assert (report.partitions, report.foreign) == (1, [])
    table.become_leader("t", 0, TOPIC_ID, 1, {}, now_ms=NOW_MS)
    produce(table, "t", 0)
    table.close()


def test_a_foreign_directory_with_the_name_of_a_new_partition_becomes_a_stray(tmp_path: Path) -> None:
    """Its files are kept, even when the topic is deleted, and the disk stays online."""
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "dump.sql").write_bytes(b"precious")
    table = opened(tmp_path)
    table.become_leader("t", 0, TOPIC_ID, 1, {}, now_ms=NOW_MS)
    produce(table, "t", 0)
    assert not table.offline_directories
    table.delete("t", 0, now_ms=NOW_MS)
    table.maintain(NOW_MS + 10**9)
    table.close()
    (aside,) = tmp_path.glob("t-0.*-stray")
    assert (aside / "dump.sql").read_bytes() == b"precious"


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_the_longer_log_of_two_directories_of_one_partition_is_used(tmp_path: Path, order: tuple[str, str]) -> None:
    """One was copied to another disk by hand, or its disk returned after it was replaced.

    Kafka does not start then; here no file is removed either.
    """
    old, young = tmp_path / "a", tmp_path / "b"
    produced(old)
    shutil.copytree(old / "t-0", young / "t-0")
    table = opened(young)
    table.become_leader("t", 0, TOPIC_ID, 1, {}, now_ms=NOW_MS)
    produce(table, "t", 0)
    end_offset = table.get("t", 0).log_end_offset  # type: ignore[union-attr]
    table.close()

    for _ in range(2):
        roots = tuple(tmp_path / name for name in order)
        table = PartitionTable(StorageSettings(roots=roots, broker_id=1, cluster_id="c"))
        report = table.recover(NOW_MS)
        result = table.get("t", 0)
        assert result is not None
        assert (result.log_end_offset, result.log.root) == (end_offset, young)
        table.close()
    assert not report.damages, "it was reported at the first start"
    assert len(list(old.glob("t-0.*-stray/*.log"))) == 1


def test_a_new_stray_is_reported_once(tmp_path: Path) -> None:
    produced(tmp_path)
    table = opened(tmp_path)
    table.become_leader("t", 0, OTHER_ID, 0, {}, now_ms=NOW_MS)
    ((topic, index, directory),) = table.new_strays
    assert (topic, index) == ("t", 0)
    assert Path(directory).is_dir()
    # The id of a log that was led is known to be right: it belongs to a deleted topic.
    table.new_strays.clear()
    table.become_leader("t", 0, TOPIC_ID, 0, {}, now_ms=NOW_MS)
    assert not table.new_strays
    table.close()


def test_a_log_without_topic_id_is_adopted_and_gets_the_topic_id(tmp_path: Path) -> None:
    produced(tmp_path)
    (tmp_path / "t-0" / "partition.metadata").write_bytes(b"")
    for known in (NO_TOPIC_ID, TOPIC_ID):
        table = opened(tmp_path)
        held = table.get("t", 0)
        assert held is not None
        assert held.topic_id == known
        assert table.become_leader("t", 0, TOPIC_ID, 1, {}, now_ms=NOW_MS).log_end_offset == 3
        table.close()


def test_an_unflushed_log_without_topic_id_is_not_adopted_after_a_power_cut(tmp_path: Path) -> None:
    """It may belong to a topic that was deleted and recreated meanwhile. A flushed log has its topic id on disk."""
    for flushed in (False, True):
        root = tmp_path / str(flushed)
        table = opened(root)
        table.become_leader("t", 0, TOPIC_ID, 0, {}, now_ms=NOW_MS)
        produce(table, "t", 0, times=3)
        if flushed:
            flush(table)
        crash(table)
        (root / "t-0" / "partition.metadata").write_bytes(b"")

        table = opened(root)
        assert table.become_leader("t", 0, OTHER_ID, 1, {}, now_ms=NOW_MS).log_end_offset == (3 if flushed else 0)
        assert len(list(root.glob("t-0.*-stray"))) == (0 if flushed else 1)
        table.close()


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_an_unidentified_log_is_not_adopted_because_there_was_a_shorter_one(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    """The longer of two directories is kept, and what is known of it, whichever is loaded first."""
    for name, records in (("a", 3), ("b", 1)):
        table = opened(tmp_path / name)
        table.become_leader("t", 0, TOPIC_ID, 0, {}, now_ms=NOW_MS)
        produce(table, "t", 0, times=records)
        crash(table)
    (tmp_path / "a" / "t-0" / "partition.metadata").write_bytes(b"")

    table = opened(*(tmp_path / name for name in order))
    held = table.get("t", 0)
    assert held is not None
    assert (held.log.root, held.log_end_offset) == (tmp_path / "a", 3)
    assert table.become_leader("t", 0, OTHER_ID, 1, {}, now_ms=NOW_MS).log_end_offset == 0
    assert len(list((tmp_path / "a").glob("t-0.*-stray"))) == 1
    table.close()


def crashed_with_a_start_of_two(root: Path) -> None:
    """Writes three records and deletes the first two durably."""
    table = opened(root)
    partition = table.become_leader("t", 0, TOPIC_ID, 0, {}, now_ms=NOW_MS)
    produce(table, "t", 0, times=3)
    assert delete_before(partition, 2).low_watermark == 2
    persist_log_start_offsets(table)
    crash(table)


def test_a_log_that_replaces_an_unknown_one_keeps_its_start_offset(tmp_path: Path) -> None:
    """LOG-46: if it was the same topic's log, its deleted records stay deleted."""
    crashed_with_a_start_of_two(tmp_path)
    (tmp_path / "t-0" / "partition.metadata").unlink()

    younger = tmp_path.with_name("younger")
    shutil.copytree(tmp_path, younger)

    table = opened(tmp_path)
    result = table.become_leader("t", 0, TOPIC_ID, 1, {}, now_ms=NOW_MS)
    assert (result.log_start_offset, result.log_end_offset) == (2, 2)
    table.close()
    table = opened(tmp_path)
    assert table.become_leader("t", 0, TOPIC_ID, 2, {}, now_ms=NOW_MS).log_start_offset == 2
    table.close()

    table = opened(younger)
    assert table.become_leader("t", 0, OTHER_ID, 0, {}, now_ms=NOW_MS).log_start_offset == 0, "it has had one epoch"
    table.close()


def test_the_start_offset_of_an_unknown_empty_log_is_not_used_for_the_next_topic(tmp_path: Path) -> None:
    """LOG-46: the replica would follow from there, join the ISR, and lead without the records below."""
    crashed_with_a_start_of_two(tmp_path)
    for path in (tmp_path / "t-0").iterdir():
        path.unlink()

    table = opened(tmp_path)
    result = table.become_follower("t", 0, OTHER_ID, 0, {}, now_ms=NOW_MS, role=PartitionRole((2, 1), (2,), 2))
    assert (result.log_start_offset, result.log_end_offset) == (0, 0)
    table.close()


def test_an_unflushed_directory_from_before_topic_ids_is_adopted(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.become_leader("t", 0, TOPIC_ID, 0, {}, now_ms=NOW_MS)
    produce(table, "t", 0, times=3)
    crash(table)
    (tmp_path / "t-0" / "partition.metadata").unlink()
    meta = tmp_path / META_FILE
    meta.write_text("#\n#Sun Nov 01 10:00:00 UTC 2020\n" + meta.read_text())

    table = opened(tmp_path)
    assert table.become_leader("t", 0, OTHER_ID, 1, {}, now_ms=NOW_MS).log_end_offset == 3
    table.close()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("before", ["batches", "messages"])
def test_a_log_with_old_messages_behind_batches_is_not_opened_and_not_truncated(
    tmp_path: Path, magic: int, clean: bool, before: str
) -> None:
    content = produced(tmp_path)
    produced(tmp_path, "other")
    file = tmp_path / "t-0" / f"{0:020d}.log"
    old = b"".join(encode_message(magic, offset, NOW_MS, b"k", b"value") for offset in range(3, 6))
    if before == "messages":
        content = b"".join(encode_message(magic, offset, NOW_MS, b"k", b"value") for offset in range(3))
        old = old[:-1] + bytes([old[-1] ^ 1])
    file.write_bytes(content + old)
    if not clean:
        crash(opened(tmp_path))
    stored = file.read_bytes()
    table = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c"))
    ((topic, index, reason),) = table.recover(NOW_MS).refused
    assert (topic, index) == ("t", 0)
    damaged = len(content) + len(old) // 3 * 2
    assert f"{file} at byte {len(content) if before == 'batches' else damaged}: " in reason
    partition = table.become_leader("t", 0, TOPIC_ID, 1, {}, now_ms=NOW_MS)
    batch = memoryview(build_batch([Record(NOW_MS, None, b"")]))
    assert partition.append(batch, NOW_MS, acks=1, produce_version=9).error_code == error_codes.KAFKA_STORAGE_ERROR
    assert partition.read(0, 100, min_one_batch=True).error_code == error_codes.KAFKA_STORAGE_ERROR
    assert not table.offline_directories
    other = table.become_leader("other", 0, TOPIC_ID, 1, {}, now_ms=NOW_MS)
    assert other.log_end_offset == 3
    table.maintain(NOW_MS + 10**9)
    table.close()
    assert file.read_bytes() == stored
    rows = inspect("recover", tmp_path)[1]
    assert [row["file"] for row in rows if row["row"] == "refuse"] == [file.name]
    assert file.read_bytes() == stored


def test_an_old_message_that_is_damaged_is_damage(tmp_path: Path) -> None:
    content = produced(tmp_path)
    file = tmp_path / "t-0" / f"{0:020d}.log"
    old = bytearray(encode_message(1, 3, NOW_MS, b"k", b"value"))
    old[-1] ^= 1
    file.write_bytes(content + old)
    table = opened(tmp_path)
    partition = table.get("t", 0)
    assert partition is not None
    assert (partition.offline, partition.log_end_offset) == (False, 3)
    table.close()
    assert file.read_bytes() == content
