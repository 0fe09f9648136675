"""Other people's clients on a route with users, with TLS, with both, or with certificates of their own: each produces a
record and reads the topic, and answers with the values there, or with none where it is not let in.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

PATIENCE_S: Final = 30.0
REFUSED_AFTER_MS: Final = 3_000
KAFKAJS: Final = Path(__file__).with_name("kafkajs_client.js")
FRANZ_GO: Final = Path(__file__).with_name("franz_go")


@dataclass(frozen=True)
class Access:
    """Connection of a client. `ca_file`: over TLS with this authority; `mechanism`: as a user; `own_file`: with a key
    and certificate of its own.
    """

    bootstrap: str
    topic: str
    ca_file: str = ""
    mechanism: str = ""
    user: str = ""
    password: str = ""
    own_file: str = ""

    @property
    def protocol(self) -> str:
        return f"{'SASL_' if self.mechanism else ''}{'SSL' if self.ca_file else 'PLAINTEXT'}"

    def of_librdkafka(self) -> dict[str, Any]:
        conf = {"bootstrap.servers": self.bootstrap, "security.protocol": self.protocol}
        if self.ca_file:
            conf["ssl.ca.location"] = self.ca_file
        if self.own_file:
            conf |= {"ssl.certificate.location": self.own_file, "ssl.key.location": self.own_file}
        if self.mechanism:
            conf |= {"sasl.mechanism": self.mechanism, "sasl.username": self.user, "sasl.password": self.password}
        return conf

    def of_kafka_python(self) -> dict[str, Any]:
        conf = {"bootstrap_servers": self.bootstrap, "security_protocol": self.protocol}
        if self.ca_file:
            conf["ssl_cafile"] = self.ca_file
        if self.own_file:
            conf |= {"ssl_certfile": self.own_file, "ssl_keyfile": self.own_file}
        return conf | self._sasl()

    def of_aiokafka(self) -> dict[str, Any]:
        conf: dict[str, Any] = {"bootstrap_servers": self.bootstrap, "security_protocol": self.protocol}
        if self.ca_file:
            conf["ssl_context"] = context = ssl.create_default_context(cafile=self.ca_file)
            if self.own_file:
                context.load_cert_chain(self.own_file)
        return conf | self._sasl()

    def _sasl(self) -> dict[str, str]:
        if not self.mechanism:
            return {}
        return {
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }


def with_confluent(access: Access, value: bytes) -> list[bytes]:
    from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

    refused: list[KafkaError] = []
    conf = access.of_librdkafka()
    producer = Producer(conf | {"error_cb": refused.append, "log_level": 0})
    producer.produce(access.topic, value)
    while producer.flush(0.1):
        if any(error.code() == KafkaError._AUTHENTICATION for error in refused):
            producer.purge()
            producer.flush(5)
            return []
    consumer = Consumer(conf | {"group.id": "none", "enable.auto.commit": False, "enable.partition.eof": True})
    consumer.assign([TopicPartition(access.topic, 0, 0)])
    values = []
    try:
        while (message := consumer.poll(10)) is not None and message.error() is None:
            values.append(message.value() or b"")
    finally:
        consumer.close()
    return values


def with_kafka_python(access: Access, value: bytes) -> list[bytes]:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError
    from kafka.structs import TopicPartition

    conf = access.of_kafka_python()
    producer = None
    with suppress(KafkaError):
        producer = KafkaProducer(**conf, bootstrap_timeout_ms=REFUSED_AFTER_MS)
    if producer is None:
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            gc.collect()  # it leaves a pair of sockets behind
        return []
    producer.send(access.topic, value).get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(**conf)
    partition = TopicPartition(access.topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    end = consumer.end_offsets([partition])[partition]
    values = []
    while consumer.position(partition) < end:
        values += [record.value for record in consumer.poll(1_000).get(partition, [])]
    consumer.close()
    return values


def with_aiokafka(access: Access, value: bytes) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.errors import KafkaError
    from aiokafka.structs import TopicPartition

    async def run() -> list[bytes]:
        conf = access.of_aiokafka()
        producer = AIOKafkaProducer(**conf)
        try:
            await producer.start()
        except KafkaError:
            await producer.stop()
            return []
        await producer.send_and_wait(access.topic, value)
        await producer.stop()
        consumer = AIOKafkaConsumer(**conf)
        await consumer.start()
        partition = TopicPartition(access.topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        end = (await consumer.end_offsets([partition]))[partition]
        values = []
        while await consumer.position(partition) < end:
            values.append((await consumer.getone()).value)
        await consumer.stop()
        return values

    return asyncio.run(run())


def with_kcat(access: Access, value: bytes) -> list[bytes]:
    if shutil.which("kcat") is None:
        pytest.skip("the program kcat (a Debian package) is not installed")
    settings = [f"-X{name}={given}" for name, given in access.of_librdkafka().items() if name != "bootstrap.servers"]
    common = ["kcat", "-b", access.bootstrap, *settings, "-t", access.topic, "-p", "0", "-q"]
    produced = subprocess.run(
        [*common, "-P", f"-Xmessage.timeout.ms={REFUSED_AFTER_MS}"],
        input=value, capture_output=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    if produced.returncode:
        return []
    read = subprocess.run([*common, "-C", "-o", "beginning", "-e"], capture_output=True, timeout=PATIENCE_S, check=True)
    return read.stdout.splitlines()


@cache
def _has_kafkajs() -> bool:
    node = shutil.which("node")
    return node is not None and not subprocess.run([node, "-e", "require('kafkajs')"], capture_output=True).returncode


def with_kafkajs(access: Access, value: bytes) -> list[bytes]:
    if not _has_kafkajs():
        pytest.skip("no node with the npm package kafkajs (NODE_PATH names its folder)")
    return _values_by(["node", str(KAFKAJS)], access, value)


@cache
def _franz_go() -> str | None:
    """The program, built once; None where there is no Go, or not this module in its cache."""
    go = shutil.which("go")
    if go is None:
        return None
    program = str(Path(tempfile.gettempdir()) / f"penstock-franz-go-{os.getpid()}")
    offline = {**os.environ, "GOPROXY": "off", "GOTOOLCHAIN": "local"}
    built = subprocess.run([go, "build", "-o", program, "."], cwd=FRANZ_GO, env=offline, capture_output=True)
    if built.returncode:
        return None
    atexit.register(Path(program).unlink, missing_ok=True)
    return program


def with_franz_go(access: Access, value: bytes) -> list[bytes]:
    program = _franz_go()
    if program is None:
        pytest.skip("no Go with franz-go in its module cache (go mod download in tests/interop/franz_go)")
    return _values_by([program], access, value)


def _values_by(command: list[str], access: Access, value: bytes) -> list[bytes]:
    """Returns the output of a program in another language, which reads its connection settings as JSON."""
    given = {
        "brokers": access.bootstrap.split(","),
        "topic": access.topic,
        "ca": Path(access.ca_file).read_text() if access.ca_file else "",
        "own": Path(access.own_file).read_text() if access.own_file else "",
        "mechanism": access.mechanism.lower(),
        "username": access.user,
        "password": access.password,
        "value": value.decode(),
    }
    env = {**os.environ, "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    done = subprocess.run(
        command, input=json.dumps(given).encode(), capture_output=True, timeout=PATIENCE_S, env=env, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return [each.encode() for each in json.loads(done.stdout)]


CLIENTS: Final[dict[str, Callable[[Access, bytes], list[bytes]]]] = {
    "confluent-kafka": with_confluent,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
    "kcat": with_kcat,
    "kafkajs": with_kafkajs,
    "franz-go": with_franz_go,
}
