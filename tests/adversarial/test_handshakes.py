"""TLS handshakes of strangers, 2,000 a minute: whole, hung up halfway, half sent, of the longest hello there is, and
again inside one that is over. The neighbour is served meanwhile, and the broker does not grow.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.adversarial.conftest import with_topic
from tests.adversarial.handshake_swarm import ATTEMPTS, HOST, KINDS, longest_hello
from tests.adversarial.hostile import TOPIC, Neighbour
from tests.adversarial.test_connections import ATTACK_S, NEIGHBOUR_P99_MS_MAX, RSS_GROWTH_BYTES_MAX, rss_bytes
from tests.testkit.engine import EngineCluster
from tests.testkit.tls import make_certificate

PER_MINUTE: Final = 2_000
# Of all bytes of a hello the server has to see the end.
SAID_S_MAX: Final = 10.0


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    home: Path = tmp_path_factory.mktemp("handshakes")
    with EngineCluster(zookeeper_address, home / "engine", certificate=make_certificate(home / "tls")) as running:
        yield running


@pytest.fixture(scope="module")
def tls_port(cluster: EngineCluster) -> int:
    instance = cluster.create_instance("ins-aaaaaaaa", security="tls")
    (port,) = instance.document.routes[0].ports.values()
    return int(port)


@pytest.fixture(scope="module")
def neighbour_port(cluster: EngineCluster) -> int:
    return next(iter(with_topic(cluster, "ins-bbbbbbbb").document.ports.values()))


@pytest.mark.long(
    "brokers/engine/network/connection_handshake.py", "brokers/engine/network/handshakes.py", "tests/adversarial"
)
@pytest.mark.parametrize("kind", KINDS)
async def test_handshakes_of_strangers_leave_the_neighbour_served(
    cluster: EngineCluster, tls_port: int, neighbour_port: int, kind: str
) -> None:
    neighbour, stop = Neighbour(neighbour_port, TOPIC), asyncio.Event()
    before = await asyncio.to_thread(rss_bytes, cluster)
    producing = asyncio.create_task(neighbour.produce_until(stop))
    swarm = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.adversarial.handshake_swarm", kind, str(tls_port), str(PER_MINUTE), str(ATTACK_S),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await swarm.communicate()
    stop.set()
    await producing
    rss_growth = await asyncio.to_thread(rss_bytes, cluster) - before
    status = await asyncio.to_thread(cluster.brokers[0].admin, "/v1/status")
    print(
        f"{json.loads(output)}, neighbour p99 {neighbour.percentile_ms(99):.1f} ms of {len(neighbour.latencies_ms)},"
        f" RSS grew by {rss_growth / 2**20:.1f} MiB, longest turn {status['loop_turns']['longest_ms']} ms"
    )
    assert json.loads(output)["attempts"] > 0
    assert neighbour.errors == 0
    assert neighbour.percentile_ms(99) <= NEIGHBOUR_P99_MS_MAX
    assert rss_growth <= RSS_GROWTH_BYTES_MAX


def test_the_longest_hello_is_answered_or_ends_its_connection(tls_port: int) -> None:
    frame = longest_hello()
    assert len(frame) > 128 * 1024
    with socket.create_connection((HOST, tls_port), SAID_S_MAX) as plain:
        plain.settimeout(SAID_S_MAX)
        plain.sendall(frame)
        assert plain.recv(1) in (b"", b"\x15", b"\x16")
    assert ATTEMPTS["whole"](tls_port).startswith("TLS")


def test_a_handshake_that_is_over_is_not_begun_again(tls_port: int) -> None:
    result = ATTEMPTS["renegotiating"](tls_port)
    if result == "no openssl here":
        pytest.skip("the program openssl is not installed")
    assert result == "refused"
