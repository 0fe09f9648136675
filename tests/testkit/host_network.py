"""Hosts in network namespaces of this machine, each behind a cable of its own that a test can pull out or narrow.

with HostNetwork(3) as network:                       # needs root and iproute2 (missing_requirement)
    network.hosts[0].command_prefix                   # words in front of a command that runs on this host
    network.relay(zookeeper_port)                     # address under which hosts reach a port of 127.0.0.1
    network.pull_out(network.hosts[0])
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

COMMAND_TIMEOUT_S: Final = 10
RELAY_BYTES: Final = 65_536
TOOLS: Final = ("ip", "tc")
# A range that only virtual networks use: 198.18.0.0/15 is for benchmarks of network devices (RFC 2544).
NETWORKS: Final = 254
# `tc`'s token bucket: room for one segment of the kernel's, and the longest that a packet waits in it.
BURST: Final = "64k"
LATENCY: Final = "400ms"


def missing_requirement() -> str:
    """Returns what this machine lacks for hosts in namespaces; empty if it lacks nothing."""
    if os.geteuid() != 0:
        return "only root may create network namespaces"
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"there is no {' and no '.join(absent)} (package iproute2)"
    name = f"psk-{secrets.token_hex(3)}"
    created = _run("ip", "netns", "add", name, check=False)
    if created.returncode:
        return f"no network namespace can be created: {created.stderr.strip()}"
    _run("ip", "netns", "delete", name)
    return ""


@dataclass(frozen=True, slots=True)
class NetworkHost:
    """A host with an address of its own; `cable` is our end of its cable."""

    name: str
    address: str
    namespace: str
    cable: str

    @property
    def command_prefix(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.namespace)


class HostNetwork:
    """Namespaces of `size` hosts that are connected by a bridge, on which we have an address as well."""

    def __init__(self, size: int) -> None:
        self._tag = secrets.token_hex(3)
        self._bridge = f"pskb{self._tag}"
        self._prefix = f"198.18.{secrets.randbelow(NETWORKS) + 1}"
        self.own_address = f"{self._prefix}.1"
        self.hosts = [self._host(number) for number in range(1, size + 1)]
        self._relays: list[_Relay] = []

    def _host(self, number: int) -> NetworkHost:
        address, namespace = f"{self._prefix}.{number + 10}", f"psk-{self._tag}-{number}"
        return NetworkHost(f"host-{number}", address, namespace, f"psk{self._tag}{number}")

    def __enter__(self) -> HostNetwork:
        try:
            _run("ip", "link", "add", self._bridge, "type", "bridge")
            _run("ip", "address", "add", f"{self.own_address}/24", "dev", self._bridge)
            _run("ip", "link", "set", self._bridge, "up")
            for host in self.hosts:
                self._connect(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _connect(self, host: NetworkHost) -> None:
        _run("ip", "netns", "add", host.namespace)
        _run("ip", "link", "add", host.cable, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
        self.plug_in(host)
        _run("ip", "link", "set", host.cable, "up")
        _run("ip", "-n", host.namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run("ip", "-n", host.namespace, "link", "set", device, "up")

    def __exit__(self, *_: object) -> None:
        for relay in self._relays:
            relay.stop()
        for host in self.hosts:
            _run("ip", "link", "delete", host.cable, check=False)
            _run("ip", "netns", "delete", host.namespace, check=False)
        _run("ip", "link", "delete", self._bridge, check=False)

    def relay(self, port: int) -> str:
        """Returns an address `host:port` for the hosts that leads to a port of 127.0.0.1."""
        relay = _Relay(self.own_address, port)
        self._relays.append(relay)
        return relay.address

    def pull_out(self, host: NetworkHost) -> None:
        """Cuts the host off: packets are lost without an error at either end, as behind a broken switch."""
        _run("ip", "link", "set", host.cable, "nomaster")

    def plug_in(self, host: NetworkHost) -> None:
        _run("ip", "link", "set", host.cable, "master", self._bridge)

    def throttle(self, host: NetworkHost, bytes_per_s: int) -> None:
        """Limits the host's traffic, in each direction."""
        limit = ("root", "tbf", "rate", f"{bytes_per_s * 8}bit", "burst", BURST, "latency", LATENCY)
        _run("tc", "qdisc", "replace", "dev", host.cable, *limit)
        _run("tc", "-n", host.namespace, "qdisc", "replace", "dev", "eth0", *limit)

    def release(self, host: NetworkHost) -> None:
        """Removes the limit."""
        _run("tc", "qdisc", "delete", "dev", host.cable, "root")
        _run("tc", "-n", host.namespace, "qdisc", "delete", "dev", "eth0", "root")


class _Relay:
    """Forwards TCP connections from an address to a port of 127.0.0.1, in a thread of its own."""

    def __init__(self, address: str, port: int) -> None:
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, address, 0))
        self.address = f"{address}:{self._server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._finish(), self._loop).result(COMMAND_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(COMMAND_TIMEOUT_S)
        self._loop.close()

    async def _finish(self) -> None:
        self._server.close()
        own = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
        finally:
            for stream in (writer, back):
                stream.close()

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Copies until the source ends, and closes the target then, which ends the other direction, too."""
        with suppress(OSError):
            while data := await source.read(RELAY_BYTES):
                target.write(data)
                await target.drain()
        target.close()


def _run(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    process = subprocess.run(words, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S)
    assert not check or process.returncode == 0, f"{' '.join(words)}: {process.stderr}"
    return process
