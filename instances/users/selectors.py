"""Reads of an instance's users, as brokers describe them, with their states."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice

from django.utils.translation import gettext_noop

from instances.access import require_reachable
from instances.interfaces import BrokerUnresponsive
from instances.lifecycle.phases import REACHABLE
from instances.models import DeletedUser, Instance
from instances.users.interfaces import UserDescription, user_admin_client
from instances.users.limits import USERS_OFFERED_MAX
from tenants.api import pages
from tenants.errors import DomainError, Message, NotFound
from tenants.formatting import from_ms


class UserState(StrEnum):
    """State of a user; only an active one may sign in."""

    ACTIVE = "active"
    DISABLED = "disabled"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPage:
    """One page of users in the order of names. Uses and connections on unresponsive brokers are missing."""

    rows: tuple[UserDescription, ...]
    next_token: str | None
    silent: tuple[BrokerUnresponsive, ...]


def state_of(user: UserDescription, now_ms: int | None = None) -> UserState:
    """Returns the state of a user at an instant, by default now. A disabled user stays disabled after its expiry."""
    if user.disabled:
        return UserState.DISABLED
    at_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    has_expired = user.expires_at_ms is not None and user.expires_at_ms <= at_ms
    return UserState.EXPIRED if has_expired else UserState.ACTIVE


def user_page(
    instance: Instance, *, contains: str = "", page_token: str | None = None, page_size: int = 50
) -> UserPage:
    """Returns one page of users. Raises `Conflict` while the instance has no brokers, and `Unavailable`."""
    require_reachable(instance)
    listing = user_admin_client.implementation.users(instance.pk)
    present = _without_deleted(instance, listing.users)
    rows, token = pages.page_of_items(
        [user for user in present if contains.lower() in user.name.lower()],
        key=lambda user: user.name,
        page_size=page_size,
        page_token=page_token,
        binding=f"users {instance.pk} {contains}",
    )
    return UserPage(rows=tuple(rows), next_token=token, silent=listing.silent)


def user(instance: Instance, name: str) -> UserDescription:
    """Returns one user. Raises `NotFound`, `Conflict` while the instance has no brokers, and `Unavailable`."""
    require_reachable(instance)
    description = user_admin_client.implementation.user(instance.pk, name)
    if not _without_deleted(instance, [description]):
        raise NotFound(Message(gettext_noop("User %(name)s was deleted. It can be restored."), name=name))
    return description


def user_names(instance: Instance, *, contains: str = "", limit: int = USERS_OFFERED_MAX) -> Sequence[str]:
    """Returns the first names that contain a text, for completion in forms; none if brokers do not answer."""
    if instance.current_phase not in REACHABLE:
        return ()
    try:
        present = _without_deleted(instance, user_admin_client.implementation.users(instance.pk).users)
        names = sorted(user.name for user in present)
        return tuple(islice((name for name in names if contains.lower() in name.lower()), limit))
    except DomainError:
        return ()


def is_deleted(user: UserDescription, row: DeletedUser) -> bool:
    """True if a user is the one that was deleted, and no Kafka client has changed its passwords since."""
    secret_ids = sorted(secret.id for secret in user.secrets)
    return user.name == row.name and user.created_at_ms == row.created_at_ms and secret_ids == row.secret_ids


def _without_deleted(instance: Instance, users: Iterable[UserDescription]) -> list[UserDescription]:
    rows = {row.name: row for row in DeletedUser.objects.filter(instance=instance)}
    return [user for user in users if user.name not in rows or not is_deleted(user, rows[user.name])]


def etag_of(user: UserDescription) -> tuple[object, ...]:
    """Returns a value that changes when the user is changed, but not when it is used."""
    return user.name, user.superuser, user.disabled, user.expires_at_ms, tuple(secret.id for secret in user.secrets)


def instant_of(at_ms: int | None) -> datetime | None:
    """Returns an instant as datetime; None for None, and beyond the range of datetime: such a user never expires."""
    return from_ms(at_ms)
