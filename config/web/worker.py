"""Worker of gunicorn: an event loop receives requests and serves slow readers, threads execute requests."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import resource
import selectors
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from gunicorn.workers.base import Worker as BaseWorker

from config.environment import trusted_proxies
from config.web.addresses import is_trusted, parse_address
from config.web.answering import execute, finish_live, send_live_part
from config.web.connection import WebConnection
from config.web.connections import Connections
from config.web.deadlines import ConnectionPhase
from config.web.lanes import WaitingRequest
from config.web.limits import (
    BUFFERED_BYTES_MAX,
    CONNECTIONS_MAX,
    KERNEL_RECEIVE_BYTES_MAX,
    LINGER_BYTES_MAX,
    RECEIVE_BYTES,
    UNSENT_BYTES_MAX,
)
from config.web.outgoing import Outgoing
from config.web.rate_limited_log import RateLimitedLog
from config.web.refusals import refusal, status_of
from config.web.threads import LaneThreads

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
CHECK_EVERY_S = 0.5
ACCEPTS_AT_ONCE = 32
CALLS_AT_ONCE = 64
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# Files of Django, PostgreSQL and Redis in addition to connections.
OTHER_FILES_MAX = 500


class Worker(BaseWorker):
    """One event loop and the threads of the lanes (`config.web.lanes`)."""

    def init_process(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        files_needed = CONNECTIONS_MAX + OTHER_FILES_MAX
        if 0 <= soft < files_needed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files_needed if hard < 0 else min(files_needed, hard), hard))
        self.trusted = trusted_proxies()
        self.connections: Connections[WebConnection] = Connections()
        self.notices = RateLimitedLog(self.log.warning)
        self.threads: LaneThreads[WebConnection] = LaneThreads(self._run_request)
        self.poller = selectors.DefaultSelector()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._checked_at_s = 0.0
        self._buffered_bytes = 0  # as of the last count, plus bytes received since
        super().init_process()

    def handle_exit(self, sig: int, frame: Any) -> None:
        super().handle_exit(sig, frame)
        self._wake()

    # --- event loop ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        self.poller.register(self._wake_reader, READ, self._run_calls)
        for listener in self.sockets:
            listener.setblocking(False)
            # Accepted connections inherit the size of the receive buffer.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_RECEIVE_BYTES_MAX)
            self.poller.register(listener, READ, partial(self._accept, listener))
        while self.alive and self.ppid == os.getppid():
            self._run_once()
        self._stop()

    def _stop(self) -> None:
        """Lets running requests finish within the grace period; all other connections are closed."""
        for listener in self.sockets:
            self.poller.unregister(listener)
            listener.close()
        deadline_s = time.monotonic() + self.cfg.graceful_timeout
        for connection in self.connections:
            if (
                connection.phase in (ConnectionPhase.IDLE, ConnectionPhase.LINGER, ConnectionPhase.LIVE)
                or not connection.has_begun
            ):
                self._close(connection)
        while len(self.connections) and time.monotonic() < deadline_s:
            self._run_once()
        self.threads.close()

    def _run_once(self) -> None:
        self.notify()
        for key, events in self.poller.select(CHECK_EVERY_S):
            if isinstance(key.data, WebConnection):
                self._on_event(key.data, events)
            else:
                key.data()
        now_s = time.monotonic()
        if now_s - self._checked_at_s >= CHECK_EVERY_S:
            self._checked_at_s = now_s
            self._check(now_s)

    def _call_soon(self, function: Callable[[], None]) -> None:
        """Makes the loop call `function`; may be called from any thread."""
        self._calls.put(function)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # a full pipe wakes as well
            os.write(self._wake_writer, b"\0")

    def _run_calls(self) -> None:
        with contextlib.suppress(OSError):
            os.read(self._wake_reader, 4096)
        for _ in range(CALLS_AT_ONCE):
            try:
                function = self._calls.get_nowait()
            except queue.Empty:
                return
            function()
        self._wake()  # there may be more calls; other events come first

    def _check(self, now_s: float) -> None:
        """Enforces deadlines of receiving, waiting for a thread, and sending. Continues live responses."""
        for connection in self.connections:
            due_s = connection.due_s()
            if due_s is not None and now_s >= due_s:
                self._handle_overdue(connection)
            elif connection.phase is ConnectionPhase.LIVE and now_s >= connection.step_due_s:
                self._submit_live_step(connection, now_s)
        for waiting in self.threads.pop_expired(now_s):
            self._refuse_queued(waiting.item)
        self._close_for_bytes()
        self.notices.flush(now_s)

    def _handle_overdue(self, connection: WebConnection) -> None:
        if connection.phase in (ConnectionPhase.HEAD, ConnectionPhase.BODY) and connection.has_begun:
            self._refuse(connection, 408)
        else:
            self._close(
                connection,
                None
                if connection.phase in (ConnectionPhase.IDLE, ConnectionPhase.LINGER)
                else f"overdue in {connection.phase.name}",
            )

    def _submit_live_step(self, connection: WebConnection, now_s: float) -> None:
        """Lets a thread send the next part of a live response, unless much of the earlier ones is unsent."""
        assert connection.live is not None
        if connection.outgoing.unsent_bytes > UNSENT_BYTES_MAX // 2:
            return
        self._select_events(connection, 0 if connection.outgoing.is_empty else WRITE)
        connection.enter(ConnectionPhase.WORK, now_s)
        refused = self.threads.submit_live(WaitingRequest(connection.live.owner, now_s, connection))
        if refused is not None:
            self._refuse_queued(refused.item)

    def _refuse_queued(self, connection: WebConnection) -> None:
        """Ends a connection whose request got no thread."""
        if connection.live is None:
            self._refuse(connection, 503)
        else:
            connection.enter(ConnectionPhase.LIVE, time.monotonic())
            self._close(connection, "no thread for a live response")

    # --- connections ---------------------------------------------------------------------------------------------

    def _accept(self, listener: Any) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, peer = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._close_for_files()
                elif error.errno != errno.ECONNABORTED:
                    raise
                return
            self._add(sock, peer if isinstance(peer, tuple) else ("127.0.0.1", 0), listener.getsockname())

    def _add(self, sock: socket.socket, peer: tuple[str, int], server: Any) -> None:
        sock.setblocking(False)
        is_proxy = is_trusted(parse_address(peer[0]), self.trusted)
        outgoing = Outgoing(sock, lambda: self._call_soon(lambda: self._on_blocked(connection)))
        connection = WebConnection(sock, peer, server, outgoing, is_proxy=is_proxy)
        connection.enter(ConnectionPhase.HEAD, time.monotonic())
        self.connections.add(connection)
        if self.connections.exceeds_limit(connection.client, is_proxy=is_proxy):
            victim = self.connections.victim(connection) or connection
            self._close(victim, "too many connections")
            if victim is connection:
                return
        self._select_events(connection, READ)

    def _close_for_files(self) -> None:
        """Closes a connection of the client with most, because the process has no free file descriptor."""
        victim = self.connections.stalest(self.connections.of_busiest_client())
        if victim is not None:
            self._close(victim, "too many open files")

    def _close_for_bytes(self) -> None:
        """Closes connections with the most buffered bytes until all others together are below the limit."""
        self._buffered_bytes = sum(connection.buffered_bytes for connection in self.connections)
        while self._buffered_bytes > BUFFERED_BYTES_MAX:
            victim = self.connections.most_buffered()
            if victim is None:
                return
            self._buffered_bytes -= victim.buffered_bytes
            self._close(victim, "too many bytes held")

    def _select_events(self, connection: WebConnection, events: int) -> None:
        """Sets the events for which the selector watches the connection; 0 for none."""
        if connection.events == events or connection.is_closed:
            return
        if not connection.events:
            self.poller.register(connection.sock, events, connection)
        elif not events:
            self.poller.unregister(connection.sock)
        else:
            self.poller.modify(connection.sock, events, connection)
        connection.events = events

    def _close(self, connection: WebConnection, reason: str | None = None) -> None:
        if connection.is_closed:
            return
        self._select_events(connection, 0)
        connection.is_closed = True
        self.connections.remove(connection)
        connection.outgoing.close()
        connection.sock.close()
        if connection.phase is not ConnectionPhase.WORK:  # else its thread ends the live response
            finish_live(self, connection)
        if reason is not None:
            self.notices.add(f"connections closed: {reason}", time.monotonic())

    def _linger(self, connection: WebConnection) -> None:
        """Waits briefly for the client to close after the last response."""
        try:
            connection.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._close(connection)
            return
        connection.forget_request()
        connection.enter(ConnectionPhase.LINGER, time.monotonic())
        self._select_events(connection, READ)

    def _refuse(self, connection: WebConnection, status: int) -> None:
        """Answers with a problem and closes. The socket buffer has room: nothing else was sent on this connection."""
        self.notices.add(f"requests refused: {status}", time.monotonic())
        with contextlib.suppress(OSError):
            connection.sock.send(refusal(status))
        self._linger(connection)

    # --- events of one connection --------------------------------------------------------------------------------

    def _on_event(self, connection: WebConnection, events: int) -> None:
        if connection.is_closed:  # closed by an earlier event of this iteration
            return
        try:
            if events & WRITE:
                self._on_writable(connection)
            else:
                self._on_readable(connection)
        except Exception:
            self.log.exception("a connection failed")
            self._close(connection)

    def _on_readable(self, connection: WebConnection) -> None:
        try:
            data = connection.sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._close(connection)
            return
        if not data:
            self._close(connection)
            return
        if connection.phase in (ConnectionPhase.LINGER, ConnectionPhase.LIVE):
            connection.lingered_bytes += len(data)
            if connection.lingered_bytes > LINGER_BYTES_MAX:
                self._close(connection)
            return
        if connection.phase is ConnectionPhase.IDLE:
            connection.enter(ConnectionPhase.HEAD, time.monotonic())
        connection.receive(data)
        self._buffered_bytes += len(data)
        if self._buffered_bytes > BUFFERED_BYTES_MAX:
            self._close_for_bytes()
        if not connection.is_closed:
            self._read_request(connection)

    def _read_request(self, connection: WebConnection) -> None:
        try:
            is_complete = connection.read_request(self.cfg, time.monotonic())
        except Exception as error:
            status = status_of(error)
            if status == 500:
                self.log.exception("a request failed outside of Django")
            self._refuse(connection, status)
            return
        if is_complete:
            self._select_events(connection, 0)
            connection.enter(ConnectionPhase.WORK, time.monotonic())
            assert connection.request is not None
            waiting = WaitingRequest(connection.client_of(self.trusted), connection.since_s, connection)
            refused = self.threads.submit(connection.request.path, waiting)
            if refused is not None:
                self._refuse_queued(refused.item)
            return
        if connection.take_continue_request():
            with contextlib.suppress(OSError):
                connection.sock.send(CONTINUE)
        self._select_events(connection, READ)

    def _on_blocked(self, connection: WebConnection) -> None:
        """Handles data that a thread left unsent."""
        if connection.is_closed or connection.outgoing.is_empty:
            return
        connection.blocked_since_s, connection.blocked_at_bytes = time.monotonic(), connection.outgoing.sent_bytes
        self._select_events(connection, WRITE)

    def _on_writable(self, connection: WebConnection) -> None:
        try:
            is_done = connection.outgoing.flush()
        except OSError:
            self._close(connection)
            return
        if is_done:
            connection.blocked_since_s = None
            self._select_events(connection, READ if connection.phase is ConnectionPhase.LIVE else 0)
            if connection.phase is ConnectionPhase.ANSWER:
                self._on_response_sent(connection)

    def _on_request_done(self, connection: WebConnection) -> None:
        """Handles the end of a request's thread."""
        if connection.is_closed:
            finish_live(self, connection)
            return
        if connection.live is not None:
            now_s = time.monotonic()
            connection.step_due_s = now_s + (connection.live.wait_s or 0.0)
            connection.enter(ConnectionPhase.LIVE, now_s)
            self._select_events(connection, READ if connection.outgoing.is_empty else WRITE)
            if not self.alive:
                self._close(connection)
            return
        if connection.outgoing.is_empty:
            self._on_response_sent(connection)
        else:
            connection.enter(ConnectionPhase.ANSWER, time.monotonic())

    def _on_response_sent(self, connection: WebConnection) -> None:
        if not connection.is_keep_alive or not self.alive:
            self._linger(connection)
            return
        connection.forget_request()
        connection.enter(ConnectionPhase.HEAD if connection.has_begun else ConnectionPhase.IDLE, time.monotonic())
        if connection.has_begun:
            self._read_request(connection)
        else:
            self._select_events(connection, READ)

    # --- threads --------------------------------------------------------------------------------------------------

    def _run_request(self, connection: WebConnection) -> None:
        connection.is_keep_alive = False
        try:
            if connection.live is not None:
                send_live_part(self, connection)
            else:
                connection.is_keep_alive = execute(self, connection)
        finally:
            self._call_soon(lambda: self._on_request_done(connection))
