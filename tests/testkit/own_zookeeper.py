"""A ZooKeeper of its own for a test or module, stopped at its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from config.embedded.java import Java, find_java
from config.embedded.process import free_port, wait_until
from config.embedded.zookeeper import HEAP_MB, EmbeddedZooKeeper

START_TIMEOUT_S = 60.0


@contextmanager
def own_zookeeper(
    home: Path, java: Java | None = None, *, heap_mb: int = HEAP_MB, options: Sequence[str] = ()
) -> Iterator[EmbeddedZooKeeper]:
    """Starts a ZooKeeper with its data and log in `home`."""
    server = EmbeddedZooKeeper(
        home / "zookeeper",
        port=free_port(),
        java=java or find_java(home / "java"),
        log_file=home / "zookeeper.log",
        heap_mb=heap_mb,
        options=options,
    )
    server.start()
    try:
        wait_until(server.is_ready, child=server.child, timeout_s=START_TIMEOUT_S)
        yield server
    finally:
        server.child.stop()
