"""Apache Kafka of `manage.py up --kafka`: one node with broker and controller (KRaft), on loopback ports."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import uuid
from pathlib import Path

from brokers.infra.child_environment import java_variables
from config.embedded.java import Java
from config.embedded.process import Child, StartFailed
from config.embedded.sockets import make_private

JARS_VARIABLE = "PENSTOCK_APACHE_KAFKA_JARS"
NODE_ID = 1
HEAP_MB = 512
FORMAT_TIMEOUT_S = 60.0
PROBE_TIMEOUT_S = 0.5
_HOST = "127.0.0.1"
_NEXT_STEP = (
    f"Unpack a release of https://kafka.apache.org/downloads, and set {JARS_VARIABLE} to the path of its folder `libs`."
)


def find_jars() -> Path:
    """Returns the folder with Apache Kafka's jars that the environment names.

    Raises:
        StartFailed: it names none.
    """
    folder = os.environ.get(JARS_VARIABLE, "")
    if not folder:
        raise StartFailed(f"--kafka needs the jars of Apache Kafka, and {JARS_VARIABLE} is not set.", _NEXT_STEP)
    jars = Path(folder).expanduser().resolve()
    if not list(jars.glob("kafka_2.1*.jar")):
        raise StartFailed(f"{JARS_VARIABLE} names {jars}, which has no kafka_2.13-….jar.", _NEXT_STEP)
    return jars


class EmbeddedKafka:
    """Apache Kafka with its data in `directory`. `bootstrap_servers` is its address."""

    def __init__(self, directory: Path, *, port: int, controller_port: int, jars: Path, java: Java, log_file: Path):
        self.directory = directory
        self.port = port
        self.bootstrap_servers = f"{_HOST}:{port}"
        self._controller = f"{_HOST}:{controller_port}"
        self._file = directory / "server.properties"
        self._java = (
            str(java.executable), f"-Xmx{HEAP_MB}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*",
        )  # fmt: skip
        self.child = Child(
            name="kafka",
            command=(*self._java, "kafka.Kafka", str(self._file)),
            log_file=log_file,
            environment=java_variables(),
            directory=directory,
            stop_timeout_s=20.0,
        )

    def start(self) -> None:
        """Writes the configuration, formats the storage the first time, and starts the process.

        Raises:
            StartFailed: the storage cannot be formatted.
        """
        make_private(self.directory)
        self._file.write_text(self._configuration(), encoding="utf-8")
        if not (self.directory / "data" / "meta.properties").exists():
            self._format()
        self.child.start()

    def is_ready(self) -> bool:
        """True if the broker accepts connections."""
        try:
            socket.create_connection((_HOST, self.port), PROBE_TIMEOUT_S).close()
        except OSError:
            return False
        return True

    def _format(self) -> None:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        command = [*self._java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._file)]
        try:
            subprocess.run(
                command, check=True, capture_output=True, timeout=FORMAT_TIMEOUT_S, cwd=self.directory,
                env=java_variables(),
            )  # fmt: skip
        except subprocess.CalledProcessError as error:
            lines = (error.stderr or error.stdout).decode("utf-8", "replace").strip().splitlines()[-4:]
            reason = "\n".join(lines)
            raise StartFailed(f"Apache Kafka's storage cannot be formatted:\n{reason}", _NEXT_STEP) from error
        except subprocess.TimeoutExpired as error:
            raise StartFailed(f"Formatting Apache Kafka's storage took over {FORMAT_TIMEOUT_S:g} s.") from error

    def _configuration(self) -> str:
        settings = {
            "process.roles": "broker,controller",
            "node.id": NODE_ID,
            "controller.quorum.voters": f"{NODE_ID}@{self._controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap_servers},CONTROLLER://{self._controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.directory / "data",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 5,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.num.partitions": 5,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())
