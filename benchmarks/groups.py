"""Cost of many consumer groups: three real brokers, 1,000 groups of three members, a heartbeat every three seconds.

    python -m benchmarks.groups [--groups 1000] [--members 3] [--seconds 30] [--peer HOST:PORT --peer-pids 1,2,3]

Each member has a connection of its own, joins as clients do (refused once, with an id), and sends heartbeats on its own
schedule. All members run in this process, which shares the cores with the brokers: times are an upper bound. CPU and
memory are the brokers'. With `--peer` the same members then join another Kafka, which must not require authentication.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks import environment
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.testkit.engine import EngineCluster
from tests.testkit.own_zookeeper import own_zookeeper
from tests.testkit.wire import WireClient

BROKERS: Final = 3
HEARTBEAT_INTERVAL_S: Final = 3.0
SESSION_MS: Final = 30_000
REBALANCE_MS: Final = 60_000
FORMED_S_MAX: Final = 180.0
# More simultaneous connects overflow the accept queue of the listening socket.
CONNECTING_MAX: Final = 100
KEYS_PER_REQUEST: Final = 200
OVERRIDES: Final = {"group.initial.rebalance.delay.ms": "3000", "offsets.topic.num.partitions": "50"}
_METADATA: Final = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"
_ASSIGNMENT: Final = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"
# A new coordinator learns of its partition slightly later than the broker that names it.
_RETRIABLE_ERRORS: Final = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class Member:
    """A consumer without records. `heartbeats_ms` are the round-trip times of its heartbeats."""

    def __init__(self, group: str, number: int, port: int) -> None:
        self.group = group
        self.number = number
        self.port = port
        self.member_id = ""
        self.generation = -1
        self.heartbeats_ms: list[float] = []
        self.rejoin_count = 0

    async def connect_and_join(self, connecting: asyncio.Semaphore) -> None:
        """Connects to the coordinator and joins the group."""
        async with connecting:
            self.client = await WireClient.connect(self.port, f"member-{self.number}")
        await self.join()

    async def join(self) -> None:
        """Joins the group until the member has an assignment."""
        while True:
            protocol = JoinGroupRequestProtocol(name="range", metadata=_METADATA)
            response = await self.client.call(
                ApiKey.JOIN_GROUP,
                9,
                JoinGroupRequest(
                    group_id=self.group,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=REBALANCE_MS,
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocols=[protocol],
                ),
            )
            self.member_id = response.member_id or self.member_id
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED or response.error_code in _RETRIABLE_ERRORS:
                continue
            if response.error_code:
                raise SystemExit(f"a join was answered with error {response.error_code}")
            self.generation = response.generation_id
            if await self._sync([member.member_id for member in response.members]):
                return

    async def _sync(self, members: Sequence[str]) -> bool:
        response = await self.client.call(
            ApiKey.SYNC_GROUP,
            5,
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    SyncGroupRequestAssignment(member_id=member_id, assignment=_ASSIGNMENT) for member_id in members
                ],
            ),
        )
        if response.error_code and response.error_code not in _RETRIABLE_ERRORS:
            raise SystemExit(f"a sync was answered with error {response.error_code}")
        return not response.error_code

    async def send_heartbeats(self, delay_s: float, until_s: float) -> None:
        """Sends a heartbeat every `HEARTBEAT_INTERVAL_S`, after `delay_s`, until `until_s` of the loop's clock."""
        loop = asyncio.get_running_loop()
        next_s = loop.time() + delay_s
        while next_s < until_s:
            await asyncio.sleep(next_s - loop.time())
            next_s += HEARTBEAT_INTERVAL_S
            started_s = time.perf_counter()
            response = await self.client.call(
                ApiKey.HEARTBEAT,
                4,
                HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id),
            )
            self.heartbeats_ms.append((time.perf_counter() - started_s) * 1000)
            if response.error_code:
                self.rejoin_count += 1
                await self.join()


