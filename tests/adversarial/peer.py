"""Attacks on any other Kafka, with a measured neighbour: `python -m tests.adversarial.peer BOOTSTRAP [--only WORD]`.

For comparison with `python -m tests.adversarial` on the same machine. The cluster listens on loopback without
authentication, and has as many brokers as BOOTSTRAP names. Creates a topic for the attackers and one for the neighbour,
and prints a line for each attack whose connections need nothing else: the neighbour's latencies alone and during it,
and its errors.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from concurrent.futures import as_completed
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.engine.protocol.errors import ErrorCode
from tests.adversarial.attacks import ATTACKS, BY_MANY
from tests.adversarial.hostile import TOPIC
from tests.adversarial.neighbour import measured_neighbour

NEIGHBOURS_TOPIC: Final = "neighbours"
PARTITIONS: Final = {TOPIC: 200, NEIGHBOURS_TOPIC: 3}
REPLICAS_MAX: Final = 3
KINDS: Final = (" connections, ", "new connections, ")


def create_topics(bootstrap: str) -> None:
    replicas = min(REPLICAS_MAX, len(bootstrap.split(",")))
    topics = [NewTopic(name, partitions, replicas) for name, partitions in PARTITIONS.items()]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for creation in as_completed(admin.create_topics(topics).values(), 60):
        error = creation.exception()
        if error is not None and not (
            isinstance(error, KafkaException) and error.args[0].code() == ErrorCode.TOPIC_ALREADY_EXISTS
        ):
            raise error


def run_attack(name: str, seconds: float, bootstrap: str) -> tuple[dict[str, Any], str]:
    """Returns the neighbour's figures during an attack, and the attack's own line of JSON."""
    ports = [address.rpartition(":")[2] for address in bootstrap.split(",")]
    with measured_neighbour(bootstrap, NEIGHBOURS_TOPIC) as figures:
        attack_process = subprocess.run(
            [sys.executable, "-m", "tests.adversarial.attacks", name, str(seconds), *ports],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return figures, attack_process.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap", help="HOST:PORT,… of all brokers")
    parser.add_argument("--only", default="", help="attacks with this in their name")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each attack")
    options = parser.parse_args()
    create_topics(options.bootstrap)
    for name in ATTACKS:
        if options.only not in name or name in BY_MANY or not any(kind in name for kind in KINDS):
            continue
        with measured_neighbour(options.bootstrap, NEIGHBOURS_TOPIC) as alone:
            threading.Event().wait(options.seconds / 2)
        during_attack, result_line = run_attack(name, options.seconds, options.bootstrap)
        print(
            f"{name:34} p99 {alone['p99_ms']:6.1f} → {during_attack['p99_ms']:7.1f} ms, "
            f"max {during_attack['max_ms']:7.1f}, "
            f"errors {len(during_attack['errors'])}, {result_line[:120]}",
            flush=True,
        )


if __name__ == "__main__":
    main()
