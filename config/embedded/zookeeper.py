"""Embedded ZooKeeper server from the jars of the `pyspark` wheel."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Sequence
from pathlib import Path

from brokers.infra.child_environment import java_variables
from config.embedded import zookeeper_heap
from config.embedded.java import Java
from config.embedded.process import Child, StartFailed
from config.embedded.sockets import make_private
from config.embedded.zookeeper_acls import OwnEnsembleAcls

HEAP_MB = zookeeper_heap.heap_mb()
TICK_MS = 500
# A session's timeout is negotiated between 2 and 40 ticks: brokers ask for 6 s, tests for as little as 1 s.
SNAPSHOTS_KEPT = 3
PURGE_HOURS = 1
SNAPSHOT_EVERY_CHANGES = 20_000
CONNECTIONS_MAX = 1_000
START_TIMEOUT_S = 20.0
# Maximum size of a request: twice the brokers' largest transactions, and far above any document of a tenant.
REQUEST_BYTES_MAX = 1024 * 1024
PROBE_TIMEOUT_S = 0.5
# Only these are needed; a short class path starts a second faster than Spark's four hundred jars.
JARS = (
    "zookeeper-3*",
    "zookeeper-jute-*",
    "slf4j-api-*",
    "snappy-java-*",
    "metrics-core-*",
    "netty-common-*",
    "netty-buffer-*",
    "netty-transport-4*",
    "netty-transport-native-unix-common-*",
    "netty-transport-classes-epoll-*",
    "netty-handler-4*",
    "netty-codec-base-*",
    "netty-codec-4*",
    "netty-resolver-4*",
)


class EmbeddedZooKeeper:
    """Standalone server on a loopback port. With `acls` its nodes have access lists, without they are open."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int,
        java: Java,
        log_file: Path,
        acls: OwnEnsembleAcls | None = None,
        heap_mb: int = HEAP_MB,
        options: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.port = port
        self._acls = acls
        self._has_acls = acls is None
        self.address = f"127.0.0.1:{port}"
        self.child = Child(
            name="zookeeper",
            command=(
                str(java.executable),
                f"-Xmx{heap_mb}m",
                "-Xms32m",
                *options,
                f"-Djute.maxbuffer={REQUEST_BYTES_MAX}",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Xshare:auto",
                "-Dzookeeper.admin.enableServer=false",
                "-Djava.awt.headless=true",
                "-cp",
                class_path(),
                "org.apache.zookeeper.server.ZooKeeperServerMain",
                str(directory / "zoo.cfg"),
            ),
            log_file=log_file,
            environment=java_variables(),
        )

    def start(self) -> None:
        """Writes the configuration and starts the process; `is_ready` returns whether it serves."""
        make_private(self.directory)
        file = self.directory / "zoo.cfg"
        file.touch(mode=0o600)
        file.chmod(0o600)
        file.write_text(self._configuration(), encoding="utf-8")
        self.child.start()

    def is_ready(self) -> bool:
        """True if the server serves; sets the ACLs of its tree the first time.

        Raises:
            StartFailed: the ACLs cannot be set.
        """
        if not self.answers():
            return False
        if self._acls is not None and not self._has_acls:
            self._has_acls = self._acls.apply(self.address)
        return self._has_acls

    def answers(self) -> bool:
        """True if the server serves, with or without its ACLs."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), PROBE_TIMEOUT_S) as link:
                link.settimeout(PROBE_TIMEOUT_S)
                link.sendall(b"srvr")
                response = b"".join(iter(lambda: link.recv(4096), b""))
        except OSError:
            return False
        return b"Mode:" in response

    def _configuration(self) -> str:
        settings = {
            "tickTime": TICK_MS,
            "dataDir": self.directory / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": CONNECTIONS_MAX,
            "minSessionTimeout": 2 * TICK_MS,
            "maxSessionTimeout": 40 * TICK_MS,
            "autopurge.snapRetainCount": SNAPSHOTS_KEPT,
            "autopurge.purgeInterval": PURGE_HOURS,
            "snapCount": SNAPSHOT_EVERY_CHANGES,
            "preAllocSize": 4096,
            "4lw.commands.whitelist": "srvr",
            "admin.enableServer": "false",
            "skipACL": "no",
        }
        if self._acls is not None:
            settings["DigestAuthenticationProvider.superDigest"] = self._acls.superuser.digest
        return "".join(f"{key}={value}\n" for key, value in settings.items())


def class_path() -> str:
    """Returns the class path of a ZooKeeper server from the `pyspark` package.

    Raises:
        StartFailed: the package is missing or contains other jars than expected.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise StartFailed("The pyspark package, which carries ZooKeeper, is not installed.", "Run `make setup`.")
    jars = Path(spec.submodule_search_locations[0]) / "jars"
    files: list[Path] = []
    for pattern in JARS:
        matches = [file for file in sorted(jars.glob(f"{pattern}.jar")) if "linux" not in file.name]
        if not matches:
            raise StartFailed(f"{jars} has no {pattern}.jar.", "Install the pinned pyspark: `make setup`.")
        files.append(matches[0])
    return ":".join(map(str, files))
