"""A broker that is killed under load: every acknowledged record is there afterwards, in order (REP-5, LOG-36)."""

from __future__ import annotations

import threading
import time
from collections import defaultdict

import pytest
from confluent_kafka import Producer

from tests.interop.clients import ConfluentKafka
from tests.testkit.stack import Stack
from tests.testkit.tenancy import addresses, demo_tenant, size_of_run
from tests.testkit.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

PARTITIONS = 3
KILLS = size_of_run("PENSTOCK_CRASH_KILLS", 1)
# Long enough between kills for records to be acknowledged before, during and after.
RECORDS_BETWEEN_KILLS = 3_000


def test_every_acknowledged_record_survives_kill_9_of_a_broker_under_load(stack: Stack) -> None:
    caller = demo_tenant(stack)
    instance = caller.instance("crash", bandwidth_mb_s=20)
    caller.topic(instance["id"], "survivors", PARTITIONS)
    bootstrap = ",".join(addresses(instance))
    acknowledged: dict[int, list[bytes]] = defaultdict(list)
    count, stop = [0], threading.Event()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 2,
            "message.timeout.ms": 120_000,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )

    def delivered(error, message) -> None:
        assert error is None, error
        acknowledged[message.partition()].append(message.value())
        count[0] += 1

    def send() -> None:
        sent = 0
        while not stop.is_set():
            try:
                producer.produce("survivors", b"%012d" % sent, partition=sent % PARTITIONS, on_delivery=delivered)
                sent += 1
            except BufferError:
                producer.poll(0.05)
            producer.poll(0)
            if sent % 20 == 0:
                time.sleep(0.001)  # paces the load; nothing waits for it

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for _ in range(KILLS):
            reached = count[0] + RECORDS_BETWEEN_KILLS
            eventually(lambda reached=reached: count[0] >= reached, within_s=60, what="records before the kill")
            victims = stack.broker_processes()
            victims[-1].kill()
            alive = {process.pid for process in victims[:-1]}
            eventually(
                lambda alive=alive: len({process.pid for process in stack.broker_processes()} - alive) == 1,
                within_s=60,
                what="the agent to start the broker again",
            )
            reached = count[0] + RECORDS_BETWEEN_KILLS
            eventually(lambda reached=reached: count[0] >= reached, within_s=90, what="records after the kill")
    finally:
        stop.set()
        sender.join()
    assert producer.flush(120) == 0
    total = sum(len(values) for values in acknowledged.values())
    read = ConfluentKafka().consume(bootstrap, "survivors", PARTITIONS, total)
    for partition, values in acknowledged.items():
        result = [value for _, value in read[partition]]
        assert result == sorted(result), f"partition {partition} is out of order"
        assert len(result) == len(set(result)), f"partition {partition} holds a record twice"
        missing = set(values) - set(result)
        assert not missing, f"partition {partition} lost {len(missing)} of {len(values)} acknowledged records"
    caller.call("DELETE", f"/instances/{instance['id']}")
