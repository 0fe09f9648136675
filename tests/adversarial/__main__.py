"""All attacks on a cluster, with a measured neighbour: `python -m tests.adversarial [--only WORD] [--seconds N]`.

Three brokers with three replicas, or as many as `--brokers` says; a process of the neighbour's produces 100 records a
second with acks=all. Prints a line for each attack: the neighbour's latencies beside those it has alone, its errors,
turns of the brokers' loops over 10 ms, growth of their memory, logs and disks. Ends with 1 where a bound of
docs/explanation/SECURITY.md does not hold; with one broker, a turn over 10 ms is a fault too.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic

from brokers.contract.routes import PLAINTEXT
from config.embedded.java import find_java
from tests.adversarial.attacks import (
    ATTACKS,
    BY_MANY,
    FIVE_TENANTS,
    KINDS_OF_FIVE,
    SMALLEST_BESIDE_LARGEST,
    TOGETHER,
    attacked_security,
)
from tests.adversarial.hostile import TOPIC
from tests.adversarial.neighbour import measured_neighbour
from tests.adversarial.test_coordinators import GROUP, TRANSACTION, wait_for_coordinator
from tests.adversarial.test_long_produces import WIDE
from tests.testkit.administering import let_everybody_administer
from tests.testkit.engine import EngineCluster, TestInstance
from tests.testkit.own_zookeeper import own_zookeeper
from tests.testkit.tls import make_certificate

MB: Final = 1_000_000
BROKERS: Final = 3
BANDWIDTH_BPS: Final = 20 * MB
SMALLEST_BPS, LARGEST_BPS = MB, 1_000 * MB
# Records of the neighbour per second, compared with those that it produces alone.
KEPT_PERCENT_MIN: Final = 95.0
PARTITIONS: Final = 200
NEIGHBOUR_P99_MS_MAX: Final = 20.0
NEIGHBOUR_P99_TIMES_MAX: Final = 1.5
LONG_TURN_MS: Final = 10.0
# Memory for current requests of one instance (32 MiB), or of all instances of a tenant (128 MiB), and 32 MiB more.
RSS_GROWTH_MIB_MAX: Final = 64.0
RSS_GROWTH_BY_TENANT_MIB_MAX: Final = 160.0
LOG_BYTES_PER_MINUTE_MAX: Final = 1_000_000


@dataclass
class Watch:
    """Memory use of brokers; `peak_mib` is the largest growth of any of them."""

    cluster: EngineCluster
    peak_mib: float = 0.0
    stop_event: threading.Event = field(default_factory=threading.Event)

    def statuses(self) -> list[dict[str, Any]]:
        return [broker.admin("/v1/status") for broker in self.cluster.brokers]

    def rss_mib(self) -> list[float]:
        """Returns the resident memory of each broker from the kernel: an attacked broker need not answer."""
        pages = (Path(f"/proc/{broker.pid}/statm").read_text().split()[1] for broker in self.cluster.brokers)
        return [int(count) * 4096 / 2**20 for count in pages]

    def scheduled_s(self) -> tuple[float, float]:
        """Returns seconds that the loops of all brokers ran, and that they were ready but waited for a processor."""
        texts = [Path(f"/proc/{broker.pid}/schedstat").read_text().split() for broker in self.cluster.brokers]
        return sum(int(text[0]) for text in texts) / 1e9, sum(int(text[1]) for text in texts) / 1e9

    def log_bytes(self) -> int:
        return max(broker.log_file.stat().st_size for broker in self.cluster.brokers)

    def record_growth(self, before: list[float]) -> None:
        while not self.stop_event.wait(0.2):
            growths_mib = [now - then for now, then in zip(self.rss_mib(), before, strict=True)]
            self.peak_mib = max(self.peak_mib, *growths_mib)


def create_instance_with_topics(
    cluster: EngineCluster, instance_id: str, topics: dict[str, int], bandwidth_bps: int = BANDWIDTH_BPS
) -> TestInstance:
    instance = cluster.create_instance(instance_id, produce_bps=bandwidth_bps, consume_bps=bandwidth_bps)
    let_everybody_administer(cluster, instance)
    instance = cluster.update_instance(instance, partitions_max=2 * PARTITIONS + 100)
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    settings = {"retention.bytes": str(4 * MB), "segment.bytes": str(MB)}
    replicas = len(cluster.brokers)
    for name, partitions in topics.items():
        for future in admin.create_topics([NewTopic(name, partitions, replicas, config=settings)]).values():
            future.result(60)
    for port in instance.document.ports.values():
        for key_type in (GROUP, TRANSACTION):
            asyncio.run(wait_for_coordinator(port, key_type))
    return instance


def long_turns_by_api(statuses: list[dict[str, Any]]) -> dict[str, int]:
    """Returns the number of turns over 10 ms so far, by API, of all brokers."""
    counts: dict[str, int] = {}
    for status in statuses:
        for api, count in status["loop_turns"]["by_api"].items():
            counts[api] = counts.get(api, 0) + count
    return counts


def instances_of_one_tenant(cluster: EngineCluster) -> list[TestInstance]:
    """Returns several instances of one tenant, with coordinators."""
    instances = []
    for number in range(TOGETHER):
        instance = cluster.create_instance(
            f"ins-dddddd{number:02}", produce_bps=BANDWIDTH_BPS, consume_bps=BANDWIDTH_BPS, tenant_id="ten-hostile"
        )
        for port in instance.document.ports.values():
            asyncio.run(wait_for_coordinator(port, GROUP))
        instances.append(instance)
    return instances


def run_attack(
    name: str, seconds: float, cluster: EngineCluster, hostile: Sequence[TestInstance], neighbour: TestInstance
) -> list[str]:
    """Runs one attack by these instances, and prints its line. Returns the bounds that it violates."""
    with measured_neighbour(neighbour.bootstrap, TOPIC) as figures_alone:
        threading.Event().wait(seconds / 2)
    alone_p99_ms = figures_alone["p99_ms"]
    watch = Watch(cluster)
    rss, log_before, turns_before = watch.rss_mib(), watch.log_bytes(), long_turns_by_api(watch.statuses())
    growth_thread = threading.Thread(target=watch.record_growth, args=(rss,))
    growth_thread.start()
    ran_before_s, waited_before_s = watch.scheduled_s()
    began_s = time.monotonic()
    ports = [str(port) for instance in hostile for port in instance.document.effective_routes[0].ports.values()]
    with measured_neighbour(neighbour.bootstrap, TOPIC) as figures:
        attack_process = subprocess.run(
            [sys.executable, "-m", "tests.adversarial.attacks", name, str(seconds), *ports],
            stdout=subprocess.PIPE,
            text=True,
        )
    took_s = time.monotonic() - began_s
    ran_s, waited_s = watch.scheduled_s()
    loops_s = took_s * len(cluster.brokers)
    ran_percent, waited_percent = 100 * (ran_s - ran_before_s) / loops_s, 100 * (waited_s - waited_before_s) / loops_s
    watch.stop_event.set()
    growth_thread.join()
    statuses = watch.statuses()
    long_turns = {api: count - turns_before.get(api, 0) for api, count in long_turns_by_api(statuses).items()}
    long_turns = {api: count for api, count in long_turns.items() if count}
    longest = max(
        (status["loop_turns"]["longest_ms"] or 0.0, str(status["loop_turns"]["longest_of"])) for status in statuses
    )
    log_bytes = (watch.log_bytes() - log_before) * 60 / took_s
    p99_ms = figures["p99_ms"]
    kept_percent = 100 * figures["records_per_s"] / figures_alone["records_per_s"]
    bound_ms = max(NEIGHBOUR_P99_MS_MAX, NEIGHBOUR_P99_TIMES_MAX * alone_p99_ms)
    violations = [
        f"ended with {attack_process.returncode}" if attack_process.returncode else "",
        f"{len(figures['errors'])} errors" if figures["errors"] else "",
        f"p99 over {bound_ms:.0f} ms" if p99_ms > bound_ms else "",
        f"{kept_percent:.0f} % of its records" if kept_percent < KEPT_PERCENT_MIN else "",
        f"turns over {LONG_TURN_MS:.0f} ms" if long_turns and len(cluster.brokers) == 1 else "",
        "memory" if watch.peak_mib > (RSS_GROWTH_BY_TENANT_MIB_MAX if name in BY_MANY else RSS_GROWTH_MIB_MAX) else "",
        "log" if log_bytes > LOG_BYTES_PER_MINUTE_MAX else "",
    ]
    print(
        f"{name:34} p99 {alone_p99_ms:6.1f} → {p99_ms:7.1f} ms, max {figures['max_ms']:7.1f}, "
        f"brokers ran {ran_percent:3.0f} %, waited {waited_percent:3.0f} %, RSS {watch.peak_mib:+6.1f} MiB, "
        f"log {log_bytes / 1000:5.0f} kB/min, turns {long_turns}, longest so far {longest[0]:.1f} {longest[1]}, "
        f"{attack_process.stdout.strip()[:120]} {' '.join(filter(None, violations))}",
        flush=True,
    )
    return list(filter(None, violations))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="attacks with this in their name")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack")
    parser.add_argument("--brokers", type=int, default=BROKERS, help="brokers, and replicas of each partition")
    options = parser.parse_args()
    names = [name for name in ATTACKS if options.only in name]
    violations_by_attack: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        with (
            own_zookeeper(home, find_java(home / "java")) as server,
            EngineCluster(
                server.address, home, size=options.brokers, certificate=make_certificate(home / "tls")
            ) as cluster,
        ):
            topics = {TOPIC: PARTITIONS, WIDE: PARTITIONS}
            hostile = {PLAINTEXT: create_instance_with_topics(cluster, "ins-aaaaaaaa", topics)}
            for number, security in enumerate(sorted({attacked_security(name) for name in names} - {PLAINTEXT})):
                hostile[security] = cluster.create_instance(f"ins-cccccc{number:02}", security=security)
            neighbour = create_instance_with_topics(cluster, "ins-bbbbbbbb", {TOPIC: 3})
            tenant_instances = instances_of_one_tenant(cluster) if not BY_MANY.keys().isdisjoint(names) else []
            for name in names:
                attackers = tenant_instances if name in BY_MANY else [hostile[attacked_security(name)]]
                attacked = neighbour
                if name == FIVE_TENANTS:
                    attackers = [
                        create_instance_with_topics(cluster, f"ins-ddddddd{number}", {TOPIC: 3})
                        for number in range(len(KINDS_OF_FIVE))
                    ]
                elif name == SMALLEST_BESIDE_LARGEST:
                    attackers = [create_instance_with_topics(cluster, "ins-eeeeeeee", {TOPIC: 3}, SMALLEST_BPS)]
                    attacked = create_instance_with_topics(cluster, "ins-ffffffff", {TOPIC: 3}, LARGEST_BPS)
                violations = run_attack(name, options.seconds, cluster, attackers, attacked)
                if violations:
                    violations_by_attack[name] = violations
    held_count = len(names) - len(violations_by_attack)
    print(f"{held_count} of {len(names)} attacks within bounds", *map(str, violations_by_attack.items()), sep="\n")
    return 1 if violations_by_attack else 0


if __name__ == "__main__":
    sys.exit(main())
