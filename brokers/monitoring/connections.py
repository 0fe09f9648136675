"""Implements `instances.clients.interfaces.connection_admin_client` over the admin ports of brokers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.translation import gettext_noop

from brokers.limits import CONNECTION_PAGES_MAX
from brokers.monitoring import observe
from instances.clients.interfaces import Connection, ConnectionList
from tenants.errors import Message, NotFound, OutcomeUnknown, Unavailable

# Broker, start of its process, and the connection's number there.
_ID = re.compile(r"con-([0-9]{1,9})-([0-9a-z]{1,13})-([0-9a-z]{1,11})\Z")
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
STATUS_OK, STATUS_NOT_FOUND = 200, 404


class BrokerConnections:
    """Implements `instances.clients.interfaces.ConnectionAdminClient`."""

    def connections(self, instance_id: str, limit: int) -> ConnectionList:
        targets = observe.targets_of_instance(instance_id)
        path = f"/v1/instances/{instance_id}/connections"
        pages, silent = observe.query_all_pages(targets, path, CONNECTION_PAGES_MAX)
        connections: list[Connection] = []
        is_truncated = False
        for number, bodies in sorted(pages.items()):
            connections += [_connection(number, body, fields) for body in bodies for fields in body["connections"]]
            is_truncated = is_truncated or bodies[-1].get("next") is not None
        return ConnectionList(
            connections=connections[:limit], silent=silent, is_cut=is_truncated or len(connections) > limit
        )

    def close(self, instance_id: str, connection_id: str) -> None:
        match = _ID.match(connection_id)
        if match is None:
            raise NotFound("There is no such connection.")
        broker, started_at_ms, number = int(match[1]), int(match[2], 36), int(match[3], 36)
        target = next((target for target in observe.targets_of_instance(instance_id) if target.number == broker), None)
        if target is None:
            raise NotFound("There is no such connection.")
        path = f"/v1/instances/{instance_id}/connections/{number}?started_at_ms={started_at_ms}"
        try:
            status = observe.delete(target, path)
        except ConnectionRefusedError as error:
            raise Unavailable(
                Message(gettext_noop("Broker %(id)s does not answer."), id=broker), retry_after_s=1
            ) from error
        except (OSError, ValueError) as error:
            raise OutcomeUnknown from error
        if status == STATUS_NOT_FOUND:
            raise NotFound("There is no such connection.")
        if status != STATUS_OK:
            raise Unavailable(
                Message(gettext_noop("Broker %(id)s answered %(status)s."), id=broker, status=status), retry_after_s=1
            )


def _connection(broker_id: int, body: Mapping[str, Any], fields: Sequence[Any]) -> Connection:
    number, address, user, client_id, software, version, route, age_ms, requests, is_signing_in = fields
    started = body["started_at_ms"]
    return Connection(
        id=f"con-{broker_id}-{_base36(started)}-{_base36(number)}",
        broker_id=broker_id,
        address=address,
        user=user,
        client_id=client_id,
        software=software,
        software_version=version,
        route=route,
        since_ms=body["now_ms"] - age_ms,
        requests=requests,
        is_signing_in=bool(is_signing_in),
    )


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = DIGITS[digit] + digits
    return digits or "0"
