"""Mutual TLS with another broker: handshake outside the event loop and verification of the peer's identity.

Connections within one machine continue without encryption afterwards (`network.tls_stream.PLAINTEXT_ALPN`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from socket import socket
from typing import Any, Final

from brokers.contract.process_identity import identity_in
from brokers.engine.network.tls_stream import PLAINTEXT_ALPN, TlsStream, is_loopback, plain_socket

THREADS: Final = 2


class PeerTls:
    """TLS client of one broker process.

    `context` returns the context of a handshake; its argument is true if the connection may continue without
    encryption. `is_revoked` returns True for a verified certificate that is revoked.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        cluster_id: str,
        context: Callable[[bool], ssl.SSLContext],
        is_revoked: Callable[[Mapping[str, Any]], bool],
    ) -> None:
        self._loop = loop
        self._cluster_id = cluster_id
        self._context = context
        self._is_revoked = is_revoked
        self._threads: ThreadPoolExecutor | None = None

    async def handshake(self, sock: socket, broker_id: int) -> TlsStream | socket:
        """Runs the handshake over a connected non-blocking socket, which then belongs to the stream or is closed.

        Returns a plain socket if both sides have ended TLS. Raises OSError.
        """
        context = self._context(is_loopback(str(sock.getpeername()[0])))
        tls = context.wrap_socket(sock, do_handshake_on_connect=False)
        try:
            await self._run_until_done(tls, tls.do_handshake)
            certificate = tls.getpeercert() or {}
            identity = identity_in(certificate)
            if identity is None or not identity.is_broker(self._cluster_id, broker_id):
                raise ConnectionRefusedError(0, f"its certificate is not that of broker {broker_id}")
            if self._is_revoked(certificate):
                raise ConnectionRefusedError(0, f"the certificate of broker {broker_id} is revoked")
            if tls.selected_alpn_protocol() == PLAINTEXT_ALPN:
                await self._run_until_done(tls, tls.unwrap)
                return plain_socket(tls)
        except asyncio.CancelledError:
            raise  # a step may be running in a thread, which closes the socket
        except BaseException:
            tls.close()
            raise
        return TlsStream(tls, self._loop)

    async def _run_until_done(self, tls: ssl.SSLSocket, step: Callable[[], object]) -> None:
        while True:
            try:
                await self._run_step(tls, step)
                return
            except ssl.SSLWantReadError:
                await self._await_event(tls, self._loop.add_reader, self._loop.remove_reader)
            except ssl.SSLWantWriteError:
                await self._await_event(tls, self._loop.add_writer, self._loop.remove_writer)

    async def _run_step(self, tls: ssl.SSLSocket, step: Callable[[], object]) -> None:
        """Runs one attempt in a thread that never waits for the peer."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, "peer-tls")
        step_future = self._loop.run_in_executor(self._threads, step)
        try:
            await asyncio.shield(step_future)
        except asyncio.CancelledError:
            step_future.add_done_callback(partial(_close_after, tls))
            raise

    async def _await_event(
        self, tls: ssl.SSLSocket, watch: Callable[..., object], unwatch: Callable[[int], object]
    ) -> None:
        ready_future = self._loop.create_future()
        watch(tls.fileno(), _set_ready, ready_future)
        try:
            await ready_future
        except asyncio.CancelledError:
            unwatch(tls.fileno())
            tls.close()
            raise
        unwatch(tls.fileno())

    def close(self) -> None:
        """Stops the threads; running steps finish first and wait for no peer."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _close_after(tls: ssl.SSLSocket, step: asyncio.Future[object]) -> None:
    if not step.cancelled():
        step.exception()  # retrieve the exception, which no other code does
    tls.close()


def _set_ready(ready_future: asyncio.Future[None]) -> None:
    if not ready_future.done():
        ready_future.set_result(None)
