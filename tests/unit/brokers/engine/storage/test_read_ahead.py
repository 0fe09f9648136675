"""Division of work between threads and the event loop for a file that is read from disk (LOG-22, decision 55)."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from brokers.engine.storage.files import OpenFiles, SegmentFile
from brokers.engine.storage.read_ahead import MARKED_BYTES, PREFETCHED_BYTES, READERS_MAX, WARM_BYTES, ReadAhead
from tests.testkit.uncached import cached_pages, drop_from_page_cache

KIB, MIB = 1 << 10, 1 << 20
SIZE_BYTES = 3 * WARM_BYTES


@pytest.fixture
def path(disk_path: Path) -> Path:
    """A sparse file: long, and without disk activity."""
    path = disk_path / "00000000000000000000.log"
    with path.open("wb") as file:
        file.truncate(SIZE_BYTES)
    return path


@pytest.fixture
def fd(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR)
    yield fd
    os.close(fd)


def open_descriptors(fd: int) -> int:
    """Returns the open descriptors of the file of `fd`, without others of this process."""
    file = os.fstat(fd)
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            count += os.path.samestat(os.fstat(int(link.name)), file)
    return count


def test_no_range_is_beyond_before_the_first_prefetch() -> None:
    assert not ReadAhead().must_prefetch(0, SIZE_BYTES)


def test_the_loop_stays_behind_the_position_of_the_thread(fd: int) -> None:
    ahead = ReadAhead()
    ahead.prefetch(fd, MIB, 100 * KIB)
    until = MIB + 100 * KIB
    assert not ahead.must_prefetch(MIB, until)
    assert ahead.must_prefetch(until - 1, until + 1)
    assert ahead.must_prefetch(until, until + 1)
    assert ahead.must_prefetch(until + MARKED_BYTES - 1, until + MARKED_BYTES)
    assert not ahead.must_prefetch(until + MARKED_BYTES, until + MARKED_BYTES + 1), "another reader's part of the file"
    assert not ahead.must_prefetch(0, KIB)


def test_the_range_is_prefetched_and_more_for_a_sequential_reader(path: Path, fd: int) -> None:
    ahead = ReadAhead()
    drop_from_page_cache(path)
    ahead.prefetch(fd, 0, 100 * KIB)
    assert ahead.must_prefetch(0, 100 * KIB + 1)
    ahead.prefetch(fd, 100 * KIB, KIB)
    assert not ahead.must_prefetch(0, 100 * KIB + PREFETCHED_BYTES)
    assert cached_pages(path) * os.sysconf("SC_PAGESIZE") >= 100 * KIB + PREFETCHED_BYTES


def test_a_thread_also_reads_a_range_that_a_reader_skipped(path: Path, fd: int) -> None:
    ahead = ReadAhead()
    ahead.prefetch(fd, 0, 100 * KIB)
    drop_from_page_cache(path)
    ahead.prefetch(fd, MIB, MIB)
    assert not ahead.must_prefetch(0, 2 * MIB)
    assert cached_pages(path) * os.sysconf("SC_PAGESIZE") >= 2 * MIB - 100 * KIB


def test_a_file_that_was_read_to_its_end_is_read_by_the_loop_again(fd: int) -> None:
    ahead = ReadAhead()
    ahead.prefetch(fd, SIZE_BYTES - MIB, 100 * KIB)
    assert ahead.must_prefetch(SIZE_BYTES - MIB, SIZE_BYTES)
    ahead.prefetch(fd, SIZE_BYTES - MIB + 100 * KIB, 100 * KIB)
    assert not ahead.must_prefetch(SIZE_BYTES - MIB, SIZE_BYTES)
    assert not ahead.must_prefetch(SIZE_BYTES, SIZE_BYTES + 1), "what is appended next is in memory"


def test_the_loop_reads_alone_after_many_bytes_without_disk_reads(fd: int) -> None:
    ahead = ReadAhead()
    at = prefetches = 0
    while prefetches == 0 or ahead.must_prefetch(at, at + KIB):
        ahead.prefetch(fd, at, MIB)
        prefetches += 1
        at = MIB + (prefetches - 1) * PREFETCHED_BYTES
    assert at >= WARM_BYTES
    assert prefetches <= WARM_BYTES // PREFETCHED_BYTES + 2


def test_readers_at_several_positions_of_one_file_are_tracked_separately(fd: int) -> None:
    ahead = ReadAhead()
    places = [at * 2 * MARKED_BYTES for at in range(READERS_MAX + 1)]
    for place in places:
        ahead.prefetch(fd, place, MIB)
    first, *rest = places
    assert all(ahead.must_prefetch(place, place + MIB + 1) for place in rest)
    assert not any(ahead.must_prefetch(place, place + MIB) for place in rest)
    assert not ahead.must_prefetch(first, first + MIB + 1), "one too many: the kernel reads ahead for it"


def test_without_a_free_descriptor_the_readers_descriptor_is_used(
    path: Path, fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", none_left)
    ahead = ReadAhead()
    ahead.prefetch(fd, 0, MIB)
    monkeypatch.undo()
    assert not ahead.must_prefetch(0, MIB)
    assert os.fstat(fd).st_size == SIZE_BYTES, "still open"


def test_a_sequential_reader_uses_one_descriptor(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    really_open = os.open

    def counted(*arguments: Any) -> int:
        opened.append(really_open(*arguments))
        return opened[-1]

    monkeypatch.setattr(os, "open", counted)
    ahead = ReadAhead()
    for at in range(0, WARM_BYTES, PREFETCHED_BYTES):
        ahead.prefetch(fd, at, PREFETCHED_BYTES)
    assert len(opened) == 1, "for each the kernel begins to read ahead with small pieces"
    ahead.clear()


def test_no_descriptor_stays_open_without_a_sequential_reader(fd: int) -> None:
    before = open_descriptors(fd)
    ahead = ReadAhead()
    ahead.prefetch(fd, 0, MIB)
    ahead.clear()
    assert open_descriptors(fd) == before
    ahead.prefetch(fd, SIZE_BYTES - MIB, 100 * KIB)
    assert open_descriptors(fd) == before + 1
    ahead.prefetch(fd, SIZE_BYTES - MIB + 100 * KIB, MIB)
    assert open_descriptors(fd) == before, "at the end of the file"


def test_concurrent_prefetches_use_a_descriptor_each(fd: int) -> None:
    before = open_descriptors(fd)
    ahead = ReadAhead()
    with ThreadPoolExecutor(4) as threads:
        places = [place * 2 * MARKED_BYTES + at for place in range(5) for at in range(0, MARKED_BYTES, MIB)]
        list(threads.map(lambda at: ahead.prefetch(fd, at, MIB), places))
    assert open_descriptors(fd) <= before + 4
    ahead.clear()
    assert open_descriptors(fd) == before


def test_a_reopened_file_starts_without_read_ahead_state(path: Path) -> None:
    file = SegmentFile(str(path), path.parent, OpenFiles())
    file.read_ahead.prefetch(file.open(), 0, MIB)
    assert file.read_ahead.must_prefetch(0, MIB + 1)
    file.close()
    assert not file.read_ahead.must_prefetch(0, MIB + 1)
