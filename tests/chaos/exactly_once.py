"""The exactly-once workload: numbers go in, applications transform them, everything is killed now and then (TXN-25).

What readers of committed records are given afterwards is the function of the input, once each, and in its order.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos import replicas
from tests.chaos.faults import Faults, Say, last
from tests.chaos.transform import FATAL, connection, transformed
from tests.chaos.verdict import answered_otherwise, judge_transformed
from tests.chaos.workload import Workload
from tests.testkit.engine import ROOT, BrokerProcess, EngineCluster, TestInstance
from tests.testkit.waiting import eventually

VERBS: Final = ("application", "pause-application", "kill", "coordinator", "controller")
PARTITIONS: Final = 4
APPLICATIONS: Final = 3
GROUP: Final = "transformers"
SOURCE, SINK = "numbers", "transformed"
STATE_TOPICS: Final = ("__consumer_offsets", "__transaction_state")
PAUSED_S: Final = (2.0, 25.0)
CATCH_UP_S: Final = 180.0
LIVE_READ_S: Final = 60.0


class Applications:
    """Started again whenever they end. `ends` counts them by exit code."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap, self._directory = bootstrap, directory
        directory.mkdir(parents=True, exist_ok=True)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.ends: dict[int, int] = {}

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "tests.chaos.transform", "--bootstrap", self._bootstrap]
        command += ["--source", SOURCE, "--sink", SINK, "--group", GROUP, "--name", name]
        with (self._directory / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def tend(self) -> None:
        for name, process in list(self._running.items()):
            code = process.poll()
            if code is not None:
                self.ends[code] = self.ends.get(code, 0) + 1
                self.start(name)

    def names(self) -> list[str]:
        return sorted(self._running)

    def send(self, name: str, number: signal.Signals) -> None:
        self._running[name].send_signal(number)

    def stop(self) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class LiveReader:
    """Reads what is committed of the sink while everything goes on, in a thread of its own.

    `found` is what it was given of each partition, `failures` what its client could not go on after.
    """

    def __init__(self, bootstrap: str) -> None:
        settings = {"group.id": "live", "isolation.level": "read_committed", "enable.auto.commit": False}
        self._consumer = Consumer({**connection(bootstrap), **settings, "auto.offset.reset": "error"})
        self._consumer.assign([TopicPartition(SINK, index, 0) for index in range(PARTITIONS)])
        self.found: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
        self.failures: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="live-reader", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(10_000, 0.2):
                value, partition = message.value(), message.partition()
                if message.error() is not None or value is None or partition is None:
                    self.failures.append(str(message.error()))
                else:
                    self.found[partition].append(int(value))

    def finish(self, counts: Mapping[int, int]) -> None:
        """Waits for a number of records of each partition; those that it could not read in time are not in `found`."""
        deadline_s = time.monotonic() + LIVE_READ_S
        while time.monotonic() < deadline_s and any(len(self.found[index]) < counts[index] for index in counts):
            last(0.1)
        self.stop()

    def stop(self) -> None:
        if not self._over.is_set():
            self._over.set()
            self._thread.join()
            self._consumer.close()


class ExactlyOnce:
    """One run on a cluster that has an instance already."""

    def __init__(
        self, cluster: EngineCluster, instance: TestInstance, rolls: random.Random, say: Say, *, records_per_s: int
    ) -> None:
        replicas_wanted = min(3, cluster.size)
        config = {"min.insync.replicas": str(max(1, replicas_wanted - 1))}
        self._cluster, self._instance, self._rolls, self._say = cluster, instance, rolls, say
        self._applications = Applications(instance.bootstrap, cluster.directory / "applications")
        admin = AdminClient({"bootstrap.servers": instance.bootstrap})
        wanted = [NewTopic(name, PARTITIONS, replicas_wanted, config=config) for name in (SOURCE, SINK)]
        for created in admin.create_topics(wanted).values():
            created.result(30)
        self._load = Workload(instance.bootstrap, SOURCE, PARTITIONS, idempotent=True, records_per_s=records_per_s)

    def run(self, seconds: float, verbs: list[str], faults: Faults, between_s: tuple[float, float]) -> bool:
        self._load.start()
        self._reader_beside = LiveReader(self._instance.bootstrap)
        for number in range(APPLICATIONS):
            self._applications.start(f"app-{number}")
        try:
            eventually(lambda: self._sink_size() > 100, within_s=90, what="the first transactions")
            ends_s = time.monotonic() + seconds
            while time.monotonic() < ends_s:
                self._watch(self._rolls.uniform(*between_s))
                self._disturb(self._rolls.choice(verbs), faults)
            self._load.finish()
            self._say("input complete, waiting for the applications ...")
            self._until_caught_up()
            self._applications.stop()
            return self._judge()
        finally:
            self._reader_beside.stop()
            self._load.finish()
            self._applications.stop()

    def _watch(self, seconds: float) -> None:
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s:
            self._applications.tend()
            last(0.2)

    def _disturb(self, verb: str, faults: Faults) -> None:
        if verb == "kill":
            faults.kill()
        elif verb in ("coordinator", "controller"):
            faults.kill(self._coordinator() if verb == "coordinator" else faults.controlling(), verb)
        else:
            name = self._rolls.choice(self._applications.names())
            if verb == "application":
                self._say(f"{name}: kill -9")
                self._applications.send(name, signal.SIGKILL)
                return
            paused_s = self._rolls.uniform(*PAUSED_S)
            self._say(f"{name}: stopped {paused_s:.1f} s")
            self._applications.send(name, signal.SIGSTOP)
            self._watch(paused_s)
            self._applications.send(name, signal.SIGCONT)

    def _coordinator(self) -> BrokerProcess | None:
        """The broker that looks after the group, or after one of the transactions."""
        topic = self._rolls.choice(STATE_TOPICS)
        name = GROUP if topic == STATE_TOPICS[0] else self._rolls.choice(self._applications.names())
        return replicas.coordinator_of(self._cluster, topic, f"{self._instance.id}.{name}")

    def _until_caught_up(self) -> None:
        def caught_up() -> bool:
            self._applications.tend()
            try:
                return self._committed() == self._ends(SOURCE)
            except KafkaException as failure:  # a leader may change while the last broker comes back
                raise AssertionError(str(failure)) from failure

        eventually(caught_up, within_s=CATCH_UP_S, what="the applications to transform everything")

    def _judge(self) -> bool:
        source, sink = self._load.read(), self._read_sink()
        self._reader_beside.finish({index: len(sink[index]) for index in range(PARTITIONS)})
        # Killed, fenced, or stopped: any other end is a fault of the application, and would hide lost records.
        holds = not self._load.failed and not set(self._applications.ends) - {-signal.SIGKILL, FATAL, 0}
        for index in range(PARTITIONS):
            verdict = judge_transformed(source[index], sink[index], transformed)
            holds &= verdict.holds
            self._say(f"{SINK}-{index}: {verdict.describe()}")
            live = self._reader_beside.found[index]
            at = answered_otherwise(live, sink[index])
            if at is not None or len(live) != len(sink[index]):
                holds = False
                what = f"{live[at]} at {at}, which did not last" if at is not None else "not all of it"
                self._say(f"{SINK}-{index}: who read it live was given {what}")
        if self._reader_beside.failures:
            holds = False
            self._say(f"who read live could not go on: {self._reader_beside.failures[0]}")
        self._say(f"applications ended {sum(self._applications.ends.values())} times: {self._applications.ends}")
        return holds

    def _reader(self, isolation: str, *, ends: bool = False) -> Consumer:
        settings = {"group.id": GROUP, "isolation.level": isolation, "enable.auto.commit": False}
        settings["enable.partition.eof"] = ends
        return Consumer({**connection(self._instance.bootstrap), **settings, "auto.offset.reset": "earliest"})

    def _ends(self, topic: str) -> dict[int, int]:
        consumer = self._reader("read_committed")
        try:
            places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
            return {place.partition: consumer.get_watermark_offsets(place, timeout=30)[1] for place in places}
        finally:
            consumer.close()

    def _sink_size(self) -> int:
        try:
            return sum(self._ends(SINK).values())
        except KafkaException:
            return 0

    def _committed(self) -> dict[int, int]:
        consumer = self._reader("read_committed")
        try:
            places = consumer.committed([TopicPartition(SOURCE, index) for index in range(PARTITIONS)], 30)
            return {place.partition: place.offset for place in places}
        except KafkaException:
            return {}
        finally:
            consumer.close()

    def _read_sink(self) -> dict[int, list[int]]:
        """Up to the last stable offset: the end of the partition for readers of committed records. The position of a
        client does not say when that is reached, if there are only markers between.
        """
        result: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
        consumer = self._reader("read_committed", ends=True)
        consumer.assign([TopicPartition(SINK, index, 0) for index in range(PARTITIONS)])
        unread = set(range(PARTITIONS))
        deadline_s = time.monotonic() + CATCH_UP_S
        while unread and time.monotonic() < deadline_s:
            for message in consumer.consume(10_000, 0.5):
                value, partition, error = message.value(), message.partition(), message.error()
                assert partition is not None
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(partition)
                    continue
                assert error is None and value is not None, error
                result[partition].append(int(value))
        consumer.close()
        assert not unread, f"the ends of {sorted(unread)} were not reached"
        return result
