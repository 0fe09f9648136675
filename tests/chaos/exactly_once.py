"""Exactly-once workload: applications transform numbers in transactions, while applications and brokers are killed
(TXN-25).

Readers of committed records must then get the transformed value of each input once, in the order of the input.
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
from tests.chaos.faults import Faults, PrintLine, sleep
from tests.chaos.transform import FATAL, client_settings, transform_number
from tests.chaos.verdict import first_difference, judge_transformed
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
    """Application processes, which `restart_ended` starts again. `counts_by_exit_code` counts their ends."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap, self._directory = bootstrap, directory
        directory.mkdir(parents=True, exist_ok=True)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.counts_by_exit_code: dict[int, int] = {}

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "tests.chaos.transform", "--bootstrap", self._bootstrap]
        command += ["--source", SOURCE, "--sink", SINK, "--group", GROUP, "--name", name]
        with (self._directory / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def restart_ended(self) -> None:
        for name, process in list(self._running.items()):
            code = process.poll()
            if code is not None:
                self.counts_by_exit_code[code] = self.counts_by_exit_code.get(code, 0) + 1
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
    """Reads committed records of the sink during the run, in a thread of its own.

    `values_by_partition` has the values that it read, `failures` the errors of its client.
    """

    def __init__(self, bootstrap: str) -> None:
        settings = {"group.id": "live", "isolation.level": "read_committed", "enable.auto.commit": False}
        self._consumer = Consumer({**client_settings(bootstrap), **settings, "auto.offset.reset": "error"})
        self._consumer.assign([TopicPartition(SINK, index, 0) for index in range(PARTITIONS)])
        self.values_by_partition: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
        self.failures: list[str] = []
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, name="live-reader", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._is_stopped.is_set():
            for message in self._consumer.consume(10_000, 0.2):
                value, partition = message.value(), message.partition()
                if message.error() is not None or value is None or partition is None:
                    self.failures.append(str(message.error()))
                else:
                    self.values_by_partition[partition].append(int(value))

    def finish(self, counts: Mapping[int, int]) -> None:
        """Waits at most `LIVE_READ_S` until the expected number of records of each partition is read; then stops."""
        deadline_s = time.monotonic() + LIVE_READ_S
        while time.monotonic() < deadline_s and any(
            len(self.values_by_partition[index]) < counts[index] for index in counts
        ):
            sleep(0.1)
        self.stop()

    def stop(self) -> None:
        if not self._is_stopped.is_set():
            self._is_stopped.set()
            self._thread.join()
            self._consumer.close()


class ExactlyOnce:
    """One run of the workload on a cluster with an instance."""

    def __init__(
        self,
        cluster: EngineCluster,
        instance: TestInstance,
        random_: random.Random,
        print_line: PrintLine,
        *,
        records_per_s: int,
    ) -> None:
        replicas_wanted = min(3, cluster.size)
        config = {"min.insync.replicas": str(max(1, replicas_wanted - 1))}
        self._cluster, self._instance, self._random, self._print_line = cluster, instance, random_, print_line
        self._applications = Applications(instance.bootstrap, cluster.directory / "applications")
        admin = AdminClient({"bootstrap.servers": instance.bootstrap})
        wanted = [NewTopic(name, PARTITIONS, replicas_wanted, config=config) for name in (SOURCE, SINK)]
        for created in admin.create_topics(wanted).values():
            created.result(30)
        self._load = Workload(instance.bootstrap, SOURCE, PARTITIONS, idempotent=True, records_per_s=records_per_s)

    def run(self, seconds: float, verbs: list[str], faults: Faults, between_s: tuple[float, float]) -> bool:
        self._load.start()
        self._live_reader = LiveReader(self._instance.bootstrap)
        for number in range(APPLICATIONS):
            self._applications.start(f"app-{number}")
        try:
            eventually(lambda: self._sink_size() > 100, within_s=90, what="the first transactions")
            ends_s = time.monotonic() + seconds
            while time.monotonic() < ends_s:
                self._restart_for(self._random.uniform(*between_s))
                self._cause_fault(self._random.choice(verbs), faults)
            self._load.finish()
            self._print_line("input complete, waiting for the applications ...")
            self._wait_until_caught_up()
            self._applications.stop()
            return self._judge()
        finally:
            self._live_reader.stop()
            self._load.finish()
            self._applications.stop()

    def _restart_for(self, seconds: float) -> None:
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s:
            self._applications.restart_ended()
            sleep(0.2)

    def _cause_fault(self, verb: str, faults: Faults) -> None:
        if verb == "kill":
            faults.kill()
        elif verb in ("coordinator", "controller"):
            faults.kill(self._coordinator() if verb == "coordinator" else faults.controller(), verb)
        else:
            name = self._random.choice(self._applications.names())
            if verb == "application":
                self._print_line(f"{name}: kill -9")
                self._applications.send(name, signal.SIGKILL)
                return
            paused_s = self._random.uniform(*PAUSED_S)
            self._print_line(f"{name}: stopped {paused_s:.1f} s")
            self._applications.send(name, signal.SIGSTOP)
            self._restart_for(paused_s)
            self._applications.send(name, signal.SIGCONT)

    def _coordinator(self) -> BrokerProcess | None:
        """Returns the coordinator of the group, or of a random application's transactional id; None without one."""
        topic = self._random.choice(STATE_TOPICS)
        name = GROUP if topic == STATE_TOPICS[0] else self._random.choice(self._applications.names())
        return replicas.coordinator_of(self._cluster, topic, f"{self._instance.id}.{name}")

    def _wait_until_caught_up(self) -> None:
        def caught_up() -> bool:
            self._applications.restart_ended()
            try:
                return self._committed_offsets() == self._end_offsets(SOURCE)
            except KafkaException as failure:  # a leader may change while the last broker comes back
                raise AssertionError(str(failure)) from failure

        eventually(caught_up, within_s=CATCH_UP_S, what="the applications to transform everything")

    def _judge(self) -> bool:
        source, sink = self._load.read(), self._read_sink()
        self._live_reader.finish({index: len(sink[index]) for index in range(PARTITIONS)})
        # Other exit codes than those of killed, fenced and stopped applications are faults, which would hide lost
        # records.
        holds = not self._load.failures and not set(self._applications.counts_by_exit_code) - {
            -signal.SIGKILL,
            FATAL,
            0,
        }
        for index in range(PARTITIONS):
            verdict = judge_transformed(source[index], sink[index], transform_number)
            holds &= verdict.holds
            self._print_line(f"{SINK}-{index}: {verdict.describe()}")
            live_values = self._live_reader.values_by_partition[index]
            difference = first_difference(live_values, sink[index])
            if difference is not None or len(live_values) != len(sink[index]):
                holds = False
                description = (
                    f"{live_values[difference]} at {difference}, which did not last"
                    if difference is not None
                    else "not all of it"
                )
                self._print_line(f"{SINK}-{index}: the live reader got {description}")
        if self._live_reader.failures:
            holds = False
            self._print_line(f"the live reader failed: {self._live_reader.failures[0]}")
        counts = self._applications.counts_by_exit_code
        self._print_line(f"applications ended {sum(counts.values())} times: {counts}")
        return holds

    def _new_consumer(self, isolation: str, *, reports_ends: bool = False) -> Consumer:
        settings = {"group.id": GROUP, "isolation.level": isolation, "enable.auto.commit": False}
        settings["enable.partition.eof"] = reports_ends
        return Consumer({**client_settings(self._instance.bootstrap), **settings, "auto.offset.reset": "earliest"})

    def _end_offsets(self, topic: str) -> dict[int, int]:
        consumer = self._new_consumer("read_committed")
        try:
            places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
            return {place.partition: consumer.get_watermark_offsets(place, timeout=30)[1] for place in places}
        finally:
            consumer.close()

    def _sink_size(self) -> int:
        try:
            return sum(self._end_offsets(SINK).values())
        except KafkaException:
            return 0

    def _committed_offsets(self) -> dict[int, int]:
        consumer = self._new_consumer("read_committed")
        try:
            places = consumer.committed([TopicPartition(SOURCE, index) for index in range(PARTITIONS)], 30)
            return {place.partition: place.offset for place in places}
        except KafkaException:
            return {}
        finally:
            consumer.close()

    def _read_sink(self) -> dict[int, list[int]]:
        """Returns the committed values of each partition up to its last stable offset. The end is detected by the
        client's event, because its position does not pass markers.
        """
        result: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
        consumer = self._new_consumer("read_committed", reports_ends=True)
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
