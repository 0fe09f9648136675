"""Redis, PostgreSQL and ZooKeeper killed while an instance is flooded: its limit is never exceeded, and reached again
without help (CKA-20 ff).
"""

from __future__ import annotations

import secrets
from typing import Any

import psutil
import pytest

from benchmarks import flood
from benchmarks.hot_partition import peak_bytes_per_s
from brokers.engine.protocol.errors import ErrorCode
from tests.testkit.stack import Stack
from tests.testkit.tenancy import addresses, demo_tenant
from tests.testkit.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

BOUGHT_MB_S = 10
BOUGHT_BYTES_PER_S = BOUGHT_MB_S * 1_000_000
# In the command line of each service's process.
SERVICES = ("valkey-server", "postgres", "ZooKeeperServerMain")
NEARLY_ALL = 0.9
# Of what was bought, over any ten seconds.
SHARE_MAX = 1.02
RETURN_S = 60
FLOOD_S = 4 * RETURN_S
LAST_S = 10
RETRIABLE = {str(int(code)) for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT)}


def test_services_are_killed_under_load_and_bandwidth_is_neither_lost_nor_without_limit(stack: Stack) -> None:
    caller = demo_tenant(stack)
    instance = caller.instance(f"services-killed-{secrets.token_hex(2)}", bandwidth_mb_s=BOUGHT_MB_S, storage_gb=10)
    caller.topic(instance["id"], "hot", 3, replication_factor=1)

    def nearly_all_is_had() -> bool:
        """False while the control plane does not answer."""
        try:
            status, found = caller.call("GET", f"/instances/{instance['id']}/throughput")
        except OSError:
            return False
        return status == 200 and found["in_use"]["produce_bytes_per_s"] >= NEARLY_ALL * BOUGHT_BYTES_PER_S

    load = flood.begin(
        addresses(instance)[0], "produce", "killed", seconds=FLOOD_S, topic="hot", batch_bytes=50_000, clients=4,
        move_interval_s=FLOOD_S,
    )  # fmt: skip
    try:
        eventually(nearly_all_is_had, within_s=RETURN_S, what="one hot partition has what was bought")
        for service in SERVICES:
            (victim,) = processes(stack, service)
            victim.kill()
            eventually(
                lambda service=service, victim=victim: victim not in processes(stack, service) != [],
                within_s=RETURN_S,
                what=f"{service} is started again",
            )
            eventually(nearly_all_is_had, within_s=RETURN_S, what=f"all of the bandwidth again, after {service}")
    except BaseException:
        load.kill()
        raise
    result: dict[str, Any] = flood.finish(load, after_s=LAST_S)
    over_s = len(result["slots"]) * flood.SLOT_MS / 1_000
    assert peak_bytes_per_s(result["slots"]) <= SHARE_MAX * BOUGHT_BYTES_PER_S
    assert flood.per_s(result, over_s - LAST_S, over_s) >= NEARLY_ALL * BOUGHT_BYTES_PER_S
    # Without ZooKeeper a leader cannot know that it still is one; a client tries again.
    assert set(result["errors"]) <= RETRIABLE
    caller.call("DELETE", f"/instances/{instance['id']}")


def processes(stack: Stack, word: str) -> list[psutil.Process]:
    """Returns the topmost processes of the product with this word in their command line."""
    assert stack.process is not None
    found = [child for child in psutil.Process(stack.process.pid).children(recursive=True) if _has(child, word)]
    return [child for child in found if child.parent() not in found]


def _has(process: psutil.Process, word: str) -> bool:
    try:
        return any(word in argument for argument in process.cmdline())
    except psutil.Error:
        return False
