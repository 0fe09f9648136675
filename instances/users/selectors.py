"""Reads: users of an instance as the brokers describe them, and in which state each is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice

from instances.access import require_reachable
from instances.interfaces import BrokerUnresponsive
from instances.lifecycle.phases import REACHABLE
from instances.models import Instance
from instances.users.interfaces import UserDescription, user_admin_client
from instances.users.limits import USERS_OFFERED_MAX
from tenants.api import pages
from tenants.errors import DomainError
from tenants.formatting import from_ms


class UserState(StrEnum):
    """Whether a user may sign in."""

    ACTIVE = "active"
    DISABLED = "disabled"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPage:
    """Some users by name. Uses and connections at silent brokers are missing."""

    rows: tuple[UserDescription, ...]
    next_token: str | None
    silent: tuple[BrokerUnresponsive, ...]


def state_of(user: UserDescription, now_ms: int | None = None) -> UserState:
    """As of an instant, or now. A disabled user stays so when it expires."""
    if user.disabled:
        return UserState.DISABLED
    at_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    is_over = user.expires_at_ms is not None and user.expires_at_ms <= at_ms
    return UserState.EXPIRED if is_over else UserState.ACTIVE


def user_page(
    instance: Instance, *, contains: str = "", page_token: str | None = None, page_size: int = 50
) -> UserPage:
    """One page of users. Raises `Conflict` while there are no brokers to ask, and `Unavailable`."""
    require_reachable(instance)
    found = user_admin_client.it.users(instance.pk)
    rows, token = pages.page_of_items(
        [user for user in found.users if contains.lower() in user.name.lower()],
        key=lambda user: user.name,
        page_size=page_size,
        page_token=page_token,
        binding=f"users {instance.pk} {contains}",
    )
    return UserPage(rows=tuple(rows), next_token=token, silent=found.silent)


def user(instance: Instance, name: str) -> UserDescription:
    """One user. Raises `NotFound`, `Conflict` while there are no brokers to ask, and `Unavailable`."""
    require_reachable(instance)
    return user_admin_client.it.user(instance.pk, name)


def user_names(instance: Instance, *, contains: str = "", limit: int = USERS_OFFERED_MAX) -> Sequence[str]:
    """What a form offers: the first names that hold what was typed; nothing while nobody can be asked."""
    if instance.current_phase not in REACHABLE:
        return ()
    try:
        names = sorted(found.name for found in user_admin_client.it.users(instance.pk).users)
        return tuple(islice((name for name in names if contains.lower() in name.lower()), limit))
    except DomainError:
        return ()


def etag_of(user: UserDescription) -> tuple[object, ...]:
    """What changes when somebody changes the user, and does not when it is used."""
    return user.name, user.superuser, user.disabled, user.expires_at_ms, tuple(item.id for item in user.secrets)


def instant_of(at_ms: int | None) -> datetime | None:
    """An instant as rows and pages write it; None also where no calendar has it: such a user never expires."""
    return from_ms(at_ms)
