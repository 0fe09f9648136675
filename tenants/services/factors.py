"""Removal of second factors of a person who has lost them."""

from __future__ import annotations

from allauth.mfa.models import Authenticator
from django.db import transaction

from tenants import access
from tenants.actors import Actor
from tenants.choices import ActorKind
from tenants.errors import Conflict, PermissionDenied
from tenants.models import User


@transaction.atomic
def take_factors_away(*, acting: Actor, user: User) -> int:
    """Deletes all factors and returns their number. For operators, after they have verified the person's identity.

    Each deletion writes an audit row, and the person's sessions end (`tenants.second_factor.events`).
    """
    if acting.kind is not ActorKind.OPERATOR:
        raise PermissionDenied("Only operators take second factors away.")
    access.require_confirmed(acting)
    removed_count = 0
    for row in Authenticator.objects.select_for_update().filter(user=user).order_by("pk"):
        row.delete()
        removed_count += 1
    if not removed_count:
        raise Conflict("There is none.")
    return removed_count
