"""Cost of reading committed offsets: OffsetFetch on three real brokers with three replicas, beside OffsetCommit.

    python -m benchmarks.positions [--clients 1,16] [--seconds 5] [--groups 50]

Each client has a connection of its own to its group's coordinator and sends the next request on each response. The
clients share one process, which shares the cores with the brokers: times are an upper bound. CPU is that of all
brokers.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import environment
from benchmarks.groups import coordinators
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from tests.testkit.engine import EngineCluster
from tests.testkit.own_zookeeper import own_zookeeper
from tests.testkit.wire import WireClient

BROKERS: Final = 3
TOPIC: Final = "orders"
RETRIES_MAX: Final = 200


def commit_request(group: str) -> tuple[ApiKey, int, Any]:
    """Returns an OffsetCommit of one partition: call, version and request."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    topics = [OffsetCommitRequestTopic(TOPIC, [partition])]
    return ApiKey.OFFSET_COMMIT, 7, OffsetCommitRequest(group_id=group, topics=topics)


def fetch_request(group: str) -> tuple[ApiKey, int, Any]:
    """Returns an OffsetFetch of one partition: call, version and request."""
    return ApiKey.OFFSET_FETCH, 7, OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(TOPIC, [0])])


def error_of(answer: Any) -> int:
    partition_result = answer.topics[0].partitions[0] if answer.topics else answer
    return int(partition_result.error_code or getattr(answer, "error_code", 0))


async def wait_until_ready(client: WireClient, group: str) -> None:
    """Waits until the group's coordinator accepts a commit."""
    for _ in range(RETRIES_MAX):
        if not error_of(await client.call(*commit_request(group))):
            return
        await asyncio.sleep(0.1)
    raise SystemExit(f"{group} has no coordinator")


async def send_repeatedly(
    client: WireClient, request: tuple[ApiKey, int, Any], until_s: float, took_ms: list[float]
) -> None:
    """Sends the request again on each response until `until_s`; adds the response times to `took_ms`."""
    while (started_s := time.perf_counter()) < until_s:
        answer = await client.call(*request)
        took_ms.append((time.perf_counter() - started_s) * 1_000)
        assert not error_of(answer), answer


async def measure(bootstrap: str, pids: list[int], args: argparse.Namespace) -> None:
    names = [f"g{client_count}" for client_count in range(args.groups)]
    ports = await coordinators(bootstrap, names)
    brokers = [psutil.Process(pid) for pid in pids]
    for client_count in (int(text) for text in args.clients.split(",")):
        clients = [
            (names[index % len(names)], await WireClient.connect(ports[names[index % len(names)]]))
            for index in range(client_count)
        ]
        for group, client in clients:
            await wait_until_ready(client, group)
        for name, build_request in (("commit", commit_request), ("fetch", fetch_request)):
            took_ms: list[float] = []
            cpu_s = _cpu_s(brokers)
            until_s = time.perf_counter() + args.seconds
            await asyncio.gather(
                *(send_repeatedly(client, build_request(group), until_s, took_ms) for group, client in clients)
            )
            took_ms.sort()
            p50, p99 = (took_ms[int(len(took_ms) * share)] for share in (0.5, 0.99))
            cpu_us = (_cpu_s(brokers) - cpu_s) * 1e6 / len(took_ms)
            print(
                f"{client_count:3} clients, {name:6}: p50 {p50:6.2f} ms, p99 {p99:6.2f} ms, "
                f"{len(took_ms) / args.seconds:6.0f} a second, {cpu_us:5.0f} us of the brokers each",
                flush=True,
            )
        for _, client in clients:
            await client.close()


def _cpu_s(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", default="1,16")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--groups", type=int, default=50)
    args = parser.parse_args()
    print(environment.line())
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        home = Path(scratch)
        with (
            own_zookeeper(home) as zookeeper,
            EngineCluster(zookeeper.address, home / "brokers", size=BROKERS) as cluster,
        ):
            instance = cluster.create_instance("ins-bench000")
            admin = AdminClient({"bootstrap.servers": instance.bootstrap})
            admin.create_topics([NewTopic(TOPIC, 1, BROKERS)])[TOPIC].result(60)
            pids = [broker.pid for broker in cluster.brokers]
            asyncio.run(measure(instance.bootstrap.split(",")[0], pids, args))


if __name__ == "__main__":
    main()
