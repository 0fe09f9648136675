"""A gateway whose upstream does not answer says so, and since when, until it answers again."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from brokers.contract.upstream import UPSTREAM_LOST, UpstreamSettings
from brokers.engine import lifecycle
from brokers.engine.upstream.cluster_gateway import ClusterGateway
from tests.testkit.in_process import SECRET, InProcessBroker
from tests.testkit.ports import unused_port
from tests.testkit.wire import HOST


class InProcessGateway(InProcessBroker):
    """A gateway in the test's event loop."""

    broker: ClusterGateway

    def __init__(self, directory: Path, bootstrap_servers: str) -> None:
        super().__init__(directory)
        file = directory / "upstream.json"
        file.write_text(UpstreamSettings(bootstrap_servers=bootstrap_servers).to_json())
        self.config = replace(self.config, upstream_file=file)

    async def __aenter__(self) -> InProcessGateway:
        self.stop = lifecycle.Stop()
        self.tree = self.ensemble.connect()
        self.broker = ClusterGateway(self.config, self.stop, self.tree)
        await self.broker.start()
        return self

    async def get(self, path: str) -> tuple[int, Any]:
        """Returns the status and the body of a page of the admin port."""
        reader, writer = await asyncio.open_connection(HOST, self.config.admin_port)
        writer.write(f"GET {path} HTTP/1.1\r\nAuthorization: Bearer {SECRET}\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return int(head.split(b" ", 2)[1]), json.loads(body)


async def test_a_lost_upstream_is_reported_with_its_time_until_it_answers(tmp_path: Path) -> None:
    async with InProcessBroker(tmp_path / "upstream") as upstream:
        port = await upstream.create_instance("ins-aaaaaaaa")
        (tmp_path / "gateway").mkdir()
        async with InProcessGateway(tmp_path / "gateway", f"{HOST}:{port}") as gateway:
            broker = gateway.broker
            assert (await gateway.get("/readyz"))[0] == 200
            assert (await gateway.get("/v1/status"))[1]["not_ready_since_ms"] == {}

            addresses, broker._bootstrap = broker._bootstrap, ((HOST, unused_port()),)
            before_ms = broker.clock.now_ms()
            await broker._check_upstream()
            since_ms = (await gateway.get("/v1/status"))[1]["not_ready_since_ms"][UPSTREAM_LOST]
            assert before_ms <= since_ms <= broker.clock.now_ms()
            await broker._check_upstream()
            assert (await gateway.get("/v1/status"))[1]["not_ready_since_ms"] == {UPSTREAM_LOST: since_ms}
            assert await gateway.get("/readyz") == (503, {"ready": False, "reasons": [UPSTREAM_LOST]})
            assert (await gateway.get("/v1/cluster"))[1]["ready"], "it knows its cluster"

            broker._bootstrap = addresses
            await broker._check_upstream()
            assert (await gateway.get("/readyz"))[0] == 200
