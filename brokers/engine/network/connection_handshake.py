"""A connection before its first request: a PROXY protocol header names the client, then TLS agrees on keys (CKA-8).

The connection counts among those of its listener, and has a deadline for each of the two steps.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from socket import MSG_PEEK, socket
from time import perf_counter
from typing import Final, Protocol

from brokers.contract.connections import HANDSHAKE_MS_MAX, PROXY_HEADER_MS_MAX
from brokers.engine.network import closing
from brokers.engine.network.buffers import FrameBuffers
from brokers.engine.network.handshakes import HandshakeGroup, Handshakes
from brokers.engine.network.inbound_frames import InboundFrames
from brokers.engine.network.interfaces import OwnedConnection, PeerOwner
from brokers.engine.network.listener_rules import ListenerRules, MakeSession
from brokers.engine.network.proxy_protocol import NotProxyHeader, missing_bytes, read_client_address
from brokers.engine.network.tls_stream import PLAINTEXT_ALPN, TlsStream, is_loopback, plain_socket

# First byte of a TLS handshake. A Kafka frame that began with it would be too long.
TLS_HANDSHAKE: Final = b"\x16"


class HandshakeOwner(PeerOwner, Protocol):
    """Port that accepted the connection, and takes it over when its handshake is done."""

    rules: ListenerRules

    @property
    def group(self) -> HandshakeGroup: ...

    def refuses(self, client_host: str) -> bool:
        """True if this client is not accepted; the refusal is then counted and reported."""

    def throttle(self, accepted: socket, client_host: str) -> bool:
        """True if the client's address exceeds its rate of connections; the owner then takes over `accepted`."""

    def on_client(self, connection: OwnedConnection, client_host: str) -> None:
        """Counts the connection for the client that a proxy named, instead of for the proxy."""

    def enter(self, accepted: socket | TlsStream, client_host: str, make_session: MakeSession | None = None) -> None:
        """Takes over the connection after its handshake. `make_session` is set if TLS identified the client."""

    def close_connection(self, connection: OwnedConnection, reason: str) -> None:
        """Closes the connection for one of the reasons in `closing`."""

    def on_handshake_failed(self, peer_host: str, error: Exception) -> None: ...


