"""TLS handshakes of strangers from one address, as many as possible: clients from other addresses connect at once."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.adversarial.handshake_swarm import HOST, client_context
from tests.testkit.engine import EngineCluster
from tests.testkit.tls import make_certificate

CONNECTIONS: Final = (200, 1_000)
ATTACK_S: Final = 4
HONEST: Final = "127.0.0.77"
ENTRIES: Final = 15
# For a machine with other work. In a queue with all strangers, it is a second and more.
MEDIAN_S_MAX: Final = 0.25


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    home: Path = tmp_path_factory.mktemp("strangers")
    with EngineCluster(zookeeper_address, home / "engine", certificate=make_certificate(home / "tls")) as running:
        yield running


@pytest.fixture(scope="module")
def tls_port(cluster: EngineCluster) -> int:
    instance = cluster.create_instance("ins-aaaaaaaa", security="tls")
    (port,) = instance.document.routes[0].ports.values()
    return int(port)


def connect_honestly(port: int) -> float:
    """Returns the seconds that an honest client takes to connect."""
    began_s = time.monotonic()
    plain = socket.create_connection((HOST, port), 10, source_address=(HONEST, 0))
    with plain, client_context().wrap_socket(plain, server_hostname=HOST) as secured:
        assert secured.version()
    return time.monotonic() - began_s


@pytest.mark.parametrize("connections", CONNECTIONS)
async def test_strangers_from_one_address_delay_only_their_own(tls_port: int, connections: int) -> None:
    await asyncio.to_thread(connect_honestly, tls_port)
    swarm = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.adversarial.stranger_swarm", str(tls_port), str(connections), str(ATTACK_S),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert swarm.stdout is not None
    await swarm.stdout.readline()
    took_s, ends_s = [], time.monotonic() + ATTACK_S - 1
    while len(took_s) < ENTRIES and time.monotonic() < ends_s:
        took_s.append(await asyncio.to_thread(connect_honestly, tls_port))
    results = json.loads(await swarm.stdout.readline())
    assert await swarm.wait() == 0
    took_s.sort()
    median_s = took_s[len(took_s) // 2]
    print(
        f"{connections} strangers, {results}: "
        f"{len(took_s)} entries, median {median_s:.3f} s, longest {took_s[-1]:.3f} s"
    )
    assert results["begun"] > connections
    assert median_s <= MEDIAN_S_MAX
