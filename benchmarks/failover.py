"""Duration of a failover: three real brokers, replication factor 3, one of them killed with SIGKILL.

    python -m benchmarks.failover [--partitions 1000,3000] [--session-timeout-ms 6000] [--victim controller|other]

Two periods are measured. The first, from the kill to the end of the broker's session, is ZooKeeper's and set by the
session timeout. The second, until every partition that the broker led has another leader in ZooKeeper (`written`) and
the remaining brokers lead all of them (`seen`), is ours. Further figures are the CPU time of the broker that is
controller afterwards, and the memory of each broker.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from benchmarks import environment
from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument
from tests.testkit.engine import BrokerProcess, EngineCluster, TestInstance, eventually
from tests.testkit.own_zookeeper import own_zookeeper

BROKERS: Final = 3
PARTITIONS_PER_TOPIC: Final = 100
TOPICS_AT_ONCE: Final = 5
TIMEOUT_S: Final = 300.0
POLL_INTERVAL_S: Final = 0.005


def create_topics(instance: TestInstance, count: int) -> list[str]:
    """Creates topics of `PARTITIONS_PER_TOPIC` partitions; returns their internal names."""
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    names = [f"bench-{number}" for number in range(count)]
    for start in range(0, count, TOPICS_AT_ONCE):
        made = admin.create_topics(
            [NewTopic(name, PARTITIONS_PER_TOPIC, BROKERS) for name in names[start : start + TOPICS_AT_ONCE]],
            operation_timeout=60,
            request_timeout=90,
        )
        for future in made.values():
            future.result(90)
    return [f"{instance.id}.{name}" for name in names]


def states(client: KazooClient, topics: list[str]) -> list[tuple[PartitionStateDocument, float]]:
    """Returns every partition state with the time of its last write in seconds since the epoch."""
    requests = [
        client.get_async(paths.partition_state(topic, index))
        for topic in topics
        for index in range(PARTITIONS_PER_TOPIC)
    ]
    answers = [request.get() for request in requests]
    return [(PartitionStateDocument.from_json(data), stat.mtime / 1000) for data, stat in answers]


def leaders_of(broker: BrokerProcess) -> int:
    """Returns the number of partitions that a broker leads."""
    return int(broker.admin("/v1/status")["leaders"])


def wait_for_session_end(client: KazooClient, broker_id: int, killed_s: float) -> Future[float]:
    """Returns a future of the wall-clock time in seconds at which the broker's registration disappears."""
    session_ended: Future[float] = Future()

    def on_change(_event: object) -> None:
        session_ended.set_result(time.time())

    if client.exists(paths.broker(broker_id), watch=on_change) is None:
        raise SystemExit(f"broker {broker_id} was not registered {time.time() - killed_s:.1f} s after the kill")
    return session_ended


def measure(cluster: EngineCluster, topics: list[str], victim: BrokerProcess) -> dict[str, Any]:
    """Kills the broker and measures one failover."""
    client = cluster.zookeeper
    survivors = [broker for broker in cluster.brokers if broker is not victim]
    led_before = sum(state.leader == victim.settings.broker_id for state, _ in states(client, topics))
    leaders_by_broker = {broker.settings.broker_id: leaders_of(broker) for broker in survivors}
    processes = {broker.settings.broker_id: psutil.Process(broker.pid) for broker in survivors}
    cpu_s = {id: sum(process.cpu_times()[:2]) for id, process in processes.items()}
    expected_leaders = sum(leaders_by_broker.values()) + led_before
    session_ended = wait_for_session_end(client, victim.settings.broker_id, time.time())
    killed_s = time.time()
    victim.kill()
    try:
        ended_s = session_ended.result(TIMEOUT_S)
    except TimeoutError:
        raise SystemExit("the session never ended") from None
    while sum(leaders_of(broker) for broker in survivors) < expected_leaders:
        if time.time() > ended_s + TIMEOUT_S:
            raise SystemExit("not everything is led again")
        threading.Event().wait(POLL_INTERVAL_S)
    led_again_s = time.time()
    controller = int(survivors[0].admin("/v1/status")["controller_id"])
    used_s = {id: sum(process.cpu_times()[:2]) - cpu_s[id] for id, process in processes.items()}
    states_after = states(client, topics)
    assert all(state.leader in leaders_by_broker for state, _ in states_after)
    return {
        "led_by_the_dead": led_before,
        "session_ended_after_s": round(ended_s - killed_s, 2),
        "written_after_ms": round((max(written_s for _, written_s in states_after) - ended_s) * 1000),
        "seen_after_ms": round((led_again_s - ended_s) * 1000),
        "unavailable_s": round(led_again_s - killed_s, 2),
        "controller_cpu_ms": round(used_s[controller] * 1000),
        "other_cpu_ms": round(max(broker_used_s for id, broker_used_s in used_s.items() if id != controller) * 1000),
        "rss_mb": [round(process.memory_info().rss / 1e6) for process in processes.values()],
    }


def run(zookeeper: str, directory: Path, partitions: int, args: argparse.Namespace) -> None:
    """Creates the topics, and measures one failover of each kind of victim."""
    with EngineCluster(zookeeper, directory, size=BROKERS, session_timeout_ms=args.session_timeout_ms) as cluster:
        instance = cluster.create_instance("ins-bench000")
        started_s = time.monotonic()
        topics = create_topics(instance, partitions // PARTITIONS_PER_TOPIC)
        eventually(
            lambda: all(len(state.isr) == BROKERS for state, _ in states(cluster.zookeeper, topics)),
            "everything is in sync",
            TIMEOUT_S,
        )
        created_s = time.monotonic() - started_s
        for role in args.victim.split(","):
            controller = int(cluster.brokers[0].admin("/v1/status")["controller_id"])
            others = [broker for broker in cluster.brokers if broker.settings.broker_id != controller]
            victim = cluster.brokers[controller - 1] if role == "controller" else others[0]
            figures = measure(cluster, topics, victim)
            print(
                json.dumps(
                    {
                        "benchmark": "death of a broker",
                        "victim": role,
                        "partitions": partitions,
                        "created_s": round(created_s, 1),
                        **figures,
                        "returned_s": round(come_back(cluster, topics, victim), 2),
                    }
                ),
                flush=True,
            )


def come_back(cluster: EngineCluster, topics: list[str], victim: BrokerProcess) -> float:
    """Starts the broker again; returns the seconds until it is in sync in every partition."""
    started_s = time.monotonic()
    victim.start()
    victim.wait_until_ready()
    eventually(
        lambda: all(len(state.isr) == BROKERS for state, _ in states(cluster.zookeeper, topics)),
        "everything is in sync again",
        TIMEOUT_S,
    )
    return time.monotonic() - started_s


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks.failover", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", default="1000,3000")
    parser.add_argument("--session-timeout-ms", type=int, default=6_000)
    parser.add_argument("--victim", default="other,controller", help="one after the other")
    args = parser.parse_args()
    print(environment.line())
    with tempfile.TemporaryDirectory(prefix="failover-") as scratch:
        home = Path(scratch)
        with own_zookeeper(home) as server:
            for partitions in (int(count) for count in args.partitions.split(",")):
                run(server.address, home / f"brokers-{partitions}", partitions, args)


if __name__ == "__main__":
    main()
