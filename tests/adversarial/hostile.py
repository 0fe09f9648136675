"""A hostile tenant's longest legal requests, and a neighbour on the same broker whose records are acknowledged
meanwhile.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from brokers.engine.handlers.api_table import limit_of
from brokers.engine.protocol import codec, headers
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import FieldSpec, fields_of, message_class
from brokers.engine.protocol.lengths import TEXT_BYTES_MAX
from brokers.engine.protocol.messages.groups import SyncGroupRequestAssignment
from tests.product.system.attacks import filled
from tests.testkit.records import batch, produce
from tests.testkit.wire import WireClient

TOPIC: Final = "orders"
NEIGHBOUR_INTERVAL_S: Final = 0.01
# For the other fields around the long array.
SPARE_ITEMS: Final = 100
SPARE_BYTES: Final = 2_000
# With room for numbers.
WIDE: Final = "x" * (TEXT_BYTES_MAX - 20)
BYTES_MAX: Final = 16 * 1024 * 1024
# Fields that distinguish the items of an array.
NUMBERED: Final = frozenset(
    {"name", "topic", "index", "partition", "partition_index", "group_id", "member_id", "resource_name", "key"}
)
FieldPath = tuple[str, ...]


def has_long_requests(api_key: ApiKey, version: int, topic: str) -> bool:
    """True if `longest_requests` yields any; building one takes a second."""
    return any(_requests_with_one_item(api_key, version, topic))


def longest_requests(api_key: ApiKey, version: int, topic: str) -> Iterator[tuple[str, bytes]]:
    """Yields frames for each array in a request of this API: one with the longest array that a request may have; one
    with empty arrays in its items, if they have arrays; and one with the longest texts.
    """
    limit = limit_of(api_key)
    bytes_max = min(limit.bytes_max, BYTES_MAX) - SPARE_BYTES
    for path, request in _requests_with_one_item(api_key, version, topic):
        count = (limit.items_max - SPARE_ITEMS) // _stretch(request, path, 1)
        while True:
            _stretch(request, path, count)
            body = codec.encode_request(api_key, version, request)
            if len(body) <= bytes_max:
                break
            count = count * bytes_max // len(body)
        yield ".".join(path), headers.encode_request_frame(api_key, version, 1, "hostile", body)


def _requests_with_one_item(api_key: ApiKey, version: int, topic: str) -> Iterator[tuple[FieldPath, Any]]:
    """Yields, for each array in a request of this API, a request with one item in it."""
    cls = message_class(api_key, "request")
    for path in _array_paths(cls, version):
        request = filled(cls, version, topic, bytes(16))
        if api_key is ApiKey.SYNC_GROUP:  # `filled` gives it none
            request.assignments = [filled(SyncGroupRequestAssignment, version, topic, bytes(16))]
        if _is_left_empty(request, path):
            continue
        hollow, wide = copy.deepcopy(request), copy.deepcopy(request)
        yield path, request
        if _empty_arrays(_item_at(hollow, path)):
            yield path, hollow
        _widen(getattr(_item_at(wide, path[:-1]), path[-1]))
        if len(codec.encode_request(api_key, version, wide)) > len(WIDE):
            yield path, wide


def _array_paths(cls: type[Any], version: int) -> Iterator[FieldPath]:
    for name, spec, _default in fields_of(cls):
        if not spec.exists(version) or spec.tag is not None:
            continue
        inner: FieldSpec = spec
        if spec.kind == "array":
            yield (name,)
            inner = spec.inner
        if inner.kind == "nested":
            for rest in _array_paths(inner.inner, version):
                yield (name, *rest)


def _is_left_empty(request: Any, path: FieldPath) -> bool:
    """True for an array that `filled` leaves empty, so that the kind of its items is unknown."""
    for name in path:
        value = getattr(request, name)
        if not value:
            return True
        request = value[0] if isinstance(value, list) else value
    return False


def _item_at(request: Any, path: FieldPath) -> Any:
    for name in path:
        value = getattr(request, name)
        request = value[0] if isinstance(value, list) and value else value
    return request


def _empty_arrays(item: Any) -> bool:
    """Empties the arrays of an item; returns True if one of them had items."""
    names = [name for name in getattr(item, "__slots__", ()) if isinstance(getattr(item, name), list)]
    had_items = any(getattr(item, name) for name in names)
    for name in names:
        setattr(item, name, [])
    return had_items


def _widen(holder: Any) -> None:
    """Makes the texts of an item, or in a list, as long as they may be."""
    if isinstance(holder, list):
        holder[:] = [WIDE if isinstance(item, str) else item for item in holder]
        for item in holder:
            _widen(item)
        return
    for name in getattr(holder, "__slots__", ()):
        value = getattr(holder, name)
        if isinstance(value, str):
            setattr(holder, name, WIDE)
        elif isinstance(value, list):
            _widen(value)


def _stretch(request: Any, path: FieldPath, count: int) -> int:
    """Sets the length of the array at `path`; returns the number of array items in each of its items."""
    request = _item_at(request, path[:-1])
    items = getattr(request, path[-1]) or [0]
    setattr(request, path[-1], [_numbered_item(items[0], number) for number in range(count)])
    return 1 + _items_within(items[0])


def _items_within(item: Any) -> int:
    values = [getattr(item, name) for name in getattr(item, "__slots__", ())]
    lists = [value for value in values if isinstance(value, list)]
    return sum(len(value) + sum(_items_within(inner) for inner in value) for value in lists)


def _numbered_item(item: Any, number: int) -> Any:
    """Returns an item that differs from the others: a broker may be quick with items that it has seen already."""
    if isinstance(item, int):
        return number
    if isinstance(item, str):
        return f"{item}-{number}"
    if not hasattr(item, "__slots__"):
        return item
    item = copy.copy(item)
    for name in item.__slots__:
        value = getattr(item, name)
        if name in NUMBERED and isinstance(value, (int, str)):
            setattr(item, name, _numbered_item(value, number))
            break
    return item


@dataclass
class Neighbour:
    """Another instance's producer, which waits for each of its records to be acknowledged by all replicas."""

    port: int
    topic: str
    latencies_ms: list[float] = field(default_factory=list)
    errors: int = 0

    async def produce_until(self, stop: asyncio.Event) -> None:
        client = await WireClient.connect(self.port)
        record = batch(b"x" * 100)
        while not stop.is_set():
            began_s = time.perf_counter()
            result = await produce(client, self.topic, record, acks=-1)
            self.latencies_ms.append((time.perf_counter() - began_s) * 1000)
            self.errors += result.error_code != 0
            await asyncio.sleep(NEIGHBOUR_INTERVAL_S)
        await client.close()

    def percentile_ms(self, percent: float) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


async def is_answered(port: int, frame: bytes, within_s: float) -> bool:
    """Sends `frame` once, and returns True if it is answered in time."""
    client = await WireClient.connect(port)
    try:
        async with asyncio.timeout(within_s):
            await client.send_raw(frame)
            await client.receive_frame()
    except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
        return False
    finally:
        client.writer.transport.abort()
    return True


async def attack(port: int, frame: bytes, *, connections: int, seconds: float) -> int:
    """Sends `frame` again and again, and returns the number of answers. A connection that is closed is opened again."""
    deadline_s = time.monotonic() + seconds

    async def attack_repeatedly() -> int:
        answers = 0
        client = await WireClient.connect(port)
        while time.monotonic() < deadline_s:
            try:
                async with asyncio.timeout(max(0.1, deadline_s - time.monotonic())):
                    await client.send_raw(frame)
                    await client.receive_frame()
                answers += 1
            except TimeoutError:
                break
            except (ConnectionError, asyncio.IncompleteReadError):
                await client.close()
                client = await WireClient.connect(port)
        # Closes without a flush: a broker that delays this client would not read the rest for long.
        client.writer.transport.abort()
        return answers

    return sum(await asyncio.gather(*(attack_repeatedly() for _ in range(connections))))
