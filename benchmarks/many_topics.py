"""Cost of creating many topics in one instance: three real brokers with three replicas.

    python -m benchmarks.many_topics [--topics 10000] [--topics-per-request 200]

One admin client creates topics of one partition, request after request. A line for each thousand has the seconds, the
CPU time of each broker for each topic, and the topics that were refused. The last lines are the time of a request for
the metadata of all topics, and the longest turn of an event loop.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.__main__ import print_figures
from config.embedded.java import find_java
from tests.testkit.administering import let_everybody_administer
from tests.testkit.engine import EngineCluster
from tests.testkit.own_zookeeper import own_zookeeper

BROKERS: Final = 3
TOPICS_PER_LINE: Final = 1_000
METADATA_REQUESTS: Final = 5
TIMEOUT_S: Final = 120
UNLIMITED_BPS: Final = 10**9


def cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def create_topics(admin: AdminClient, names: list[str]) -> Counter[str]:
    """Creates the topics in one request. Returns the number of refusals by error."""
    refusals_by_error: Counter[str] = Counter()
    for future in admin.create_topics([NewTopic(name, 1, BROKERS) for name in names]).values():
        try:
            future.result(TIMEOUT_S)
        except KafkaException as error:
            refusals_by_error[error.args[0].name()] += 1
    return refusals_by_error


def measure(cluster: EngineCluster, topics: int, per_request: int) -> Iterator[dict[str, Any]]:
    instance = cluster.create_instance("ins-aaaaaaaa", produce_bps=UNLIMITED_BPS, consume_bps=UNLIMITED_BPS)
    let_everybody_administer(cluster, instance)
    instance = cluster.update_instance(instance, partitions_max=2 * topics)
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    pids = [broker.pid for broker in cluster.brokers]
    for first in range(0, topics, TOPICS_PER_LINE):
        last = min(first + TOPICS_PER_LINE, topics)
        began_s, before_s, refusals_by_error = time.monotonic(), [cpu_s(pid) for pid in pids], Counter[str]()
        for number in range(first, last, per_request):
            refusals_by_error += create_topics(
                admin,
                [f"team.topic-{topic_number:05}" for topic_number in range(number, min(number + per_request, last))],
            )
        used_s = [cpu_s(pid) - cpu_before_s for pid, cpu_before_s in zip(pids, before_s, strict=True)]
        yield {
            "topics": last,
            "seconds": round(time.monotonic() - began_s, 1),
            "cpu_ms_per_topic": [round(used_by_broker_s * 1e3 / (last - first), 1) for used_by_broker_s in used_s],
            "refused": dict(refusals_by_error),
        }
    took_ms = []
    for _ in range(METADATA_REQUESTS):
        began_s = time.monotonic()
        admin.list_topics(timeout=TIMEOUT_S)
        took_ms.append((time.monotonic() - began_s) * 1e3)
    yield {"metadata_of_all_ms": round(min(took_ms), 1)}
    turns = [broker.admin("/v1/status")["loop_turns"] for broker in cluster.brokers]
    yield {"longest_turns_ms": {str(counters["longest_of"]): counters["longest_ms"] for counters in turns}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--topics-per-request", type=int, default=200)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        with (
            own_zookeeper(home, find_java(home / "java")) as server,
            EngineCluster(server.address, home, size=BROKERS) as cluster,
        ):
            for line in measure(cluster, args.topics, args.topics_per_request):
                print_figures(line)


if __name__ == "__main__":
    main()
