"""Checks of the page cache, with files that were evicted from it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from brokers.engine import page_cache
from tests.testkit.uncached import ATTEMPTS, becomes_uncached, evict

MIB = 1 << 20
CONTENT = os.urandom(8192) * 1024


@pytest.fixture
def path(disk_path: Path) -> Path:
    result = disk_path / "segment.log"
    result.write_bytes(CONTENT)
    return result


@pytest.fixture
def fd(path: Path) -> Iterator[int]:
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


def test_evicted_pages_are_cached_again_once_they_are_read(path: Path, fd: int) -> None:
    assert page_cache.is_cached(fd, 0, len(CONTENT))
    evict(path)

    assert becomes_uncached(path, lambda: not page_cache.is_cached(fd, MIB, 100))
    assert becomes_uncached(path, lambda: page_cache.read_cached(fd, 100, MIB) is None)
    page_cache.read_into_cache(fd, MIB, MIB)

    assert page_cache.is_cached(fd, MIB, MIB)
    assert page_cache.read_cached(fd, 100_000, MIB + 5) == CONTENT[MIB + 5 : MIB + 100_005]


def test_a_hole_in_what_is_cached_is_seen(path: Path, fd: int) -> None:
    evict(path)

    def has_hole(ask: Callable[[], bool]) -> bool:
        for _ in range(ATTEMPTS):
            assert path.read_bytes() == CONTENT
            assert page_cache.is_cached(fd, 0, 8 * MIB)
            os.posix_fadvise(fd, 2 * MIB, 4 * MIB, os.POSIX_FADV_DONTNEED)
            if ask():
                return True
        return False

    assert has_hole(lambda: not page_cache.is_cached(fd, 0, 8 * MIB))
    assert has_hole(lambda: page_cache.read_cached(fd, 3 * MIB, MIB) is None)
    assert has_hole(lambda: page_cache.is_cached(fd, 0, 2 * MIB) and page_cache.is_cached(fd, 6 * MIB, 2 * MIB))


def test_the_end_of_a_file_is_no_reason_to_wait(fd: int) -> None:
    size = len(CONTENT)
    assert page_cache.read_cached(fd, 100, size - 10) == CONTENT[-10:]
    assert page_cache.read_cached(fd, 100, size) == b""
    page_cache.read_into_cache(fd, size - 10, 100)
    assert page_cache.is_cached(fd, size, 1)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_where_nobody_can_tell_everything_counts_as_cached(
    fd: int, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "preadv", refuse)

    assert page_cache.is_cached(fd, 0, 4 * MIB)
    assert page_cache.read_cached(fd, 100, 7) == CONTENT[7:107]


def test_a_file_that_cannot_be_read_says_so_when_it_is_read(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert page_cache.is_cached(fd, 0, 10)
        with pytest.raises(OSError, match=os.strerror(errno.EISDIR)):
            page_cache.read_cached(fd, 10, 0)
        with pytest.raises(OSError):
            page_cache.read_into_cache(fd, 0, 10)
    finally:
        os.close(fd)
