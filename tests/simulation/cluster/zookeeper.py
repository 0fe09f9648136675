"""Simulated ZooKeeper: sessions over an unreliable network, responses in order, one-shot watches.

A request whose connection is lost may have been carried out or not. Requests without a connection are sent when there
is one again, even if the caller has given up meanwhile, as kazoo does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from brokers.engine.cluster.errors import StoreUnavailable
from brokers.engine.cluster.tree import Delete, Node, Operation, SessionState, TreeError, Watch
from tests.simulation.cluster.clock import BEGAN_MS, US_PER_MS, Handle, ProcessLoop, World
from tests.simulation.cluster.network import ZOOKEEPER, Network, Place
from tests.simulation.cluster.tree import StoredTree

SESSION_TIMEOUT_MS: Final = 600
# Silence after which a client closes its connection.
SILENCE_MS: Final = SESSION_TIMEOUT_MS * 2 // 3
RECONNECT_MS: Final = 50
# Probability that a read of many nodes is interrupted by another session's write.
SPLIT_CHANCE: Final = 0.3

CONNECT, CONNECTED, EXPIRED, REQUEST, ANSWER, FIRED, CLOSE = range(7)
NO_SESSION: Final = 0
_UNKNOWN_REQUEST: Final = (None, Handle(None, list, ()))


class Connection:
    """Connection between a session's client and the ensemble."""

    def __init__(self, client: SessionTree, ensemble: Ensemble) -> None:
        network = ensemble.network
        self.client = client
        self.session_id = NO_SESSION
        self.to_server = network.connect(client.place, ZOOKEEPER, None, partial(ensemble.receive, self))
        self.to_client = network.connect(ZOOKEEPER, client.place, client.loop, partial(client.receive, self))

    def close(self) -> None:
        self.to_server.close()
        self.to_client.close()


class Ensemble:
    """The servers. While the ensemble is down it answers no requests and expires no sessions."""

    def __init__(self, world: World, network: Network, dice: random.Random) -> None:
        self.world = world
        self.network = network
        self.dice = dice
        self.tree = StoredTree()
        self.is_down = False
        self._clients: dict[int, SessionTree] = {}
        self._connections: dict[int, Connection] = {}
        self._expiries: dict[int, Handle] = {}
        self._last_session = 0
        # (path, watches its children) -> connections and their tokens.
        self._watches: dict[tuple[str, bool], list[tuple[Connection, int]]] = {}
        network.on_change(self.review)

    # -- sessions ------------------------------------------------------------------------------------------------------

    def review(self) -> None:
        """Starts or cancels the time-outs of sessions; to be called after changes of processes or the network."""
        for session_id, client in tuple(self._clients.items()):
            is_heard = self.is_down or (session_id in self._connections and client.can_be_heard)
            expiry = self._expiries.get(session_id)
            if is_heard and expiry is not None:
                expiry.cancel()
                del self._expiries[session_id]
            elif not is_heard and expiry is None:
                self._expiries[session_id] = self.world.after(SESSION_TIMEOUT_MS * US_PER_MS, self.expire, session_id)
            if session_id in self._connections and not client.can_be_heard:
                client.expect_silence()

    def expire(self, session_id: int, notified_after_ms: int = 0) -> None:
        """Expires a session; its client may be notified late."""
        client = self._clients.pop(session_id, None)
        if client is None:
            return
        self._expiries.pop(session_id, Handle(None, list, ())).cancel()
        connection = self._connections.pop(session_id, None)
        if connection is not None:
            self._forget_watches(connection)
            self.world.after(notified_after_ms * US_PER_MS, connection.to_client.send, (EXPIRED,))
        self._commit([], session_id, ends=True)

    def session_of(self, client: SessionTree) -> int:
        """Returns a client's session id in the servers."""
        return next((id for id, other in self._clients.items() if other is client), NO_SESSION)

    def write(self, operations: Sequence[Operation]) -> None:
        """Writes operations of a client that is no broker."""
        self._commit(operations, NO_SESSION)

    def stop(self) -> None:
        self.is_down = True
        for session_id, connection in tuple(self._connections.items()):
            del self._connections[session_id]
            self._forget_watches(connection)
            connection.close()
            connection.client.loop.message_at(self.world.now_us + US_PER_MS, connection.client.lose, connection)
        self.review()

    def start(self) -> None:
        self.is_down = False
        self.review()

    def detach(self, connection: Connection) -> None:
        """Ends a connection that its client has closed."""
        if self._connections.get(connection.session_id) is connection:
            del self._connections[connection.session_id]
            self._forget_watches(connection)
            self.review()

    # -- what comes in -------------------------------------------------------------------------------------------------

    def receive(self, connection: Connection, message: tuple[Any, ...]) -> None:
        if self.is_down:
            return
        kind = message[0]
        if kind == CONNECT:
            self._connect(connection, message[1])
        elif connection.session_id not in self._clients:
            if kind == REQUEST:
                connection.to_client.send((EXPIRED,))
        elif kind == REQUEST:
            _, number, operation, argument, token = message
            connection.to_client.send((ANSWER, number, self._serve(connection, operation, argument, token)))
        elif kind == CLOSE:
            session_id = connection.session_id
            del self._clients[session_id]
            self._connections.pop(session_id, None)
            self._expiries.pop(session_id, Handle(None, list, ())).cancel()
            self._forget_watches(connection)
            self._commit([], session_id, ends=True)

    def _connect(self, connection: Connection, session_id: int) -> None:
        if session_id and session_id not in self._clients:
            connection.to_client.send((EXPIRED,))
            return
        if not session_id:
            self._last_session += 1
            session_id = self._last_session
            self._clients[session_id] = connection.client
        before = self._connections.get(session_id)
        if before is not None:
            self._forget_watches(before)
            before.close()
        connection.session_id = session_id
        self._connections[session_id] = connection
        connection.to_client.send((CONNECTED, session_id))
        self.review()

    def _serve(self, connection: Connection, operation: str, argument: Any, token: int | None) -> Any:
        tree = self.tree
        if operation == "get_many":
            return [tree.read(path) for path in argument]
        if operation == "commit":
            try:
                return self._commit(argument, connection.session_id)
            except TreeError as error:
                return error
        if operation == "get":
            if token is not None:
                self._watches.setdefault((argument, False), []).append((connection, token))
            return tree.read(argument)
        names = tree.children(argument)
        if token is not None and names is not None:
            self._watches.setdefault((argument, True), []).append((connection, token))
        return names

    def _commit(self, operations: Sequence[Operation], session_id: int, *, ends: bool = False) -> list[str]:
        if ends:
            operations = [Delete(path, None) for path in self.tree.of_session(session_id)]
            if not operations:
                return []
        now_ms = BEGAN_MS + self.world.now_ms
        written = self.tree.commit(operations, session_id, now_ms)
        for path in dict.fromkeys(written.touched):
            self._fire((path, False))
        for path in dict.fromkeys(written.listed):
            self._fire((path, True))
        return written.paths

    def _fire(self, key: tuple[str, bool]) -> None:
        for connection, token in self._watches.pop(key, ()):
            connection.to_client.send((FIRED, token))

    def _forget_watches(self, connection: Connection) -> None:
        for key, watching in tuple(self._watches.items()):
            self._watches[key] = [pair for pair in watching if pair[0] is not connection]


