"""Mutual TLS towards another broker: the handshake beside the loop, and whether it is the broker that was meant."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from socket import socket
from typing import Final

from brokers.contract.process_identity import identity_in
from brokers.engine.network.fair_turns import InstanceTurns
from brokers.engine.network.tls_stream import TlsStream

THREADS: Final = 2


class PeerTls:
    """Of one broker process. `context` gives the context of the handshake that begins now."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cluster_id: str, context: Callable[[], ssl.SSLContext]) -> None:
        self._loop = loop
        self._cluster_id = cluster_id
        self._context = context
        self._turns = InstanceTurns(None)
        self._threads: ThreadPoolExecutor | None = None

    async def shake_hands(self, sock: socket, broker_id: int) -> TlsStream:
        """Over a connected socket that does not block; it is the stream's from here on, or closed. Raises OSError."""
        tls = self._context().wrap_socket(sock, do_handshake_on_connect=False)
        try:
            while True:
                try:
                    await self._step(tls)
                    break
                except ssl.SSLWantReadError:
                    await self._until(tls, self._loop.add_reader, self._loop.remove_reader)
                except ssl.SSLWantWriteError:
                    await self._until(tls, self._loop.add_writer, self._loop.remove_writer)
            identity = identity_in(tls.getpeercert())
            if identity is None or not identity.is_broker(self._cluster_id, broker_id):
                raise ConnectionRefusedError(0, f"its certificate is not that of broker {broker_id}")
        except asyncio.CancelledError:
            raise  # a step may be in a thread: it closes the socket
        except BaseException:
            tls.close()
            raise
        return TlsStream(tls, self._loop, self._turns)

    async def _step(self, tls: ssl.SSLSocket) -> None:
        """One try, in a thread that never waits for the peer."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, "peer-tls")
        step = self._loop.run_in_executor(self._threads, tls.do_handshake)
        try:
            await asyncio.shield(step)
        except asyncio.CancelledError:
            step.add_done_callback(partial(_close_after, tls))
            raise

    async def _until(self, tls: ssl.SSLSocket, watch: Callable[..., object], unwatch: Callable[[int], object]) -> None:
        ready = self._loop.create_future()
        watch(tls.fileno(), _wake, ready)
        try:
            await ready
        except asyncio.CancelledError:
            unwatch(tls.fileno())
            tls.close()
            raise
        unwatch(tls.fileno())

    def close(self) -> None:
        """Steps that are in a thread end first; they wait for no peer."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _close_after(tls: ssl.SSLSocket, step: asyncio.Future[None]) -> None:
    if not step.cancelled():
        step.exception()  # nobody else asks how it ended
    tls.close()


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
