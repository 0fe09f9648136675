"""Opening of logs at start: a clean stop is trusted, a crash is recovered from (LOG-34 to LOG-39).

After a crash every batch from the recovery point on is read and its checksum verified; the log is truncated before the
first torn or corrupt one.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from brokers.contract.partitions import PartitionKey
from brokers.engine.records.batch import BatchHeader
from brokers.engine.storage.checkpoints import LOG_START_OFFSETS
from brokers.engine.storage.files import OpenFiles, storage_errors, sync_directory
from brokers.engine.storage.log import NO_HOLE, RELATIVE_OFFSET_MAX, Log, LogConfig
from brokers.engine.storage.producer_state import (
    SNAPSHOT_SUFFIX,
    begin_segment,
    delete_stray_snapshots,
    load_newest_snapshot,
    snapshot_path,
)
from brokers.engine.storage.rewriting import refuse_old_message, rewrite_old_segments
from brokers.engine.storage.sanity_checks import (
    Damage,
    contradicts_epochs,
    find_wrong_index,
    has_bad_offsets,
    is_intact,
)
from brokers.engine.storage.segment import LOG_SUFFIX, Segment
from brokers.engine.storage.splitting import split_far_segments
from brokers.engine.storage.startup_cleanup import clean_up, segment_files
from brokers.engine.storage.transactions import replay_batch

BEYOND_ALL_OFFSETS: Final = 1 << 63
INDEX_REBUILT: Final = "contradicts the log or is missing; rebuilt"


class LoadReport(NamedTuple):
    """Result of opening a log: bytes truncated, bytes verified, whether it was trusted, segments rewritten from an old
    message format, segments split, and damage found.
    """

    truncated_bytes: int
    scanned_bytes: int
    clean: bool
    rewritten_segments: int = 0
    split_segments: int = 0
    damages: tuple[Damage, ...] = ()


def create_log(
    directory: str, root: Path, topic: str, index: int, files: OpenFiles, config: LogConfig, *, now_ms: int
) -> Log:
    """Returns a log without records in an existing, empty directory; its first file is created by its first append."""
    segment = Segment(directory, root, 0, files, now_ms=now_ms)
    return Log(directory, root, topic, index, files, config, [segment])


class LogCheckpoint(NamedTuple):
    """State of a log as the checkpoint files of its root have it; `clean` if the broker stopped cleanly.

    From `dense_from` on no offset can be missing: recovery takes a hole there for records that a power cut destroyed,
    and truncates the log before it. It is None where compaction may have made holes.
    """

    recovery_point: int = 0
    start_offset: int = 0
    clean: bool = False
    dense_from: int | None = None


def load_log(
    directory: str,
    root: Path,
    partition: PartitionKey,
    files: OpenFiles,
    config: LogConfig,
    checkpoint: LogCheckpoint,
    *,
    now_ms: int,
) -> tuple[Log, LoadReport]:
    """Opens the log in `directory`.

    Raises StorageFailed, and OldFormat for a damaged segment of an old message format; the log is not truncated then.
    """
    recovery_point, start_offset, clean, dense_from = checkpoint
    (bases, snapshot_offsets, aborting_bases, foreign_paths), rewritten_count, split_count = _prepare_segments(
        directory, root, config.index_limits[0], recovery_point
    )
    segments = _open_segments(directory, root, files, bases, aborting_bases, start_offset, now_ms)
    log = Log(directory, root, *partition, files, config, segments)
    log.durable_start_offset = max(log.durable_start_offset, start_offset)
    # A crash may have come between the change of the start offset in this file and its checkpoint.
    has_epochs = log.epochs.load() and log.epochs.entries[0][1] <= max(segments[0].base_offset, start_offset)
    damages = [Damage(path, -1, -1, "is not a log file; ignored") for path in foreign_paths]
    if log.epochs.is_damaged:
        damages.append(Damage(log.epochs.path, -1, -1, "is unreadable; rebuilt"))
    is_trusted = clean and _check_consistency(log, start_offset, recovery_point, dense_from is not None, damages)
    truncated_bytes = scanned_bytes = 0
    unlisted_bases: list[int] = []
    if not is_trusted:
        has_epochs = has_epochs and not any(damage.file == log.epochs.path for damage in damages)
        dense_from = BEYOND_ALL_OFFSETS if dense_from is None else dense_from
        truncated_bytes, scanned_bytes, unlisted_bases = _recover(log, recovery_point, dense_from, has_epochs, damages)
    elif log.log_end_offset < start_offset and log.log_end_offset == recovery_point:
        # The broker cannot have stopped in this state: no record is lost, so the start offset is wrong.
        damages.append(_describe_wrong_start_offset(log, start_offset))
        start_offset = log.durable_start_offset = segments[0].base_offset
    log.recovery_point = log.log_end_offset if is_trusted else min(recovery_point, log.log_end_offset)
    if log.log_end_offset < start_offset:
        damages.append(_describe_wrong_start_offset(log, start_offset))
        _start_empty_at(log, start_offset, now_ms)
    log.log_start_offset = log.durable_start_offset = max(log.segments[0].base_offset, start_offset)
    log.epochs.truncate_end(log.log_end_offset + 1)
    log.epochs.truncate_start(log.log_start_offset)
    log.may_have_aborts = bool(aborting_bases)
    # The first offset of a transaction that ends in a segment of `unlisted_bases` is only in an older snapshot.
    load_newest_snapshot(
        log.producers, directory, snapshot_offsets, min([log.log_end_offset, *unlisted_bases[:1]]), root
    )
    _replay_producers(log, unlisted_bases)
    delete_stray_snapshots(
        log.producers, directory, snapshot_offsets, {segment.base_offset for segment in log.segments}, root
    )
    for segment in log.segments:
        segment.free_memory() if segment is not log.active else segment.file.close()
    damages_by_file = {damage.file: damage for damage in damages}
    return log, LoadReport(
        truncated_bytes, scanned_bytes, is_trusted, rewritten_count, split_count, tuple(damages_by_file.values())
    )


def _prepare_segments(
    directory: str, root: Path, interval_bytes: int, recovery_point: int
) -> tuple[tuple[list[int], list[int], set[int], list[str]], int, int]:
    """Rewrites segments of old message formats and splits segments with offsets out of range.

    Returns the result of `clean_up` after that, and how many segments were rewritten and split.
    """
    contents = clean_up(directory, root)
    rewritten = rewrite_old_segments(directory, root, contents[0], interval_bytes)
    if rewritten:
        contents = clean_up(directory, root)
    split = split_far_segments(directory, root, contents[0], interval_bytes, recovery_point)
    return clean_up(directory, root) if split else contents, rewritten, split


def _open_segments(
    directory: str,
    root: Path,
    files: OpenFiles,
    bases: list[int],
    aborting_bases: set[int],
    start_offset: int,
    now_ms: int,
) -> list[Segment]:
    """Returns the segments on disk, or an empty one at the log start offset."""
    segments = []
    with storage_errors(root):
        for base in bases:
            size = os.stat(f"{directory}/{base:020d}{LOG_SUFFIX}").st_size  # noqa: PTH116
            segment = Segment(directory, root, base, files, now_ms=now_ms, size_bytes=size)
            if base in aborting_bases:
                segment.open_aborted_index()
            segments.append(segment)
    if not segments:
        segments.append(Segment(directory, root, start_offset, files, now_ms=now_ms))
        if start_offset:
            segments[0].create_file()
    return segments


def _check_consistency(log: Log, start_offset: int, recovery_point: int, is_dense: bool, damages: list[Damage]) -> bool:
    """Checks the files that a clean stop left, and sets the log end offset. Returns False if they contradict each
    other, with the damage in `damages`.

    A recovery point of 0 is not checked: the directory may have been created without a checkpoint of recovery points.
    """
    for segment in log.segments:
        if path := find_wrong_index(segment, is_dense):
            damages.append(Damage(path, -1, segment.base_offset, INDEX_REBUILT))
            return False
    end = _end_offset_of(log.active)
    if end is None:
        return False  # recovery reports the damage
    log.log_end_offset = end
    if recovery_point not in (0, end):
        description = f"the log ends here, but its recovery point was {recovery_point}"
        damages.append(Damage(log.active.file.path, -1, end, description))
        return False
    if contradicts_epochs(log, max(log.segments[0].base_offset, start_offset)):
        damages.append(Damage(log.epochs.path, -1, -1, "contradicts the batches or is missing; rebuilt"))
        return False
    return True


def _describe_wrong_start_offset(log: Log, start_offset: int) -> Damage:
    path = str(log.root / LOG_START_OFFSETS)
    return Damage(path, -1, start_offset, f"has this start offset for a log that ends at {log.log_end_offset}")


def _end_offset_of(segment: Segment) -> int | None:
    """Returns the offset after the last batch of a trusted segment; None if its last bytes are no intact batches."""
    end = segment.base_offset
    limit = offset_limit_of([segment], 0)
    position = segment.offset_index.last_position()
    for batch_position, header in segment.headers(position):
        if has_bad_offsets(header, end, limit) or not _is_intact(segment, batch_position, header):
            return None
        end, position = header.next_offset, batch_position + header.size_bytes
    return end if position == segment.size_bytes else None


def first_segment_to_check(bases: list[int], recovery_point: int) -> int:
    """Returns the number of the segment that contains the last offset below the recovery point.

    If that is the last offset of the segment, the next one begins at the recovery point, and this segment's indexes
    were completed after it was flushed.
    """
    return max(bisect_left(bases, recovery_point) - 1, 0)


def _recover(
    log: Log, recovery_point: int, dense_from: int, has_epochs: bool, damages: list[Damage]
) -> tuple[int, int, list[int]]:
    """Verifies the segments from the recovery point on and truncates the log before damage, which is added to
    `damages`.

    Returns (bytes truncated, bytes read, bases of segments in which transactions end and whose aborted ones must be
    listed again). The leader epochs of verified segments are taken from their batches; without a usable file
    (`has_epochs`), all are.
    """
    truncated_bytes = scanned_bytes = 0
    first_number = first_segment_to_check([segment.base_offset for segment in log.segments], recovery_point)
    end = log.segments[0].base_offset
    epochs: list[tuple[int, int]] = []
    unlisted_bases: list[int] = []
    for number, segment in enumerate(log.segments):
        wrong_index_path = find_wrong_index(segment, dense_from < BEYOND_ALL_OFFSETS) if number < first_number else ""
        if number < first_number and not wrong_index_path:
            if not has_epochs:
                epochs += ((header.leader_epoch, header.base_offset) for _, header in segment.headers(0))
            end = log.segments[number + 1].base_offset
            continue
        if wrong_index_path:
            damages.append(Damage(wrong_index_path, -1, segment.base_offset, INDEX_REBUILT))
        end, intact_bytes, has_markers = _rebuild(
            log, segment, offset_limit_of(log.segments, number), dense_from, epochs
        )
        if has_markers:
            unlisted_bases.append(segment.base_offset)
        scanned_bytes += segment.size_bytes
        if intact_bytes < segment.size_bytes:
            with storage_errors(log.root):
                refuse_old_message(segment.file.path, intact_bytes)
        later_segments = log.segments[number + 1 :]
        has_hole = bool(later_segments) and max(end, dense_from) < later_segments[0].base_offset
        if intact_bytes < segment.size_bytes or has_hole:
            truncated_bytes += segment.size_bytes - intact_bytes + sum(later.size_bytes for later in later_segments)
            reason = "no intact batch follows" if intact_bytes < segment.size_bytes else "offsets are missing"
            damages.append(Damage(segment.file.path, intact_bytes, end, f"{reason}; {truncated_bytes} bytes truncated"))
            log.segments = log.segments[: number + 1]
            log.active = segment
            _truncate_after_damage(log, later_segments, intact_bytes, end)
            break
        if later_segments:
            _record_hole(log, end, later_segments[0].base_offset)
            # otherwise its files stay unchanged until the transactions are listed, so that the next start detects an
            # interruption
            if not has_markers:
                segment.finish()
    replayed_from = log.segments[min(first_number, len(log.segments) - 1)].base_offset if has_epochs else 0
    log.epochs.replay(epochs, replayed_from, end)
    log.log_end_offset = end
    return truncated_bytes, scanned_bytes, unlisted_bases


def _truncate_after_damage(log: Log, later_segments: list[Segment], intact_bytes: int, end: int) -> None:
    """Removes `later_segments`, from the last to the first, and then truncates the segment before them.

    After a crash in between, the next start must detect the damage again and not accept the remaining files as a log.
    """
    for later in reversed(later_segments):
        _unlink(later)
    if later_segments:
        sync_directory(Path(log.directory), log.root)
    segment = log.active
    if intact_bytes < segment.size_bytes:
        segment.truncate(intact_bytes, end)
    segment.offset_index.store()  # the files still name removed batches
    segment.time_index.store()


def offset_limit_of(segments: list[Segment], number: int) -> int:
    """Returns the upper bound of offsets in a segment: the base of the next one, or what an index can express."""
    next_base = segments[number + 1].base_offset if number + 1 < len(segments) else None
    index_limit = segments[number].base_offset + RELATIVE_OFFSET_MAX + 1
    return index_limit if next_base is None else min(next_base, index_limit)


def _rebuild(
    log: Log, segment: Segment, limit_offset: int, dense_from: int, epochs: list[tuple[int, int]]
) -> tuple[int, int, bool]:
    """Reads every batch of the segment, rebuilds its indexes and collects the leader epochs in `epochs`.

    Returns (next offset, intact bytes, whether there are control batches). Aborted transactions are left to
    `_replay_producers`, which knows their first offsets.
    """
    has_markers = False
    for index in segment.indexes():
        index.reset()
    segment.max_timestamp, segment.max_timestamp_offset = -1, segment.base_offset
    segment.indexed_timestamp = -1
    segment.bytes_since_entry = 0
    next_offset, intact_bytes = segment.base_offset, 0
    for position, header in segment.headers(0):
        if has_bad_offsets(header, next_offset, limit_offset) or not _is_intact(segment, position, header):
            break
        if max(next_offset, dense_from) < header.base_offset:
            break
        _record_hole(log, next_offset, header.base_offset)
        if position == 0:
            segment.first_timestamp = header.max_timestamp
        segment.index_batch(
            position, header.size_bytes, header.last_offset, header.max_timestamp, log.config.index_limits
        )
        epochs.append((header.leader_epoch, header.base_offset))
        has_markers = has_markers or header.is_control
        next_offset, intact_bytes = header.next_offset, position + header.size_bytes
    return next_offset, intact_bytes, has_markers


def _record_hole(log: Log, next_offset: int, found_offset: int) -> None:
    """Records the first gap in the offsets above the log start: from `next_offset` to `found_offset`."""
    start_offset = log.durable_start_offset
    if max(next_offset, start_offset) < found_offset and log.hole_offset == NO_HOLE:
        log.hole_offset = max(next_offset, start_offset)


def _is_intact(segment: Segment, position: int, header: BatchHeader) -> bool:
    return is_intact(segment.batch_at(position, header.size_bytes), header)


def _unlink(segment: Segment) -> None:
    segment.file.retire()
    with storage_errors(segment.file.root):
        for path in segment.paths():
            Path(path).unlink(missing_ok=True)


def _start_empty_at(log: Log, start_offset: int, now_ms: int) -> None:
    """Replaces all segments by an empty one at the checkpointed start offset, which is above the whole log (LOG-38)."""
    for segment in log.segments:
        _unlink(segment)
    empty_segment = Segment(log.directory, log.root, start_offset, log.files, now_ms=now_ms)
    empty_segment.create_file()
    log.segments = [empty_segment]
    log.active = empty_segment
    log.log_end_offset = start_offset


def _replay_producers(log: Log, unlisted_bases: Sequence[int] = ()) -> None:
    """Replays the log from the producer snapshot to the log end offset (LOG-39).

    Transactions that were aborted in the segments of `unlisted_bases` are added to their indexes. A snapshot is taken
    at the base of a segment that has none: it is the only source once the segments before it are deleted.
    """
    state = log.producers
    for segment, next_segment in zip(log.segments, [*log.segments[1:], None], strict=True):
        if next_segment is not None and next_segment.base_offset <= state.end_offset:
            continue
        base = segment.base_offset
        if segment is not log.segments[0] and state.end_offset <= base and state.snapshot_offset != base:
            begin_segment(state, log.directory, base, log.root)
        if segment.size_bytes == 0:
            continue
        segment_to_list = segment if segment.base_offset in unlisted_bases else None
        located = segment.locate(state.end_offset)
        for position, header in segment.headers(located[0]) if located is not None else ():
            if header.last_offset >= state.end_offset:
                data = segment.batch_at(position, header.size_bytes) if header.is_control else b""
                replay_batch(log, header, data, segment_to_list)
        if segment_to_list is not None and segment is not log.active:
            if segment.aborted is not None:
                segment.aborted.store()  # first: complete indexes mean that this list is complete
            segment.finish()
    state.end_offset = log.log_end_offset


def truncate_log(log: Log, offset: int, now_ms: int) -> list[str]:
    """Removes every batch that contains `offset` or a later one from the log and the producer state; returns files to
    unlink.

    The recovery point may decrease: it must be checkpointed before the next append. Raises StorageFailed.
    """
    with storage_errors(log.root):
        snapshot_offsets = sorted(segment_files(log.directory).get(SNAPSHOT_SUFFIX, ()))
        for snapshot_offset in snapshot_offsets:
            if snapshot_offset > offset:  # other records will be below it
                snapshot_path(log.directory, snapshot_offset).unlink()
    removed_files = [path for path in log.truncate_to(offset, now_ms) if not path.endswith(SNAPSHOT_SUFFIX)]
    snapshot_offsets = [snapshot_offset for snapshot_offset in snapshot_offsets if snapshot_offset <= offset]
    load_newest_snapshot(log.producers, log.directory, snapshot_offsets, log.log_end_offset, log.root)
    _replay_producers(log)
    return removed_files