class SessionTree:
    """The client of a session; implements `cluster.tree.Tree`. `is_running` returns True if its process can send."""

    def __init__(self, ensemble: Ensemble, place: Place, loop: ProcessLoop) -> None:
        self.place = place
        self.loop = loop
        self.session_id = NO_SESSION
        self._ensemble = ensemble
        self._connection: Connection | None = None
        self._is_up = False
        self._numbers = 0
        # Open requests by number, with their time-outs.
        self._open_requests: dict[int, tuple[asyncio.Future[Any], Handle]] = {}
        self._unsent: list[tuple[Any, ...]] = []
        self._watches: dict[int, Watch] = {}
        self._subscribers: list[Callable[[SessionState], None]] = []
        self._silences = 0
        self._connected = asyncio.Event()

    @property
    def can_be_heard(self) -> bool:
        loop = self.loop
        return not loop.is_over and not loop.is_paused and self._ensemble.network.joins(self.place, ZOOKEEPER)

    def subscribe(self, on_state: Callable[[SessionState], None]) -> None:
        self._subscribers.append(on_state)

    # -- the connection ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connects. Raises StoreUnavailable."""
        self._connect()
        try:
            async with asyncio.timeout(SESSION_TIMEOUT_MS / 1_000):
                await self._connected.wait()
        except TimeoutError:
            raise StoreUnavailable("ZooKeeper does not answer") from None

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.to_server.send((CLOSE,))
        self._fail_all("stopped", sent_only=False)

    def _connect(self) -> None:
        if self._is_up:
            return
        ensemble = self._ensemble
        if ensemble.is_down or not self.can_be_heard:
            self.loop.call_later(RECONNECT_MS / 1_000, self._connect)
            return
        if self._connection is not None:
            self._connection.close()
        self._connection = Connection(self, ensemble)
        self._connection.to_server.send((CONNECT, self.session_id))
        self.loop.call_later(SILENCE_MS / 1_000, self._connect)

    def receive(self, connection: Connection, message: tuple[Any, ...]) -> None:
        if connection is not self._connection:
            return
        kind = message[0]
        if kind == ANSWER:
            future, timer = self._open_requests.pop(message[1], _UNKNOWN_REQUEST)
            timer.cancel()
            if future is not None and not future.done():
                answer = message[2]
                if isinstance(answer, TreeError):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        elif kind == FIRED:
            watch = self._watches.pop(message[1], None)
            if watch is not None:
                watch()
        elif kind == CONNECTED:
            self._is_up = True
            self.session_id = message[1]
            self._connected.set()
            unsent, self._unsent = self._unsent, []
            for request in unsent:
                self._send(request)
            self._notify_subscribers(SessionState.CONNECTED)
        elif kind == EXPIRED:
            self._is_up = False
            self.session_id = NO_SESSION
            connection.close()
            self._connection = None
            self._fail_all("the session ended", sent_only=False)
            self._notify_subscribers(SessionState.LOST)
            self._fire_all()
            self._connect()

    def expect_silence(self) -> None:
        """Starts the time-out after which a silent connection is closed."""
        self._silences += 1
        self.loop.call_later(SILENCE_MS / 1_000, self._give_up, self._silences)

    def _give_up(self, silence: int) -> None:
        if silence == self._silences and not self.can_be_heard and self._connection is not None:
            self.lose(self._connection)

    def lose(self, connection: Connection) -> None:
        """Handles the loss of the connection; the session may continue."""
        if connection is not self._connection:
            return
        was_up, self._is_up = self._is_up, False
        connection.close()
        self._connection = None
        self._ensemble.detach(connection)
        if was_up:
            self._fail_all("connection lost", sent_only=True)
            self._notify_subscribers(SessionState.SUSPENDED)
            self._fire_all()
        self.loop.call_later(RECONNECT_MS / 1_000, self._connect)

    def _notify_subscribers(self, state: SessionState) -> None:
        for subscriber in self._subscribers:
            subscriber(state)

    def _fire_all(self) -> None:
        watches, self._watches = self._watches, {}
        for watch in watches.values():
            watch()

    def _fail_all(self, reason: str, *, sent_only: bool) -> None:
        unsent_numbers = {request[1] for request in self._unsent} if sent_only else set()
        if not sent_only:
            self._unsent.clear()
        for number, (future, timer) in tuple(self._open_requests.items()):
            if number not in unsent_numbers:
                del self._open_requests[number]
                timer.cancel()
                if not future.done():
                    future.set_exception(StoreUnavailable(reason))

    # -- requests ------------------------------------------------------------------------------------------------------

    def _call(self, operation: str, argument: Any, watch: Watch | None = None) -> asyncio.Future[Any]:
        self._numbers += 1
        number = self._numbers
        token = None
        if watch is not None:
            token = number
            self._watches[token] = watch
        future = self.loop.create_future()
        timer = self.loop.call_later(SESSION_TIMEOUT_MS / 1_000, _time_out, future)
        self._open_requests[number] = (future, timer)
        request = (REQUEST, number, operation, argument, token)
        if self._is_up:
            self._send(request)
        else:
            self._unsent.append(request)
        return future

    async def _call_later(self, operation: str, argument: Any) -> Any:
        return await self._call(operation, argument)

    def _send(self, request: tuple[Any, ...]) -> None:
        assert self._connection is not None
        self._connection.to_server.send(request)

    async def get(self, path: str, watch: Watch | None = None) -> Node | None:
        result: Node | None = await self._call("get", path, watch)
        return result

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        paths = list(paths)
        if not paths:
            return []
        dice = self._ensemble.dice
        if len(paths) > 1 and dice.random() < SPLIT_CHANCE:
            split = dice.randrange(1, len(paths))
            first = self.loop.create_task(self._call_later("get_many", paths[:split]))
            # If the rest fails, the result of the first is not retrieved.
            first.add_done_callback(_retrieve_exception)
            rest: list[Node | None] = await self._call("get_many", paths[split:])
            return [*await first, *rest]
        result: list[Node | None] = await self._call("get_many", paths)
        return result

    async def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        result: list[str] | None = await self._call("children", path, watch)
        return result

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        return [await self.children(path) for path in paths]

    async def commit(self, operations: Sequence[Operation]) -> list[str]:
        written: list[str] = await self._call("commit", tuple(operations))
        return written


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


def _time_out(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(StoreUnavailable("ZooKeeper does not answer"))
