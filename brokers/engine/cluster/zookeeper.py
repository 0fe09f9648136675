"""Tree in a real ZooKeeper ensemble: the only module that uses kazoo.

kazoo's connection thread does the socket work. Its callbacks are queued and run on the event loop, in the order of the
server's messages, so responses and watches never overtake each other. State changes are forwarded separately.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.security import ACL, Id

from brokers.contract.zookeeper_access import DIGEST, Credentials, Grant, TreeAccess
from brokers.contract.zookeeper_tls import ZooKeeperTls
from brokers.engine.cluster import tree
from brokers.engine.cluster.errors import StoreUnavailable
from brokers.engine.cluster.tree import Check, Create, Delete, Node, Operation, SessionState, Set, TreeError, Watch
from brokers.engine.scheduling.time_slice import yield_to_others

RECONNECT_DELAY_S = 0.05
RECONNECT_DELAY_S_MAX = 1.0

_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}
_TREE_ERRORS: tuple[tuple[type[Exception], type[TreeError]], ...] = (
    (kazoo_errors.NodeExistsError, tree.NodeExists),
    (kazoo_errors.NoNodeError, tree.NoNode),
    (kazoo_errors.BadVersionError, tree.BadVersion),
    (kazoo_errors.NotEmptyError, tree.NotEmpty),
)


class _LoopQueue:
    """Queue of kazoo's handler: `put` is called in any thread, and the calls run on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], object]] = deque()
        self._scheduled = False

    def put(self, call: Callable[[], object]) -> None:
        self._calls.append(call)
        if not self._scheduled and not self._loop.is_closed():
            self._scheduled = True
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        # Cleared first: a call that arrives from now on schedules another run, so none is forgotten.
        self._scheduled = False
        while self._calls:
            call = self._calls.popleft()
            try:
                call()
            except Exception as error:  # the next calls belong to other requests
                self._loop.call_exception_handler({"message": "a callback of ZooKeeper failed", "exception": error})


