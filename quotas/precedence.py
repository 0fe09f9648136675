"""Precedence of the eight levels of client quotas, and sharing of their counters (QUO-2…5). Pure.

An entity is a plain tuple `(has_user, user, has_client, client_id)`; a part that is present but None is the default of
its kind. Every quota type is resolved separately: the producer rate of a client may come from level 1 while its
consumer rate comes from level 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

LEVELS = 8


class Entity(NamedTuple):
    """Entity of a quota. `has_user` and `has_client` are true if the part is present.

    A part that is present but None is the default (`<default>`).
    """

    has_user: bool
    user: str | None
    has_client: bool
    client_id: str | None


class Match(NamedTuple):
    """Rule that applies. `level` is 1…8 as in QUO-2, `limit` in the unit of the quota type."""

    limit: float
    level: int
    entity: Entity


# Limits by entity; a plain tuple of the same four values equals an `Entity`.
Limits = Mapping[Entity, Mapping[str, float]] | Mapping[tuple[bool, str | None, bool, str | None], Mapping[str, float]]

# Key of a shared counter: (user, client id), "" if the counter is not split by that part (QUO-3).
SharingGroup = tuple[str, str]


def candidates(user: str, client_id: str) -> tuple[tuple[int, Entity], ...]:
    """Returns the levels that can apply to this client, highest precedence first.

    Levels 1, 2, 4, 5 need both parts, 7 and 8 a client id; with an empty client id (QUO-5) only 3 and 6 remain.
    """
    user_level = ((3, Entity(True, user, False, None)),) if user else ()
    default_user_level = ((6, Entity(True, None, False, None)),) if user else ()
    if not client_id:
        return user_level + default_user_level
    client_levels = ((7, Entity(False, None, True, client_id)), (8, Entity(False, None, True, None)))
    if not user:
        return client_levels
    return (
        (1, Entity(True, user, True, client_id)),
        (2, Entity(True, user, True, None)),
        *user_level,
        (4, Entity(True, None, True, client_id)),
        (5, Entity(True, None, True, None)),
        *default_user_level,
        *client_levels,
    )


def resolve(
    limits: Limits,
    quota: str,
    user: str,
    client_id: str,
) -> Match | None:
    """Returns the first level that sets `quota` for this client; None means unlimited (QUO-1, QUO-2)."""
    if not limits:
        return None
    for level, entity in candidates(user, client_id):
        entity_limits = limits.get(entity)
        if entity_limits is not None:
            limit = entity_limits.get(quota)
            if limit is not None:
                return Match(limit, level, entity)
    return None


def sharing_group(level: int, user: str, client_id: str) -> SharingGroup:
    """Returns the counter's key: levels 1, 2, 4, 5 count per (user, client id), 3 and 6 per user, 7 and 8 per client id
    (QUO-3).
    """
    if level in (3, 6):
        return user, ""
    if level in (7, 8):
        return "", client_id
    return user, client_id