class ConnectionHandshake:
    """A connection before its first request (an `OwnedConnection`); it becomes a `Connection`, or is closed."""

    __slots__ = (
        "_address", "_continues_in_plaintext", "_deadline", "_fd", "_handshakes", "_header", "_is_closed",
        "_is_in_thread", "_is_watching", "_loop", "_make_session", "_owner", "_socket", "_tls", "client_host",
        "idle_sweeps", "inbound", "peer_host",
    )  # fmt: skip

    # A handshake has its own deadlines, so `closing` finds no reason to close it.
    is_busy: Final = True
    is_stalled: Final = False
    is_waiting: Final = False
    unsent_bytes: Final = 0

    def __init__(
        self,
        accepted: socket,
        address: str,
        owner: HandshakeOwner,
        buffers: FrameBuffers,
        loop: asyncio.AbstractEventLoop,
        handshakes: Handshakes,
    ) -> None:
        self._socket = accepted
        self._address = address
        self._fd = accepted.fileno()
        self._owner = owner
        self._loop = loop
        self._handshakes = handshakes
        self._tls: ssl.SSLSocket | None = None
        self._make_session: MakeSession | None = None
        self._header = b""
        self._is_in_thread = self._is_closed = self._is_watching = self._continues_in_plaintext = False
        self._deadline: asyncio.TimerHandle | None = None
        self.peer_host = self.client_host = address
        self.idle_sweeps = 0
        self.inbound = InboundFrames(owner.unread, buffers, owner.group)

    def start(self, is_proxied: bool) -> None:
        if is_proxied:
            self._await_readable(self._read_header, PROXY_HEADER_MS_MAX, closing.NO_PROXY_HEADER)
        else:
            self._begin_handshake()

    def _await_readable(self, on_readable: Callable[[], object], ms_max: int, reason: str) -> None:
        self._deadline = self._loop.call_later(ms_max / 1_000, self._close_for, reason)
        self._watch(on_readable)

    def _watch(self, on_readable: Callable[[], object]) -> None:
        self._is_watching = True
        self._loop.add_reader(self._fd, self._run_charged, on_readable)

    def _run_charged(self, step: Callable[..., object], *arguments: object) -> None:
        """Runs a step and charges its time to the instance."""
        began_s = perf_counter()
        try:
            step(*arguments)
        finally:
            self._owner.turns.charge(began_s, perf_counter())

    def _unwatch(self) -> None:
        """Stops watching the socket, once: a thread may have closed it, and another socket may use its descriptor."""
        if self._is_watching:
            self._is_watching = False
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)

    def _close_for(self, reason: str) -> None:
        self._owner.close_connection(self, reason)

    # -- PROXY protocol -----------------------------------------------------------------------------------------------

    def _read_header(self) -> None:
        """Reads the header and no further byte, since the following bytes are the client's."""
        try:
            received = self._socket.recv(missing_bytes(self._header))
            if not received:
                self.close("closed by the peer")
                return
            self._header += received
            if missing_bytes(self._header):
                return
            client = read_client_address(self._header)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(error.strerror or "connection lost")
            return
        except NotProxyHeader as error:
            self._owner.on_malformed(self.peer_host, error)
            self._close_for(closing.NO_PROXY_HEADER)
            return
        self._on_client(client or self.peer_host)

    def _on_client(self, client_host: str) -> None:
        self._stop_waiting()
        self.client_host = client_host
        if self._owner.refuses(client_host):
            self.close("refused")
        elif self._owner.throttle(self._socket, client_host):
            self._hand_over("held back")
        else:
            self._owner.on_client(self, client_host)
            if self._owner.rules.tls is not None:
                self._begin_handshake()
            else:
                self._enter(self._socket)

    # -- TLS ----------------------------------------------------------------------------------------------------------

    def _begin_handshake(self) -> None:
        """Waits for the peer's first bytes; no TLS state is created for a silent peer."""
        self._await_readable(self._on_hello, HANDSHAKE_MS_MAX, closing.HANDSHAKE)

    def _on_hello(self) -> None:
        if self._tls is None:
            if self._owner.rules.admits_plaintext is not None and self._handle_plaintext():
                return
            drop = partial(self._close_for, closing.HANDSHAKE)
            self._handshakes.begin(self._owner.group, self.client_host, self, drop)
        self._submit_step()

    def _handle_plaintext(self) -> bool:
        """True if the handshake must not go on: nothing was received, or the peer began without TLS."""
        try:
            first_byte = self._socket.recv(1, MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return True  # nothing received yet
        except OSError as error:
            self.close(error.strerror or "connection lost")
            return True
        if first_byte == TLS_HANDSHAKE:
            return False
        admits = self._owner.rules.admits_plaintext
        if not first_byte:
            self.close("closed by the peer")
        elif admits is not None and admits():
            self._stop_waiting()
            self._enter(self._socket)
        else:
            self._owner.on_handshake_failed(self.client_host, ConnectionRefusedError(0, "the peer does not speak TLS"))
            self._close_for(closing.HANDSHAKE)
        return True

    def _submit_step(self) -> None:
        self._unwatch()
        self._is_in_thread = True
        self._handshakes.submit(
            self._owner.group, self.client_host, self._do_handshake, partial(self._run_charged, self._on_step)
        )

    def _do_handshake(self) -> None:
        """Runs a step of the handshake in a thread, while the event loop does not use the socket."""
        if self._is_closed:
            return
        if self._tls is None:
            tls = self._owner.rules.tls
            assert tls is not None, "the route has no TLS"
            self._tls = tls().wrap_socket(self._socket, server_side=True, do_handshake_on_connect=False)
        self._tls.do_handshake()
        identify = self._owner.rules.identify
        if identify is not None and self._make_session is None:
            self._make_session = identify(self._tls)
        if self._tls.selected_alpn_protocol() == PLAINTEXT_ALPN:
            if not is_loopback(self._address):
                raise ConnectionRefusedError(0, "only a peer on this machine goes on without encryption")
            self._tls.unwrap()
            self._continues_in_plaintext = True

    def _on_step(self, error: BaseException | None) -> None:
        self._is_in_thread = False
        if self._is_closed:
            self._close_socket()
        elif error is None:
            self._stop_waiting()
            assert self._tls is not None, "the handshake has begun"
            if self._continues_in_plaintext:
                self._enter(plain_socket(self._tls))
            else:
                self._enter(TlsStream(self._tls, self._loop))
        elif isinstance(error, ssl.SSLWantReadError):
            self._watch(self._submit_step)
        elif isinstance(error, ssl.SSLWantWriteError):
            self._is_watching = True
            self._loop.add_writer(self._fd, self._run_charged, self._submit_step)
        elif isinstance(error, (OSError, ValueError)):
            self._owner.on_handshake_failed(self.client_host, error)
            self._close_for(closing.HANDSHAKE)
        else:
            assert isinstance(error, Exception), "the pool's threads pass on exceptions only"
            self._owner.on_fault(self.client_host, error)
            self._close_for(closing.HANDSHAKE)

    # -- end ----------------------------------------------------------------------------------------------------------

    def _enter(self, accepted: socket | TlsStream) -> None:
        self._hand_over("entered")
        make_session, self._make_session = self._make_session, None
        self._owner.enter(accepted, self.client_host, make_session)

    def _hand_over(self, reason: str) -> None:
        """Ends the handshake without closing the socket, which gets another owner."""
        self._is_closed = True
        self._handshakes.end(self._owner.group, self.client_host, self)
        self._owner.on_closed(self, reason)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._unwatch()

    def close(self, reason: str) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._stop_waiting()
        self._handshakes.end(self._owner.group, self.client_host, self)
        if not self._is_in_thread:
            self._close_socket()
        self._owner.on_closed(self, reason)

    def _close_socket(self) -> None:
        self._socket.close()
        if self._tls is not None:
            self._tls.close()