async def coordinators(bootstrap: str, groups: Sequence[str]) -> dict[str, int]:
    """Returns the port of each group's coordinator."""
    client = await WireClient.connect(int(bootstrap.rpartition(":")[2]))
    ports_by_group: dict[str, int] = {}
    async with asyncio.timeout(FORMED_S_MAX):
        while missing := [group for group in groups if group not in ports_by_group][:KEYS_PER_REQUEST]:
            response = await client.call(
                ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(key="", key_type=0, coordinator_keys=missing)
            )
            ports_by_group |= {
                coordinator.key: coordinator.port for coordinator in response.coordinators if not coordinator.error_code
            }
    await client.close()
    return ports_by_group


async def measure(target: str, bootstrap: str, pids: Sequence[int], args: argparse.Namespace) -> dict[str, Any]:
    processes = [psutil.Process(pid) for pid in pids]
    names = [f"group-{number:05d}" for number in range(args.groups)]
    ports = await coordinators(bootstrap, names)
    rss_mb = [process.memory_info().rss / 1e6 for process in processes]
    members = [Member(name, number, ports[name]) for name in names for number in range(args.members)]
    cpu_s, started_s = _cpu_s(processes), time.monotonic()
    connecting = asyncio.Semaphore(CONNECTING_MAX)
    async with asyncio.timeout(FORMED_S_MAX):
        await asyncio.gather(*(member.connect_and_join(connecting) for member in members))
    formed_s, formed_cpu_s = time.monotonic() - started_s, _cpu_s(processes) - cpu_s
    cpu_s = _cpu_s(processes)
    until_s = asyncio.get_running_loop().time() + args.seconds
    await asyncio.gather(
        *(
            member.send_heartbeats(HEARTBEAT_INTERVAL_S * at / len(members), until_s)
            for at, member in enumerate(members)
        )
    )
    beating_cpu_s = _cpu_s(processes) - cpu_s
    heartbeats_ms = sorted(heartbeat_ms for member in members for heartbeat_ms in member.heartbeats_ms)
    figures = {
        "benchmark": "consumer groups",
        "target": target,
        "groups": args.groups,
        "members": len(members),
        "formed_s": round(formed_s, 2),
        "formed_cpu_s": round(formed_cpu_s, 2),
        "heartbeats": len(heartbeats_ms),
        "heartbeat_p50_ms": round(heartbeats_ms[len(heartbeats_ms) // 2], 2),
        "heartbeat_p99_ms": round(heartbeats_ms[len(heartbeats_ms) * 99 // 100], 2),
        "rejoined": sum(member.rejoin_count for member in members),
        "cpu_us_per_heartbeat": round(beating_cpu_s / len(heartbeats_ms) * 1e6, 1),
        "cpu_share_of_a_core": round(beating_cpu_s / args.seconds, 3),
        "rss_mb": [round(process.memory_info().rss / 1e6) for process in processes],
        "rss_mb_before": [round(size) for size in rss_mb],
    }
    for member in members:
        await member.client.close()
    return figures


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    return float(sum(sum(process.cpu_times()[:2]) for process in processes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--members", type=int, default=3, help="of each group")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long heartbeats are counted")
    parser.add_argument("--peer", help="bootstrap server of another Kafka")
    parser.add_argument("--peer-pids", default="", help="its brokers' processes")
    args = parser.parse_args()
    _, descriptors_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors_max, descriptors_max))
    print(environment.line())
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch:
        home = Path(scratch)
        with (
            own_zookeeper(home) as zookeeper,
            EngineCluster(zookeeper.address, home / "brokers", size=BROKERS, overrides=OVERRIDES) as cluster,
        ):
            instance = cluster.create_instance("ins-bench000")
            pids = [broker.pid for broker in cluster.brokers]
            print(json.dumps(asyncio.run(measure("penstock", instance.bootstrap.split(",")[0], pids, args))))
    if args.peer:
        pids = [int(pid) for pid in args.peer_pids.split(",") if pid]
        print(json.dumps(asyncio.run(measure("peer", args.peer, pids, args))))


if __name__ == "__main__":
    main()
