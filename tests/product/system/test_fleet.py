"""Growth and reduction of a running product, by docs/how-to/add-a-host.md and add-a-cluster.md: a host, a cluster on
it, and a dedicated instance with traffic.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from config.environment import BASE_DIR
from tests.testkit.stack import Stack, environment
from tests.testkit.tenancy import Caller
from tests.testkit.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

ADDRESS = "127.0.0.2"
PORTS = 40
BROKERS = 3
RECORDS = 500
TOPIC = "orders"
QUIET = {"log_level": 0}
# Brokers of a second cluster start beside those of the first, on two cores.
FORMED_WITHIN_S = 120.0
# Counters of 20 s, and a run of the pipeline, which starts Spark.
RETIRED_WITHIN_S = 300.0


@pytest.fixture()
def operator(stack: Stack) -> Caller:
    return Caller(api_url=stack.ready["api_url"], token=stack.ready["operator"]["token"])


@pytest.fixture()
def tenant(stack: Stack) -> Caller:
    return Caller(api_url=stack.ready["api_url"], token=stack.ready["tenant"]["token"])


@contextmanager
def running(command: str, state_dir: Path) -> Iterator[None]:
    """Runs the agent of a host, by the command line in the API's answer, with a state directory of its own and without
    addresses of a database or a queue.
    """
    words = shlex.split(command)
    process = subprocess.Popen(
        [sys.executable, str(BASE_DIR / words[0]), *words[1:], "--state-dir", str(state_dir)],
        env=environment(),
        cwd=BASE_DIR,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.wait(60)


def done(caller: Caller, operation: Any, within_s: float) -> Any:
    """Waits for the success of an operation on a cluster, and returns it."""
    at = f"/operator/operations/{operation['id']}"

    def over() -> Any:
        found = caller.get(at)
        return found if found["state"] in ("succeeded", "failed") else None

    found = eventually(over, within_s=within_s, what=f"the operation {operation['type']}")
    assert found["state"] == "succeeded", found
    return found


def move_records(bootstrap: str) -> set[bytes]:
    """Produces and reads back records with these keys."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", **QUIET})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"x" * 100, str(number).encode())
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest", **QUIET})
    consumer.subscribe([TOPIC])
    read: set[bytes] = set()

    def is_all() -> bool:
        read.update(message.key() for message in consumer.consume(RECORDS, 0.5) if message.error() is None)
        return len(read) == RECORDS

    eventually(is_all, within_s=60, what="all records")
    consumer.close()
    return read


def test_a_host_and_a_cluster_come_serve_a_dedicated_instance_and_go(
    stack: Stack, operator: Caller, tenant: Caller, tmp_path: Path
) -> None:
    wanted = {
        "name": "second", "zone": "east", "advertised_host": ADDRESS, "port_first": stack.port_base,
        "port_last": stack.port_base + PORTS - 1, "data_dirs": [str(tmp_path / "disk")],
    }  # fmt: skip
    status, host = operator.call("POST", "/operator/hosts", wanted)
    assert status == 201, host
    before = {cluster["id"] for cluster in operator.get("/operator/clusters")["items"]}

    dedicated = {"name": "own", "cluster_type": "dedicated", "bandwidth_mb_s": 5, "storage_gb": 10}
    _, planned = tenant.call("POST", "/instances?dry_run=true", dedicated)
    assert planned["steps"][1]["data"]["outcome"] == "waits"

    with running(host["join_command"], tmp_path / "host"):
        at = f"/operator/hosts/{host['id']}"
        eventually(lambda: operator.get(at)["agent_is_alive"], within_s=60, what="the agent")
        _, planned = tenant.call("POST", "/instances?dry_run=true", dedicated)
        assert planned["steps"][1]["data"] == {"outcome": "forms_cluster", "brokers": BROKERS}

        body = {"name": "second", "kind": "dedicated", "host_ids": [host["id"]] * BROKERS}
        status, forming = operator.call("POST", "/operator/clusters", body)
        assert status == 202, forming
        formed = done(operator, forming, FORMED_WITHIN_S)
        assert [step["state"] for step in formed["steps"]] == ["done"] * 4

        open_routes = [{"name": "open", "security": "plaintext"}]
        settings = {"allow_everyone_if_no_acl": True}
        status, made = tenant.call("POST", "/instances", dedicated | {"routes": open_routes, "settings": settings})
        assert status == 202, made
        instance = f"/instances/{made['resource_id']}"
        eventually(lambda: tenant.get(instance)["status"]["phase"] == "running", within_s=60, what="the instance")
        bootstrap = tenant.get(instance)["bootstrap_servers"]
        assert bootstrap.split(",")[0].startswith(f"{ADDRESS}:")
        assert len(bootstrap.split(",")) == BROKERS
        (placed,) = [
            item for item in operator.get("/operator/placements")["items"] if item["instance_id"] == made["resource_id"]
        ]
        assert placed["cluster_id"] == formed["cluster_id"] not in before
        assert len(move_records(bootstrap)) == RECORDS

        cluster = f"/operator/clusters/{formed['cluster_id']}"
        assert operator.call("DELETE", cluster)[1]["code"] == "has_instances"
        assert tenant.call("DELETE", instance)[0] == 202
        eventually(lambda: tenant.call("POST", f"{instance}/purge", {})[0] == 202, within_s=60, what="the purge")
        eventually(lambda: tenant.call("GET", instance)[0] == 404, within_s=60, what="the end of the instance")

        status, retiring = eventually(
            lambda: answer if (answer := operator.call("DELETE", cluster))[0] == 202 else None,
            within_s=30,
            what="the cluster to be empty",
        )
        retired = done(operator, retiring, RETIRED_WITHIN_S)
        assert retired["steps"][1]["name"] == "usage_read"
        assert {item["id"] for item in operator.get("/operator/clusters")["items"]} == before
        assert operator.call("DELETE", at)[0] == 204
    assert operator.call("GET", at)[0] == 404
