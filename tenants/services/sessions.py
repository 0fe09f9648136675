"""Ends sessions of users, and deletes expired ones."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from tenants import audit
from tenants.actors import Actor
from tenants.browsers import kind_of
from tenants.errors import NotFound
from tenants.ids import ID_LONG_RANDOM_CHARS, is_id
from tenants.limits import SESSIONS_PER_USER_MAX
from tenants.models import SESSION_ID_START, Session, User


@transaction.atomic
def end_session(*, acting: Actor, user: User, public_id: str) -> Session:
    """Ends one session of the user. Raises `NotFound` if the user has no such session."""
    # Other text in the path needs no query.
    is_well_formed = is_id(public_id, SESSION_ID_START, ID_LONG_RANDOM_CHARS)
    rows = Session.objects.select_for_update().filter(user=user, public_id=public_id)
    row = rows.first() if is_well_formed else None
    if row is None:
        raise NotFound("There is no such session.")
    Session.objects.filter(pk=row.pk).delete()
    audit.record(acting, "session.ended", ("session", public_id), _audit_details(row), None)
    return row


@transaction.atomic
def end_sessions_of(*, acting: Actor, user: User, except_key: str | None) -> int:
    """Ends a person's sessions, except the one with the given key, and returns their number."""
    rows = Session.objects.filter(user=user)
    if except_key is not None:
        rows = rows.exclude(session_key=except_key)
    ended_count, _ = rows.delete()
    if ended_count:
        audit.record(acting, "sessions.ended", user, None, {"email": user.email, "ended": ended_count})
    return ended_count


@transaction.atomic
def end_excess_sessions(*, user: User, new_key: str | None) -> None:
    """Ends the least recently seen sessions if there would be too many with the new one."""
    others = Session.objects.filter(user=user).exclude(session_key=new_key or "")
    newest = others.order_by("-last_seen_at", "-created_at")[: SESSIONS_PER_USER_MAX - 1]
    others.exclude(pk__in=list(newest.values_list("pk", flat=True))).delete()


def delete_expired_sessions(now: datetime) -> int:
    """Deletes expired sessions and returns their number."""
    idle_since = now - timedelta(seconds=settings.SESSION_IDLE_S)
    deleted_count, _ = Session.objects.filter(Q(expire_date__lte=now) | Q(last_seen_at__lte=idle_since)).delete()
    return deleted_count


def _audit_details(row: Session) -> dict[str, str | None]:
    return {"browser": kind_of(row.user_agent) or "unknown", "ip": row.ip}
