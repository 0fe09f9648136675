"""Which of the eight levels of client quotas applies to whom, and who shares a counter (QUO-2…5). Pure.

An entity is written as a plain tuple `(has_user, user, has_client, client_id)`; a part that is named but None stands
for the default of its kind. Every quota type is resolved on its own: the producer rate of a client may come from level
1 while its consumer rate comes from level 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

LEVELS = 8


class Entity(NamedTuple):
    """`has_user`/`has_client`: is the part named at all. A named part that is None is the default (`<default>`)."""

    has_user: bool
    user: str | None
    has_client: bool
    client_id: str | None


class Match(NamedTuple):
    """The rule that applies. `level` is 1…8 as in QUO-2, `limit` in the unit of the quota type."""

    limit: float
    level: int
    entity: Entity


# Limits by entity; a plain tuple of the same four values is as good as an `Entity`.
Limits = Mapping[Entity, Mapping[str, float]] | Mapping[tuple[bool, str | None, bool, str | None], Mapping[str, float]]

# Who shares a counter: (user, client id), "" where the counter is not split by that part (QUO-3).
SharingGroup = tuple[str, str]


def candidates(user: str, client_id: str) -> tuple[tuple[int, Entity], ...]:
    """The levels that can apply to this client, strongest first.

    Levels 1, 2, 4, 5 ask for both parts, 7 and 8 for a client id; an empty client id (QUO-5) leaves 3 and 6.
    """
    of_user = ((3, Entity(True, user, False, None)),) if user else ()
    of_any_user = ((6, Entity(True, None, False, None)),) if user else ()
    if not client_id:
        return of_user + of_any_user
    of_client = ((7, Entity(False, None, True, client_id)), (8, Entity(False, None, True, None)))
    if not user:
        return of_client
    return (
        (1, Entity(True, user, True, client_id)),
        (2, Entity(True, user, True, None)),
        *of_user,
        (4, Entity(True, None, True, client_id)),
        (5, Entity(True, None, True, None)),
        *of_any_user,
        *of_client,
    )


def resolve(
    limits: Limits,
    quota: str,
    user: str,
    client_id: str,
) -> Match | None:
    """The first level that sets `quota` for this client; None = unlimited (QUO-1, QUO-2)."""
    if not limits:
        return None
    for level, entity in candidates(user, client_id):
        of_entity = limits.get(entity)
        if of_entity is not None:
            limit = of_entity.get(quota)
            if limit is not None:
                return Match(limit, level, entity)
    return None


def sharing_group(level: int, user: str, client_id: str) -> SharingGroup:
    """Levels 1, 2, 4, 5 count per (user, client id); 3 and 6 per user; 7 and 8 per client id (QUO-3)."""
    if level in (3, 6):
        return user, ""
    if level in (7, 8):
        return "", client_id
    return user, client_id
