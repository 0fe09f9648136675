"""Deleted files are removed when due, in a thread, and a disk error is reported (LOG-3, LOG-44)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from brokers.engine.assembly.log_maintenance import LogMaintenance
from brokers.engine.partitions import removals
from brokers.engine.partitions.removals import Removals
from brokers.engine.storage.files import StorageFailed
from tests.unit.brokers.engine.partitions.test_table import NOW_MS, opened, produce


def _files(directory: Path, count: int) -> list[str]:
    paths = [directory / f"{number}.log.deleted" for number in range(count)]
    for path in paths:
        path.write_bytes(b"x")
    return [str(path) for path in paths]


def test_files_and_directories_are_removed_in_the_order_of_their_times(tmp_path: Path) -> None:
    first, second, third = _files(tmp_path, 3)
    topic = tmp_path / "t-0.delete"
    topic.mkdir()
    _files(topic, 2)
    waiting = Removals(lambda _: None)
    waiting.add([third], tmp_path, 30)
    waiting.add([first, second, str(topic), str(tmp_path / "gone already")], tmp_path, 20)
    assert waiting.pop_due(19) is None
    batch = waiting.pop_due(20)
    assert batch is not None
    assert len(list(tmp_path.iterdir())) == 4, "not before it is run"
    batch.run()
    batch.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["2.log.deleted"]
    assert waiting.pop_due(29) is None
    assert waiting.pop_due(30) is not None


def test_a_clock_that_is_set_back_delays_nothing(tmp_path: Path) -> None:
    """Neither removals nor retention: a delay of a day would fill the disk."""
    day_ms = 86_400_000
    waiting = Removals(lambda _: None)
    waiting.add(_files(tmp_path, 1), tmp_path, day_ms + 60)
    assert waiting.pop_due(day_ms) is None
    assert waiting.pop_due(1) is None
    assert waiting.pop_due(60) is None
    assert waiting.pop_due(61) is not None

    table = opened(tmp_path / "root")
    partition = table.become_leader("t", 0, b"1" * 16, 0, {"retention.bytes": "0"}, now_ms=NOW_MS)
    table.maintain(NOW_MS + day_ms)
    produce(table, "t", 0, times=3)
    table.maintain(NOW_MS + day_ms + 1)
    assert partition.log_start_offset == 0
    table.maintain(NOW_MS)
    assert partition.log_start_offset == 3
    table.close()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_only_the_link_of_a_linked_partition_is_removed(tmp_path: Path, is_restarted: bool) -> None:
    """LOG-47: an operator may move a large partition to another disk and link to it."""
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    table = opened(root)
    table.become_leader("t", 0, b"1" * 16, 0, {}, now_ms=NOW_MS)
    table.close()
    (root / "t-0").rename(elsewhere)
    (root / "t-0").symlink_to(elsewhere)
    table = opened(root)
    table.become_leader("t", 0, b"1" * 16, 0, {}, now_ms=NOW_MS)
    produce(table, "t", 0)
    table.delete("t", 0, now_ms=NOW_MS)
    if is_restarted:
        table.close()
        table = opened(root)
    else:
        table.maintain(NOW_MS + 60_000)
    assert not table.offline_directories
    assert not [path for path in root.iterdir() if path.name.startswith("t-0")]
    table.close()


def test_a_stopped_batch_leaves_the_remaining_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Removals(lambda _: None)
    waiting.add(_files(tmp_path, 3), tmp_path, 0)
    batch = waiting.pop_due(0)
    assert batch is not None

    def remove_and_stop(path: str, _: Path) -> None:
        Path(path).unlink()
        batch.stop()

    monkeypatch.setattr(removals, "remove", remove_and_stop)
    batch.run()
    assert len(list(tmp_path.iterdir())) == 2


async def test_the_loop_unlinks_nothing_itself_and_learns_of_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = opened(tmp_path)
    table.become_leader("t", 0, b"1" * 16, 0, {}, now_ms=NOW_MS)
    table.delete("t", 0, now_ms=NOW_MS)
    threads: list[int] = []

    def fail(_: str, root: Path) -> None:
        threads.append(threading.get_ident())
        raise StorageFailed(root, OSError(5, "input/output error"))

    monkeypatch.setattr(removals, "remove", fail)
    disks = LogMaintenance(table, lambda: NOW_MS + 600_000, lambda _: None)
    disks.maintain()
    assert threads == []
    await asyncio.wait_for(disks._delete_files(), 10)
    assert threads
    assert threading.get_ident() not in threads
    assert "input/output error" in table.offline_directories[tmp_path]
    table.close()
