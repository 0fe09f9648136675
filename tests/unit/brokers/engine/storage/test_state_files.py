"""Checkpoints, leader epochs, producer snapshots, retention and roots (LOG-1 to LOG-13, LOG-30 to LOG-44, IDE-4 to
IDE-11).
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.records import error_codes
from brokers.engine.storage import checkpoints
from brokers.engine.storage.directories import DirectoryRefused, LogRoot, read_topic_id
from brokers.engine.storage.files import StorageFailed, storage_errors
from brokers.engine.storage.leader_epochs import LeaderEpochs
from brokers.engine.storage.producer_state import CachedBatch, ProducerState
from brokers.engine.storage.retention import RetentionRules, SegmentFacts, count_deletable
from tests.unit.brokers.engine.storage.logs import append, new_log, values


def test_a_checkpoint_is_text_that_reads_back(tmp_path: Path) -> None:
    """LOG-6."""
    file = tmp_path / checkpoints.RECOVERY_POINTS
    checkpoints.write_offsets(file, {("ins-a.x", 0): 5, ("ins-a.x", 1): 2**40}, tmp_path)
    assert file.read_text() == "0\n2\nins-a.x 0 5\nins-a.x 1 1099511627776\n"
    assert checkpoints.read_offsets(file, tmp_path) == {("ins-a.x", 0): 5, ("ins-a.x", 1): 2**40}
    assert checkpoints.read_offsets(tmp_path / "none", tmp_path) == {}
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("text", ["", "1\n0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\nx\n", "0\n1\na b c\n"])
def test_a_damaged_checkpoint_is_unreadable(tmp_path: Path, text: str) -> None:
    file = tmp_path / "c"
    file.write_text(text)
    with pytest.raises(checkpoints.UnreadableCheckpoint):
        checkpoints.read_offsets(file, tmp_path)


def test_epochs_answer_where_each_ended(tmp_path: Path) -> None:
    """LOG-31."""
    epochs = LeaderEpochs(str(tmp_path), tmp_path)
    for epoch, start in ((2, 0), (4, 10), (7, 30)):
        epochs.assign(epoch, start)
    assert epochs.end_offset(-1, 50) == (-1, -1)
    assert epochs.end_offset(7, 50) == (7, 50)
    assert epochs.end_offset(8, 50) == (-1, -1)
    assert epochs.end_offset(1, 50) == (1, 0)
    assert epochs.end_offset(4, 50) == (4, 30)
    assert epochs.end_offset(5, 50) == (4, 30)
    assert epochs.epoch_at(9) == 2
    again = LeaderEpochs(str(tmp_path), tmp_path)
    again.load()
    assert again.entries == epochs.entries
    again.truncate_start(12)
    assert again.entries == [(4, 12), (7, 30)]
    again.truncate_end(30)
    assert again.entries == [(4, 12)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), max_size=20))
def test_epochs_always_increase_in_both(tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[int, int]]) -> None:
    """LOG-30."""
    directory = tmp_path_factory.mktemp("epochs")
    epochs = LeaderEpochs(str(directory), directory)
    for epoch, start in moves:
        epochs.assign(epoch, start)
        rows = epochs.entries
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(rows))


def test_duplicates_of_the_last_five_batches_are_known_and_gaps_are_refused() -> None:
    """IDE-5 to IDE-8, REC-59: no error 59, as in Apache Kafka; an unknown producer may begin at any sequence."""
    state = ProducerState()
    assert state.check_sequence(1, 0, 77, 2) == 0, "an unknown producer may start anywhere"
    for number in range(7):
        assert state.check_sequence(1, 0, number * 10, 9) == 0
        state.update(1, 0, number * 10, 9, number * 10 + 9, 1_000 + number)
    for number in range(2, 7):
        known = state.check_sequence(1, 0, number * 10, 9)
        assert isinstance(known, CachedBatch)
        assert known.last_offset - known.offset_delta == number * 10
        assert known.timestamp_ms == 1_000 + number
    assert state.check_sequence(1, 0, 10, 9) == error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check_sequence(1, 0, 71, 9) == error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check_sequence(1, 0, 60, 5) == error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check_sequence(1, 1, 5, 0) == error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check_sequence(1, 1, 0, 0) == 0
    state.update(1, 1, 0, 0, 70, 2_000)
    assert state.check_sequence(1, 0, 70, 0) == error_codes.INVALID_PRODUCER_EPOCH


def test_sequences_wrap() -> None:
    """IDE-7."""
    state = ProducerState()
    state.update(1, 0, 2**31 - 2, 1, 1, 0)
    assert state.check_sequence(1, 0, 0, 4) == 0
    state.update(1, 0, 2**31 - 1, 3, 5, 0)
    assert state.check_sequence(1, 0, 3, 0) == 0


def test_idle_producers_are_forgotten() -> None:
    """IDE-11."""
    state = ProducerState()
    state.update(1, 0, 0, 0, 0, 1_000)
    state.update(2, 0, 0, 0, 0, 2_000)
    assert state.expire(now_ms=11_000, age_ms_min=10_000) == 1
    assert list(state.producers) == [2]


@given(
    st.dictionaries(
        st.integers(0, 2**60), st.tuples(st.integers(0, 999), st.integers(0, 2**31 - 1), st.integers(0, 99))
    )
)
def test_a_snapshot_restores_the_last_batch_of_each_producer(rows: dict[int, tuple[int, int, int]]) -> None:
    """LOG-13."""
    state = ProducerState()
    for producer, (epoch, sequence, delta) in rows.items():
        state.update(producer, epoch, sequence, delta, delta + 7, 5)
    content = state.to_bytes()
    again = ProducerState()
    assert again.restore(content, 9)
    assert again.end_offset == 9
    for producer, entry in state.producers.items():
        assert again.producers[producer].epoch == entry.epoch
        assert again.producers[producer].batches == entry.batches
    if rows:
        assert not again.restore(content[:-1] + bytes([content[-1] ^ 1]), 9)
    assert not again.restore(content[:5], 9)


def facts(*sizes: int, age_ms: int = 0) -> list[SegmentFacts]:
    return [SegmentFacts(at * 10, size, age_ms + at) for at, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("rules", "high_watermark", "now_ms", "gone"),
    [
        (RetentionRules(-1, -1), 40, 10**9, 0),
        (RetentionRules(-1, 250), 40, 0, 1),
        (RetentionRules(-1, 200), 40, 0, 2),
        (RetentionRules(-1, 0), 40, 0, 4),
        (RetentionRules(-1, 0), 15, 0, 1),
        (RetentionRules(100, -1), 40, 102, 2),
        (RetentionRules(100, -1), 40, 10**9, 4),
        (RetentionRules(100, 0, delete=False), 40, 10**9, 0),
    ],
)
def test_retention_takes_whole_segments_from_the_oldest(
    rules: RetentionRules, high_watermark: int, now_ms: int, gone: int
) -> None:
    """LOG-43, LOG-44."""
    result = count_deletable(
        facts(100, 100, 100, 100),
        rules,
        log_start_offset=0,
        log_end_offset=40,
        high_watermark=high_watermark,
        now_ms=now_ms,
    )
    assert result == gone


def test_a_raised_start_offset_and_an_empty_last_segment() -> None:
    rules = RetentionRules(0, -1)
    segments = facts(100, 100, 0)
    assert count_deletable(segments, rules, log_start_offset=0, log_end_offset=20, high_watermark=20, now_ms=10**9) == 2
    keep = RetentionRules(-1, -1)
    assert count_deletable(segments, keep, log_start_offset=10, log_end_offset=20, high_watermark=20, now_ms=0) == 1


def test_a_root_has_one_owner_at_a_time(tmp_path: Path) -> None:
    """LOG-1, LOG-34."""
    root = LogRoot(tmp_path / "logs")
    root.lock_and_claim(1, "c")
    with pytest.raises(DirectoryRefused, match="in use"):
        LogRoot(tmp_path / "logs").lock_and_claim(1, "c")
    root.mark_clean(3)
    root.unlock()
    with pytest.raises(DirectoryRefused, match="belongs to broker 1"):
        LogRoot(tmp_path / "logs").lock_and_claim(2, "c")
    again = LogRoot(tmp_path / "logs")
    again.lock_and_claim(1, "c")
    assert again.clean
    again.unlock()
    crashed = LogRoot(tmp_path / "logs")
    crashed.lock_and_claim(1, "c")
    assert not crashed.clean
    crashed.unlock()


def test_partition_directories_are_found_with_their_topic_id(tmp_path: Path) -> None:
    """LOG-2, LOG-4, LOG-47."""
    root = LogRoot(tmp_path)
    root.lock_and_claim(1, "c")
    topic_id = bytes(range(16))
    directory = root.create_partition("ins-a.my-topic", 12, topic_id)
    assert (Path(directory) / "partition.metadata").read_text() == "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    gone = root.create_partition("x" * 249, 0, topic_id)
    renamed = root.mark_deleted(gone)
    assert len(Path(renamed).name) <= 255
    (result,) = root.scan()
    assert result == (directory, "ins-a.my-topic", 12, topic_id)
    assert not Path(renamed).exists()
    assert read_topic_id(tmp_path, tmp_path) == bytes(16)
    root.unlock()


def test_an_io_error_names_its_root(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed) as caught, storage_errors(tmp_path):
        (tmp_path / "none").read_bytes()
    assert caught.value.directory == tmp_path


def test_an_epoch_that_begins_is_saved_with_its_first_batch(tmp_path: Path) -> None:
    """A thousand leaderships gained at once write no file; no batch is written before its epoch is saved."""
    log = new_log(tmp_path / "t-0")
    log.epochs.assign_unsaved(3, log.log_end_offset)
    assert log.epochs.latest == 3 and not Path(log.epochs.path).exists()
    append(log, values(1), epoch=3)
    assert Path(log.epochs.path).read_text().split() == ["0", "1", "3", "0"]
