"""Pages of an instance's connections, filtered and sorted, from a report of the brokers that is cached for a moment."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

from django.core.cache import cache

from instances.access import require_reachable
from instances.clients.interfaces import Connection, ConnectionList, connection_admin_client
from instances.interfaces import BrokerUnresponsive
from instances.limits import CONNECTIONS_KEPT_S, CONNECTIONS_LISTED_MAX
from instances.models import Instance
from instances.sorted_pages import FIRST_PAGE_TOKEN, SortedPage, sorted_page, sorts_of
from tenants.errors import NotFound, Unavailable

COLUMNS: Mapping[str, Callable[[Connection], Any]] = {
    "client_id": lambda connection: connection.client_id,
    "user": lambda connection: connection.user,
    "address": lambda connection: connection.address,
    "software": lambda connection: f"{connection.software} {connection.software_version}".strip(),
    "broker": lambda connection: connection.broker_id,
    "since": lambda connection: connection.since_ms,
    "requests": lambda connection: connection.requests,
}
SORTS = sorts_of(tuple(COLUMNS))
DEFAULT_SORT = "-since"
CONTAINS_CHARS_MAX = 256
# Decoded lists that a process caches: successive pages of one list use the same one.
LISTS_DECODED_MAX = 2
Client = TypeVar("Client")
SEARCHED_FIELDS = ("client_id", "user", "address", "software")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPage(Generic[Client]):
    """Page of a list of clients. `total` is the number of clients that match; `is_cut`: brokers do not list all.
    `silent` are brokers that did not answer.
    """

    page: SortedPage[Client]
    total: int
    silent: Sequence[BrokerUnresponsive]
    is_cut: bool
    here_token: str = FIRST_PAGE_TOKEN

    @property
    def items(self) -> Sequence[Client]:
        return self.page.rows

    @property
    def next_token(self) -> str | None:
        return self.page.next_token

    @property
    def last(self) -> int:
        return self.page.first - 1 + len(self.page.rows)


def connection_page(
    instance: Instance, *, contains: str = "", sort: str = DEFAULT_SORT, page_token: str = "", page_size: int = 50
) -> ClientPage[Connection]:
    """Returns one page; `contains` is searched in client id, user, address and software.

    Raises `Conflict` while the instance has no brokers, and `Unavailable` if none answers.
    """
    connection_list = current_connections(instance)
    search_text = contains.lower()
    rows = [
        connection for connection in connection_list.connections if not search_text or _matches(connection, search_text)
    ]
    page = sorted_page(
        rows,
        column=COLUMNS[sort.removeprefix("-")],
        name=lambda connection: connection.id,
        is_descending=sort.startswith("-"),
        page_token=page_token,
        page_size=page_size,
        binding=f"clients {instance.pk} {contains} {sort}",
    )
    return ClientPage(
        page=page, total=len(rows), silent=connection_list.silent, is_cut=connection_list.is_cut, here_token=page_token
    )


def connection_detail(instance: Instance, connection_id: str) -> Connection:
    """Returns the current state of one connection. Raises `NotFound`."""
    listing = current_connections(instance, fresh=True)
    for connection in listing.connections:
        if connection.id == connection_id:
            return connection
    raise NotFound("There is no such connection.")


def current_connections(instance: Instance, *, fresh: bool = False) -> ConnectionList:
    """Returns all listed connections, at most a moment old; `fresh` queries the brokers in any case."""
    require_reachable(instance)
    key = f"clients:{instance.pk}"
    cached = None if fresh else cache.get(key)
    if cached is not None:
        return _decoded(cached)
    connection_list = connection_admin_client.implementation.connections(instance.pk, CONNECTIONS_LISTED_MAX)
    if connection_list.silent and not connection_list.connections:
        raise Unavailable("No broker of the instance answers at the moment. Nothing is lost.", retry_after_s=1)
    cache.set(key, _encoded(connection_list), CONNECTIONS_KEPT_S)
    return connection_list


def invalidate(instance_id: str) -> None:
    """Deletes the cached list, so that the next page queries the brokers."""
    cache.delete(f"clients:{instance_id}")


def _matches(connection: Connection, search_text: str) -> bool:
    return any(search_text in getattr(connection, name).lower() for name in SEARCHED_FIELDS)


def _encoded(connection_list: ConnectionList) -> str:
    body = [
        connection_list.connections,
        [(broker.broker_id, broker.reason) for broker in connection_list.silent],
        connection_list.is_cut,
    ]  # fmt: skip
    return base64.b64encode(zlib.compress(json.dumps(body, separators=(",", ":")).encode(), 1)).decode()


@lru_cache(maxsize=LISTS_DECODED_MAX)
def _decoded(cached: str) -> ConnectionList:
    connections, silent, is_cut = json.loads(zlib.decompress(base64.b64decode(cached)))
    return ConnectionList(
        connections=list(map(Connection._make, connections)),
        silent=tuple(BrokerUnresponsive(broker_id=number, reason=reason) for number, reason in silent),
        is_cut=is_cut,
    )
