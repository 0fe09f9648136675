"""Cost of committed offsets: loading a group with many of them, committing one by one, and fetching all.

    python -m benchmarks.group_load [--partitions 100000] [--commits 20000] [--directory D]

The load is that of a coordinator that becomes leader of a partition of the offsets topic: read from the page cache,
parsed and replayed as in the broker, by the loop of one process. Commits are decided, appended and replayed one after
the other, without a socket and without followers.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from brokers.engine.assembly.state_log import PartitionLog
from brokers.engine.clock import StallDetector, SystemClock
from brokers.engine.coordinators.groups.machine import GroupMachine
from brokers.engine.coordinators.groups.offsets import Commit
from brokers.engine.coordinators.result import REPLY_PENDING, Now, Ticket
from brokers.engine.coordinators.runtime import Runtime
from brokers.engine.coordinators.settings import GROUPS_TOPIC, GroupSettings
from brokers.engine.handlers.offsets import offsets
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.codec import encode_response_in_pieces
from brokers.engine.protocol.messages.offsets import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

GROUP: Final = "ins-aaaaaaaa.a-group-with-many-partitions"
PARTITIONS_PER_TOPIC: Final = 1_000
# Offsets in one commit of a consumer of many partitions.
COMMITS_PER_BATCH: Final = 1_000
NEVER_MS: Final = 1 << 62
FETCH_VERSION: Final = 7


class Bench:
    """One led partition of the offsets topic, and its current coordinator, to which it is also the event loop."""

    def __init__(self, directory: Path) -> None:
        self.clock = SystemClock()
        self.table = PartitionTable(StorageSettings(roots=(directory,), broker_id=1, cluster_id="benchmark"))
        self.table.recover(self.clock.now_ms())
        config = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
        partition = self.table.become_leader(GROUPS_TOPIC, 0, bytes(16), 0, config, now_ms=self.clock.now_ms())
        services: Any = SimpleNamespace(
            storage=SimpleNamespace(stall_detector=StallDetector(self.clock.now_ms(), NEVER_MS)),
            loop=asyncio.get_running_loop(),
            clock=self.clock,
        )
        self.partition = partition
        self.log = PartitionLog(services, partition)
        self.runtime = self.coordinator()

    def coordinator(self) -> Runtime[GroupMachine]:
        """Returns a coordinator that has no groups yet."""
        settings = GroupSettings()
        runtime: Runtime[GroupMachine] = Runtime(
            topic=GROUPS_TOPIC, new_machine=lambda _: GroupMachine(lambda: settings), loop=self, commit_timeout_ms=5_000
        )
        runtime.partitions = 1
        return runtime

    def now(self) -> Now:
        return Now(self.clock.now_ms(), self.clock.monotonic_ms())

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> Any:
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)

    def spawn(self, work: Any) -> Any:
        self.loading = asyncio.get_running_loop().create_task(work)
        return self.loading

    async def load(self) -> GroupMachine:
        """Loads the partition with a new, empty coordinator; returns its group machine."""
        self.runtime.resign(0)
        self.runtime = self.coordinator()
        self.runtime.lead(self.log)
        await self.loading
        (shard,) = self.runtime.shards()
        assert not shard.loading
        return shard.machine

    def perform(self, operation: Callable[[GroupMachine, Now, Ticket], Any]) -> Any:
        """Performs an operation on the group and returns its reply."""
        reply = self.runtime.perform(GROUP, operation, Ticket(lambda code: code, lambda _: None))
        assert reply is not REPLY_PENDING, "no followers: a record is committed once it is appended"
        return reply

    def commit(self, commits: list[Commit]) -> None:
        codes = self.perform(lambda machine, now, _: machine.offsets.commit(now, GROUP, -1, "", None, commits))
        assert not any(codes), codes


def commits_of(start: int, count: int, offset: int) -> list[Commit]:
    return [
        Commit(
            f"ins-aaaaaaaa.topic-{index // PARTITIONS_PER_TOPIC}", index % PARTITIONS_PER_TOPIC, offset, 7, "metadata"
        )
        for index in range(start, start + count)
    ]


def rss_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def measure(directory: Path, partitions: int, commits: int) -> None:
    bench = Bench(directory)
    await bench.load()
    before_mb = rss_mb()
    started_s, cpu_started_s = time.perf_counter(), time.process_time()
    for start in range(0, partitions, COMMITS_PER_BATCH):
        bench.commit(commits_of(start, min(COMMITS_PER_BATCH, partitions - start), start))
    took_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_started_s
    print(f"commit   {partitions} partitions in batches of {COMMITS_PER_BATCH}: {took_s:.2f} s, {cpu_s:.2f} CPU-s")

    memory_mb = rss_mb() - before_mb
    machine = await _timed_load(bench)
    assert len(machine.offsets) == partitions
    print(f"memory   {memory_mb:.0f} MB at most while {partitions} were committed")

    one_partition = commits_of(0, 1, 5)
    started_s, cpu_started_s = time.perf_counter(), time.process_time()
    for _ in range(commits):
        bench.commit(one_partition)
    took_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_started_s
    print(f"commit   one partition, {commits} times: {commits / took_s:.0f}/s, {cpu_s / commits * 1e6:.1f} us CPU each")

    _timed_fetch(bench)
    await _timed_load(bench)
    bench.runtime.resign(0)
    bench.table.close()


def _timed_fetch(bench: Bench) -> None:
    """Fetches all offsets at once, as the broker does, and prints the CPU time of each part between two turns of the
    loop.
    """
    took_ms: list[float] = []
    started_s = time.process_time()

    def turn() -> None:
        nonlocal started_s
        now_s = time.process_time()
        took_ms.append((now_s - started_s) * 1000)
        started_s = now_s

    result = bench.perform(lambda machine, _now, _: machine.offsets.fetch(GROUP, None, require_stable=True))
    turn()
    topics = [
        OffsetFetchResponseTopic(name=name, partitions=offsets.lazy_partitions(OffsetFetchResponsePartition, lines))
        for name, lines in result
    ]
    response = OffsetFetchResponse(topics=topics, groups=[])
    for _ in encode_response_in_pieces(ApiKey.OFFSET_FETCH, FETCH_VERSION, response):
        turn()
    print(
        f"fetch    all {offsets.response_length(response)} at once: {sum(took_ms):.0f} CPU-ms; {took_ms[0]:.0f} ms "
        f"until they are taken, then {len(took_ms) - 1} turns of {max(took_ms[1:]):.1f} ms at most"
    )


async def _timed_load(bench: Bench) -> GroupMachine:
    records = bench.partition.log_end_offset
    started_s, cpu_started_s = time.perf_counter(), time.process_time()
    longest_turn = asyncio.get_running_loop().create_task(_longest_turn_ms())
    machine = await bench.load()
    took_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_started_s
    longest_turn.cancel()
    longest_ms = await longest_turn
    print(
        f"load     {records} records, {bench.partition.size_bytes / 1e6:.1f} MB: {took_s:.2f} s, {cpu_s:.2f} CPU-s, "
        f"in turns of at most {longest_ms:.0f} CPU-ms"
    )
    return machine


async def _longest_turn_ms() -> float:
    """Returns the longest CPU time, in milliseconds, for which the loop was blocked until this task is cancelled."""
    longest_s, turn_began_s = 0.0, time.process_time()
    try:
        while True:
            await asyncio.sleep(0)
            now_s = time.process_time()
            longest_s, turn_began_s = max(longest_s, now_s - turn_began_s), now_s
    except asyncio.CancelledError:
        return longest_s * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--commits", type=int, default=20_000)
    parser.add_argument("--directory", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        asyncio.run(measure(Path(directory), args.partitions, args.commits))


if __name__ == "__main__":
    main()
