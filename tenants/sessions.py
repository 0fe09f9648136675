"""The session of a request: when it was last seen, when its owner was last asked for a password or a factor, and
whether a second factor was given in it.

What stands in the session is bound to the account: a session never changes its owner (`django.contrib.auth.login`
empties it), and what is written before somebody is signed in names the account it is about.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.http import HttpRequest

from tenants.limits import SESSION_SEEN_EVERY_S, USER_AGENT_CHARS_MAX
from tenants.models import Session, User

CONFIRMED_AT_S = "confirmed_at_s"
SECOND_FACTOR_OF = "second_factor_of"
SIGN_IN_PLACE = "sign_in_place"  # where this session began, if that was new to its owner


def confirm(request: HttpRequest) -> None:
    """The owner has just shown who they are: by signing in, or by being asked again."""
    request.session[CONFIRMED_AT_S] = int(time.time())


def is_confirmed(request: HttpRequest) -> bool:
    """Whether that was so lately that it is good for what must not be done with a stolen session."""
    confirmed_at_s = request.session.get(CONFIRMED_AT_S)
    return isinstance(confirmed_at_s, int) and 0 <= time.time() - confirmed_at_s < settings.REAUTHENTICATION_S


def note_second_factor(request: HttpRequest, user: User) -> None:
    """This session is one in which the account's second factor was given or set up."""
    request.session[SECOND_FACTOR_OF] = user.pk


def forget_second_factor(request: HttpRequest) -> None:
    """The account has none any more."""
    request.session.pop(SECOND_FACTOR_OF, None)


def has_second_factor(request: HttpRequest) -> bool:
    """Whether its owner gave a second factor. An account that has one is signed in to no other way, and other sessions
    end when it gets its first one, so this says whether the account has one without asking the database.
    """
    return request.user.is_authenticated and request.session.get(SECOND_FACTOR_OF) == request.user.pk


def user_agent_of(request: HttpRequest) -> str:
    """What the browser says of itself, as it is kept."""
    return request.headers.get("User-Agent", "").replace("\x00", "")[:USER_AGENT_CHARS_MAX]


def is_by_a_person(request: HttpRequest) -> bool:
    """False for what an open page fetches by itself: a tab left open keeps no session alive."""
    if request.method not in ("GET", "HEAD"):
        return True
    return "HX-Request" not in request.headers and request.headers.get("Accept") != "application/json"


def note_seen(request: HttpRequest, ip: str | None, now: datetime) -> None:
    """Remember when and from where a session was seen, to the minute. Costs nothing where nobody asked who it is."""
    session: Any = request.session
    if not session.accessed or session.session_key is None or session.get(SESSION_KEY) is None:
        return
    row = session.row
    is_known = row is not None and row.session_key == session.session_key and row.ip is not None
    if is_known and not (is_by_a_person(request) and row.last_seen_at <= now - timedelta(seconds=SESSION_SEEN_EVERY_S)):
        return
    Session.objects.filter(session_key=session.session_key).update(
        last_seen_at=now, ip=ip, user_agent=user_agent_of(request)
    )
