"""Ends sessions, and notifies people of sign-ins from new places."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from tenants import audit, mails
from tenants.actors import Actor
from tenants.browsers import kind_of
from tenants.errors import NotFound
from tenants.ids import ID_LONG_RANDOM_CHARS, is_id
from tenants.limits import SESSIONS_PER_USER_MAX, SIGN_IN_PLACES_PER_USER_MAX
from tenants.models import SESSION_ID_START, Session, SignInPlace, User


@transaction.atomic
def end_session(*, acting: Actor, user: User, public_id: str) -> Session:
    """Ends one session of this person. Raises `NotFound` otherwise, also for sessions of others."""
    is_one = is_id(public_id, SESSION_ID_START, ID_LONG_RANDOM_CHARS)  # other text in the path needs no query
    row = Session.objects.select_for_update().filter(user=user, public_id=public_id).first() if is_one else None
    if row is None:
        raise NotFound("There is no such session.")
    Session.objects.filter(pk=row.pk).delete()
    audit.record(acting, "session.ended", ("session", public_id), _words(row), None)
    return row


@transaction.atomic
def end_sessions_of(*, acting: Actor, user: User, except_key: str | None) -> int:
    """Ends a person's sessions, except the one with the given key, and returns their number."""
    rows = Session.objects.filter(user=user)
    if except_key is not None:
        rows = rows.exclude(session_key=except_key)
    ended, _ = rows.delete()
    if ended:
        audit.record(acting, "sessions.ended", user, None, {"email": user.email, "ended": ended})
    return ended


@transaction.atomic
def note_sign_in(*, acting: Actor, user: User, network: str, user_agent: str) -> SignInPlace | None:
    """Records a sign-in; returns its place if the person has signed in before, but never from there.

    In that case a mail is sent if mail is configured, and other console sessions show a notice.
    """
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # serialises concurrent sign-ins
    now, browser = timezone.now(), kind_of(user_agent)
    audit.record(acting, "account.signed_in", user, None, {"email": user.email, "browser": browser or "unknown"})
    places = SignInPlace.objects.filter(user=user)
    if places.filter(browser=browser, network=network).update(last_at=now):
        return None
    is_news = places.exists()
    place = SignInPlace.objects.create(user=user, browser=browser, network=network, is_unread=is_news)
    _forget_oldest(user)
    if not is_news:
        return None
    User.objects.filter(pk=user.pk).update(has_sign_in_notices=True)
    user.has_sign_in_notices = True
    if settings.MAIL_IS_CONFIGURED:
        transaction.on_commit(
            lambda: mails.send(
                "new_sign_in", user.email, user.language, browser=browser, address=acting.ip, time=now,
                link=mails.public_url("/security/"),
            )
        )  # fmt: skip
    return place


@transaction.atomic
def read_sign_in_notices(*, user: User, shown: Collection[str], except_place: str | None) -> None:
    """Acknowledges the sign-ins that were `shown`, by id; later ones stay unread.

    A session cannot acknowledge its own sign-in, which would hide that of an attacker.
    """
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # serialises it with concurrent sign-ins
    places = SignInPlace.objects.filter(user=user, is_unread=True)
    places.filter(pk__in=shown).exclude(pk=except_place or "").update(is_unread=False)
    User.objects.filter(pk=user.pk).update(has_sign_in_notices=places.exists())


@transaction.atomic
def make_room_for_session(*, user: User, new_key: str | None) -> None:
    """Ends the least recently seen sessions if there would be too many with the new one."""
    others = Session.objects.filter(user=user).exclude(session_key=new_key or "")
    kept = others.order_by("-last_seen_at", "-created_at")[: SESSIONS_PER_USER_MAX - 1]
    others.exclude(pk__in=list(kept.values_list("pk", flat=True))).delete()


def forget_ended_sessions(now: datetime) -> int:
    """Deletes expired sessions and returns their number."""
    idle = now - timedelta(seconds=settings.SESSION_IDLE_S)
    deleted, _ = Session.objects.filter(Q(expire_date__lte=now) | Q(last_seen_at__lte=idle)).delete()
    return deleted


def _forget_oldest(user: User) -> None:
    kept = SignInPlace.objects.filter(user=user).order_by("-last_at", "-pk")[:SIGN_IN_PLACES_PER_USER_MAX]
    SignInPlace.objects.filter(user=user).exclude(pk__in=list(kept.values_list("pk", flat=True))).delete()


def _words(row: Session) -> dict[str, str | None]:
    return {"browser": kind_of(row.user_agent) or "unknown", "ip": row.ip}
