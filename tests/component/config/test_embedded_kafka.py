"""Apache Kafka of `manage.py up --kafka`: what is missing is said, and it starts again with its records."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from config.embedded.java import find_java
from config.embedded.kafka import JARS_VARIABLE, EmbeddedKafka, find_jars
from config.embedded.process import StartFailed, free_port, wait_until
from config.supervisor.options import UpOptions
from config.supervisor.progress import StartProgress
from config.supervisor.state import StateDirectory
from config.supervisor.up import Supervisor

TIMEOUT_S = 60.0


@pytest.mark.parametrize("folder", ["", "empty"])
def test_missing_jars_are_refused_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path / folder) if folder else "")
    with pytest.raises(StartFailed) as refusal:
        find_jars()
    assert JARS_VARIABLE in refusal.value.detail
    assert "https://kafka.apache.org/downloads" in refusal.value.next_step


def test_a_start_without_jars_starts_nothing_and_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(JARS_VARIABLE, raising=False)
    options = UpOptions(state_dir=tmp_path / "state", http_port=free_port(), brokers=1, port_base=20_000, kafka=True)
    supervisor = Supervisor(options, StartProgress())
    with pytest.raises(StartFailed, match="needs the jars of Apache Kafka"):
        supervisor.start()
    supervisor.stop()
    assert supervisor._lock is not None
    supervisor._lock.close()
    assert not StateDirectory(options.state_dir).resolved_kafka(False)
    assert not (options.state_dir / "postgres").exists()


def test_a_state_directory_keeps_its_kafka(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.resolve_port_base(20_000)
    assert (state.resolved_kafka(False), state.resolved_kafka(True)) == (False, True)
    state.resolve_kafka()
    assert state.resolved_kafka(False)
    assert state.resolved_port_base(1) == 20_000


def test_records_are_there_after_a_restart(tmp_path: Path) -> None:
    if not os.environ.get(JARS_VARIABLE):
        pytest.skip(f"{JARS_VARIABLE} names no folder with Apache Kafka's jars")
    ports = free_port(), free_port()
    for is_first in (True, False):
        kafka = EmbeddedKafka(
            tmp_path / "kafka", port=ports[0], controller_port=ports[1], jars=find_jars(),
            java=find_java(tmp_path / "java"), log_file=tmp_path / "kafka.log",
        )  # fmt: skip
        kafka.start()
        try:
            wait_until(kafka.is_ready, child=kafka.child, timeout_s=TIMEOUT_S)
            if is_first:
                admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
                admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(TIMEOUT_S)
                producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
                producer.produce("kept", b"record")
                assert producer.flush(TIMEOUT_S) == 0
            else:
                consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"})
                consumer.assign([TopicPartition("kept", 0, 0)])
                message = consumer.poll(TIMEOUT_S)
                assert message is not None
                assert message.value() == b"record"
                consumer.close()
        finally:
            assert kafka.child.stop()
