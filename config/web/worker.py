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
from config.web.answering import advance, answer, finish_live
from config.web.connection import WebConnection
from config.web.connections import Connections
from config.web.deadlines import ConnectionPhase
from config.web.lanes import Waiting
from config.web.limits import (
    CONNECTIONS_MAX,
    HELD_BYTES_MAX,
    KERNEL_RECEIVE_BYTES_MAX,
    LINGER_BYTES_MAX,
    RECEIVE_BYTES,
    UNSENT_BYTES_MAX,
)
from config.web.notices import Notices
from config.web.outgoing import Outgoing
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
        wanted = CONNECTIONS_MAX + OTHER_FILES_MAX
        if 0 <= soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))
        self.trusted = trusted_proxies()
        self.connections: Connections[WebConnection] = Connections()
        self.notices = Notices(self.log.warning)
        self.threads: LaneThreads[WebConnection] = LaneThreads(self._work)
        self.poller = selectors.DefaultSelector()
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._checked_s = 0.0
        self._held_bytes = 0  # as of the last count, plus bytes received since
        super().init_process()

    def handle_exit(self, sig: int, frame: Any) -> None:
        super().handle_exit(sig, frame)
        self._wake()

    # --- event loop ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        self.poller.register(self._wake_reader, READ, self._run_calls)
        for listener in self.sockets:
            listener.setblocking(False)
            # Accepted connections inherit it.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_RECEIVE_BYTES_MAX)
            self.poller.register(listener, READ, partial(self._accept, listener))
        while self.alive and self.ppid == os.getppid():
            self._turn()
        self._stop()

    def _stop(self) -> None:
        """Lets running requests finish within the grace period; all other connections are closed."""
        for listener in self.sockets:
            self.poller.unregister(listener)
            listener.close()
        deadline_s = time.monotonic() + self.cfg.graceful_timeout
        for one in self.connections:
            if one.phase in (ConnectionPhase.IDLE, ConnectionPhase.LINGER, ConnectionPhase.LIVE) or not one.has_begun:
                self._close(one)
        while len(self.connections) and time.monotonic() < deadline_s:
            self._turn()
        self.threads.close()

    def _turn(self) -> None:
        self.notify()
        for key, events in self.poller.select(CHECK_EVERY_S):
            if isinstance(key.data, WebConnection):
                self._on_event(key.data, events)
            else:
                key.data()
        now_s = time.monotonic()
        if now_s - self._checked_s >= CHECK_EVERY_S:
            self._checked_s = now_s
            self._check(now_s)

    def _call(self, function: Callable[[], None]) -> None:
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
        for one in self.connections:
            due_s = one.due_s()
            if due_s is not None and now_s >= due_s:
                self._overdue(one)
            elif one.phase is ConnectionPhase.LIVE and now_s >= one.step_due_s:
                self._continue(one, now_s)
        for waiting in self.threads.expired(now_s):
            self._give_up(waiting.item)
        self._make_room_for_bytes()
        self.notices.flush(now_s)

    def _overdue(self, one: WebConnection) -> None:
        if one.phase in (ConnectionPhase.HEAD, ConnectionPhase.BODY) and one.has_begun:
            self._refuse(one, 408)
        else:
            self._close(
                one,
                None if one.phase in (ConnectionPhase.IDLE, ConnectionPhase.LINGER) else f"overdue in {one.phase.name}",
            )

    def _continue(self, one: WebConnection, now_s: float) -> None:
        """Lets a thread send the next part of a live response, unless its reader has not taken the last ones."""
        assert one.live is not None
        if one.outgoing.unsent_bytes > UNSENT_BYTES_MAX // 2:
            return
        self._wait_for(one, 0 if one.outgoing.is_empty else WRITE)
        one.enter(ConnectionPhase.WORK, now_s)
        refused = self.threads.submit_live(Waiting(one.live.owner, now_s, one))
        if refused is not None:
            self._give_up(refused.item)

    def _give_up(self, one: WebConnection) -> None:
        """Ends a connection whose request got no thread."""
        if one.live is None:
            self._refuse(one, 503)
        else:
            one.enter(ConnectionPhase.LIVE, time.monotonic())
            self._close(one, "no thread for a live response")

    # --- connections ---------------------------------------------------------------------------------------------

    def _accept(self, listener: Any) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                sock, peer = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._make_room_for_files()
                elif error.errno != errno.ECONNABORTED:
                    raise
                return
            self._add(sock, peer if isinstance(peer, tuple) else ("127.0.0.1", 0), listener.getsockname())

    def _add(self, sock: socket.socket, peer: tuple[str, int], server: Any) -> None:
        sock.setblocking(False)
        is_proxy = is_trusted(parse_address(peer[0]), self.trusted)
        outgoing = Outgoing(sock, lambda: self._call(lambda: self._on_blocked(one)))
        one = WebConnection(sock, peer, server, outgoing, is_proxy=is_proxy)
        one.enter(ConnectionPhase.HEAD, time.monotonic())
        self.connections.add(one)
        if self.connections.is_over(one.client, is_proxy=is_proxy):
            victim = self.connections.victim(one) or one
            self._close(victim, "too many connections")
            if victim is one:
                return
        self._wait_for(one, READ)

    def _make_room_for_files(self) -> None:
        victim = self.connections.stalest(self.connections.most())
        if victim is not None:
            self._close(victim, "too many open files")

    def _make_room_for_bytes(self) -> None:
        self._held_bytes = sum(one.held_bytes for one in self.connections)
        while self._held_bytes > HELD_BYTES_MAX:
            victim = self.connections.heaviest()
            if victim is None:
                return
            self._held_bytes -= victim.held_bytes
            self._close(victim, "too many bytes held")

    def _wait_for(self, one: WebConnection, events: int) -> None:
        if one.events == events or one.is_closed:
            return
        if not one.events:
            self.poller.register(one.sock, events, one)
        elif not events:
            self.poller.unregister(one.sock)
        else:
            self.poller.modify(one.sock, events, one)
        one.events = events

    def _close(self, one: WebConnection, why: str | None = None) -> None:
        if one.is_closed:
            return
        self._wait_for(one, 0)
        one.is_closed = True
        self.connections.remove(one)
        one.outgoing.close()
        one.sock.close()
        if one.phase is not ConnectionPhase.WORK:  # else its thread ends the live response
            finish_live(self, one)
        if why is not None:
            self.notices.add(f"connections closed: {why}", time.monotonic())

    def _linger(self, one: WebConnection) -> None:
        """Waits briefly for the client to close after the last response."""
        try:
            one.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._close(one)
            return
        one.forget_request()
        one.enter(ConnectionPhase.LINGER, time.monotonic())
        self._wait_for(one, READ)

    def _refuse(self, one: WebConnection, status: int) -> None:
        """Answers with a problem and closes. The socket buffer has room: nothing else was sent on this connection."""
        self.notices.add(f"requests refused: {status}", time.monotonic())
        with contextlib.suppress(OSError):
            one.sock.send(refusal(status))
        self._linger(one)

    # --- events of one connection --------------------------------------------------------------------------------

    def _on_event(self, one: WebConnection, events: int) -> None:
        if one.is_closed:  # closed by an earlier event of this iteration
            return
        try:
            if events & WRITE:
                self._on_writable(one)
            else:
                self._on_readable(one)
        except Exception:
            self.log.exception("a connection failed")
            self._close(one)

    def _on_readable(self, one: WebConnection) -> None:
        try:
            data = one.sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self._close(one)
            return
        if not data:
            self._close(one)
            return
        if one.phase in (ConnectionPhase.LINGER, ConnectionPhase.LIVE):
            one.lingered_bytes += len(data)
            if one.lingered_bytes > LINGER_BYTES_MAX:
                self._close(one)
            return
        if one.phase is ConnectionPhase.IDLE:
            one.enter(ConnectionPhase.HEAD, time.monotonic())
        one.receive(data)
        self._held_bytes += len(data)
        if self._held_bytes > HELD_BYTES_MAX:
            self._make_room_for_bytes()
        if not one.is_closed:
            self._read_request(one)

    def _read_request(self, one: WebConnection) -> None:
        try:
            is_whole = one.read_request(self.cfg, time.monotonic())
        except Exception as error:
            status = status_of(error)
            if status == 500:
                self.log.exception("a request failed outside of Django")
            self._refuse(one, status)
            return
        if is_whole:
            self._wait_for(one, 0)
            one.enter(ConnectionPhase.WORK, time.monotonic())
            assert one.request is not None
            waiting = Waiting(one.asked_by(self.trusted), one.since_s, one)
            refused = self.threads.submit(one.request.path, waiting)
            if refused is not None:
                self._give_up(refused.item)
            return
        if one.wants_continue():
            with contextlib.suppress(OSError):
                one.sock.send(CONTINUE)
        self._wait_for(one, READ)

    def _on_blocked(self, one: WebConnection) -> None:
        """Handles data that a thread left unsent."""
        if one.is_closed or one.outgoing.is_empty:
            return
        one.blocked_since_s, one.blocked_at_bytes = time.monotonic(), one.outgoing.sent_bytes
        self._wait_for(one, WRITE)

    def _on_writable(self, one: WebConnection) -> None:
        try:
            is_done = one.outgoing.flush()
        except OSError:
            self._close(one)
            return
        if is_done:
            one.blocked_since_s = None
            self._wait_for(one, READ if one.phase is ConnectionPhase.LIVE else 0)
            if one.phase is ConnectionPhase.ANSWER:
                self._answered(one)

    def _on_worked(self, one: WebConnection) -> None:
        """Handles the end of a request's thread."""
        if one.is_closed:
            finish_live(self, one)
            return
        if one.live is not None:
            now_s = time.monotonic()
            one.step_due_s = now_s + (one.live.wait_s or 0.0)
            one.enter(ConnectionPhase.LIVE, now_s)
            self._wait_for(one, READ if one.outgoing.is_empty else WRITE)
            if not self.alive:
                self._close(one)
            return
        if one.outgoing.is_empty:
            self._answered(one)
        else:
            one.enter(ConnectionPhase.ANSWER, time.monotonic())

    def _answered(self, one: WebConnection) -> None:
        if not one.is_kept or not self.alive:
            self._linger(one)
            return
        one.forget_request()
        one.enter(ConnectionPhase.HEAD if one.has_begun else ConnectionPhase.IDLE, time.monotonic())
        if one.has_begun:
            self._read_request(one)
        else:
            self._wait_for(one, READ)

    # --- threads --------------------------------------------------------------------------------------------------

    def _work(self, one: WebConnection) -> None:
        one.is_kept = False
        try:
            if one.live is not None:
                advance(self, one)
            else:
                one.is_kept = answer(self, one)
        finally:
            self._call(lambda: self._on_worked(one))
