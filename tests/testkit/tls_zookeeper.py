"""A ZooKeeper with a TLS port that requires client certificates, beside its plain port for the testkit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from config.embedded import zookeeper
from config.embedded.java import Java
from config.embedded.zookeeper import EmbeddedZooKeeper

NETTY = "org.apache.zookeeper.server.NettyServerCnxnFactory"
# Beside those of a server that speaks no TLS.
JARS = ("netty-tcnative-classes-*", "netty-codec-compression-*")


class TlsZooKeeper(EmbeddedZooKeeper):
    """A ZooKeeper with TLS. `certificate` has its key and certificate, `authority` the authority of its clients."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int,
        secure_port: int,
        certificate: Path,
        authority: Path,
        java: Java,
        log_file: Path,
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(
            directory,
            port=port,
            java=java,
            log_file=log_file,
            options=(*options, f"-Dzookeeper.serverCnxnFactory={NETTY}"),
        )
        command = list(self.child.command)
        jars = Path(zookeeper.class_path().split(":")[0]).parent
        tls_jars = [str(next(jars.glob(f"{pattern}.jar"))) for pattern in JARS]
        class_path_index = command.index("-cp") + 1
        command[class_path_index] = ":".join([command[class_path_index], *tls_jars])
        self.child.command = tuple(command)
        self.secure_address = f"127.0.0.1:{secure_port}"
        self._secure = {
            "secureClientPort": secure_port,
            "secureClientPortAddress": "127.0.0.1",
            "serverCnxnFactory": NETTY,
            "ssl.keyStore.location": certificate,
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": authority,
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "need",
            "ssl.hostnameVerification": "false",
        }

    def _configuration(self) -> str:
        return super()._configuration() + "".join(f"{key}={value}\n" for key, value in self._secure.items())