class _Wake:
    """Replacement of both ends of kazoo's socket pair; its counter is the number of queued requests.

    It wakes kazoo's connection thread. kazoo's own socket pair holds fewer than 300 bytes. While ZooKeeper is
    unavailable they are not read, and the writer, which is the event loop, would block until it is back.
    """

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._descriptor

    def send(self, data: bytes) -> int:
        os.eventfd_write(self._descriptor, len(data))
        return len(data)

    def recv(self, _bytes_max: int) -> bytes:
        """Reads one byte. Raises BlockingIOError if there is none."""
        return bytes(os.eventfd_read(self._descriptor))

    def close(self) -> None:
        """Closes the descriptor; may be called repeatedly."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class _LoopHandler(SequentialThreadingHandler):
    """Variant of kazoo's handler without worker threads, which waits with a single system call.

    kazoo's own handler creates an epoll object for each wait, three times per response, while the event loop waits for
    the interpreter lock.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.completion_queue = self.callback_queue = _LoopQueue(loop)

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        """Does nothing, so that later results reach the event loop, too; kazoo would set them in its own thread."""

    def create_socket_pair(self) -> tuple[_Wake, _Wake]:
        wake = _Wake()
        return wake, wake

    def select(
        self, reading: Sequence[Any], writing: Sequence[Any], _: Sequence[Any], timeout_s: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Works like `select.select` for any descriptor."""
        poll = select.poll()
        sockets = {}
        for events, files in ((select.POLLIN, reading), (select.POLLOUT, writing)):
            for file in files:
                descriptor = file if isinstance(file, int) else file.fileno()
                poll.register(descriptor, events)
                sockets[descriptor] = file, events
        ready = [sockets[descriptor] for descriptor, _ in poll.poll(None if timeout_s is None else timeout_s * 1000)]
        readable = [file for file, events in ready if events == select.POLLIN]
        writable = [file for file, events in ready if events == select.POLLOUT]
        return readable, writable, []


class Identity(NamedTuple):
    """Credentials of a broker, and the access lists of the nodes that it creates."""

    credentials: Credentials
    access: TreeAccess


class ZooKeeperTree:
    """Tree of the ensemble `hosts`, `host:port[,host:port][/chroot]`; a missing chroot is created.

    Without an identity nodes are open to everybody with access to ZooKeeper.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int,
        identity: Identity | None = None,
        tls: ZooKeeperTls | None = None,
    ) -> None:
        self._identity = identity
        self._loop = asyncio.get_running_loop()
        self._timeout_s = session_timeout_ms / 1000
        self._subscribers: list[Callable[[SessionState], None]] = []
        self._connected = asyncio.Event()
        logger = logging.getLogger("kazoo.client")
        logger.setLevel(logging.WARNING)
        self._client = KazooClient(
            hosts=hosts,
            timeout=self._timeout_s,
            handler=_LoopHandler(self._loop),
            auth_data=[identity.credentials.auth] if identity else None,
            connection_retry={
                "max_tries": -1,
                "delay": RECONNECT_DELAY_S,
                "backoff": 2,
                "max_delay": RECONNECT_DELAY_S_MAX,
            },
            logger=logger,
            **(tls.kazoo_options() if tls else {}),
        )
        self._client.add_listener(self._on_kazoo_state)

    async def start(self) -> None:
        """Opens the session and creates the chroot.

        Raises:
            StoreUnavailable: no response within the session timeout. The session is closed then, as after any error.
        """
        self._client.start_async()
        try:
            await self._await_connection()
            await self._make_chroot()
        except BaseException:
            await self.stop()
            raise

    async def _await_connection(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._connected.wait()
        except TimeoutError:
            raise StoreUnavailable("ZooKeeper does not answer") from None

    async def stop(self) -> None:
        """Closes the session and thus deletes its ephemeral nodes; kazoo waits for its thread, so this runs in a
        thread.
        """
        await asyncio.to_thread(self._client.stop)
        await asyncio.to_thread(self._client.close)

    @property
    def session_id(self) -> int:
        identity = self._client.client_id
        return identity[0] if identity is not None and identity[0] is not None else 0

    def subscribe(self, on_state: Callable[[SessionState], None]) -> None:
        self._subscribers.append(on_state)

    async def get(self, path: str, watch: Watch | None = None) -> Node | None:
        while True:
            try:
                data, stat = await self._await_result(self._client.get_async(path, _watcher(watch)))
            except tree.NoNode:
                # Only `exists` leaves a watch on a missing node; if it was created meanwhile, it is read again.
                if watch is None or await self._await_result(self._client.exists_async(path, _watcher(watch))) is None:
                    return None
                continue
            return _node(data, stat)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        responses = await self._pipeline(self._client.get_async, paths)
        return [None if response is None else _node(*response) for response in responses]

    async def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        try:
            names: list[str] = await self._await_result(self._client.get_children_async(path, _watcher(watch)))
        except tree.NoNode:
            return None
        return names

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        return await self._pipeline(self._client.get_children_async, paths)

    async def commit(self, operations: Sequence[Operation]) -> list[str]:
        transaction = self._client.transaction()
        for operation in operations:
            match operation:
                case Create(path, data, ephemeral, sequence):
                    transaction.create(path, data, self._acl(path), ephemeral=ephemeral, sequence=sequence)
                case Set(path, data, version):
                    transaction.set_data(path, data, version=-1 if version is None else version)
                case Delete(path, version):
                    transaction.delete(path, version=-1 if version is None else version)
                case Check(path, version):
                    transaction.check(path, version)
        results = await self._await_result(transaction.commit_async())
        for index, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(
                result, kazoo_errors.RolledBackError | kazoo_errors.RuntimeInconsistency
            ):
                raise _translate_error(result, f"{operations[index].path}: {result!r}", index)
        return [result if isinstance(result, str) else op.path for op, result in zip(operations, results, strict=True)]

    def _acl(self, path: str) -> list[ACL] | None:
        return _kazoo_acl(self._identity.access.acl(path)) if self._identity else None

    async def _make_chroot(self) -> None:
        """Creates the chroot, for which kazoo's path prefix is disabled temporarily."""
        chroot, self._client.chroot = self._client.chroot, ""
        try:
            path = ""
            for part in chroot.strip("/").split("/") if chroot else ():
                path += f"/{part}"
                # Creating an existing node requires a permission that a broker does not have at the root.
                if await self._await_result(self._client.exists_async(path)) is not None:
                    continue
                acl = _kazoo_acl(self._identity.access.absolute_acl(path)) if self._identity else None
                try:
                    await self._await_result(self._client.create_async(path, acl=acl))
                except tree.NodeExists:
                    continue
        finally:
            self._client.chroot = chroot

    async def _pipeline(self, call: Callable[[str], Any], paths: Sequence[str]) -> list[Any]:
        """Returns the responses in order, None for missing nodes; the event loop is woken once per window of
        requests.
        """
        responses: list[Any] = []
        for start in range(0, len(paths), tree.READS_IN_FLIGHT_MAX):
            window: list[Any] = []
            for begin in range(start, min(start + tree.READS_IN_FLIGHT_MAX, len(paths)), tree.READS_PER_TURN_MAX):
                if window:
                    await yield_to_others()
                window += map(
                    call, paths[begin : min(begin + tree.READS_PER_TURN_MAX, start + tree.READS_IN_FLIGHT_MAX)]
                )
            # Responses of a session come in the order of its requests, so after the last one all are there.
            with contextlib.suppress(tree.NoNode):
                await self._await_result(window[-1])
            for result in window:
                if not result.ready():
                    raise StoreUnavailable("ZooKeeper answered out of order")
                error = result.exception
                if error is None:
                    responses.append(result.value)
                elif isinstance(error, kazoo_errors.NoNodeError):
                    responses.append(None)
                else:
                    raise _translate_error(error, repr(error), 0)
        return responses

    async def _await_result(self, result: Any) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(response: Any) -> None:
            if future.done():
                return
            if response.exception is not None:
                future.set_exception(_translate_error(response.exception, repr(response.exception), 0))
            else:
                future.set_result(response.value)

        result.rawlink(done)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await future
        except TimeoutError:
            raise StoreUnavailable("ZooKeeper does not answer") from None

    def _on_kazoo_state(self, state: str) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._notify_state, _STATES[state])

    def _notify_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._connected.set()
        for subscriber in self._subscribers:
            subscriber(state)


def _watcher(watch: Watch | None) -> Callable[[object], None] | None:
    return None if watch is None else lambda _event: watch()


def _kazoo_acl(grants: Iterable[Grant]) -> list[ACL]:
    return [ACL(grant.permissions, Id(DIGEST, grant.digest)) for grant in grants]


def _node(data: bytes, stat: Any) -> Node:
    return Node(
        data=data or b"",
        version=stat.version,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        owner=stat.ephemeralOwner,
        created_ms=stat.ctime,
    )


def _translate_error(error: BaseException, message: str, index: int) -> Exception:
    """Returns the `TreeError` for an exception of kazoo; StoreUnavailable for all others, such as that of a truncated
    response.
    """
    for kazoo_error, tree_error in _TREE_ERRORS:
        if isinstance(error, kazoo_error):
            return tree_error(message, index)
    return StoreUnavailable(message)
