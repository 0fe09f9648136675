"""Records the places from which users sign in, and notifies them of new ones."""

from __future__ import annotations

from collections.abc import Collection

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from tenants import audit, mails
from tenants.actors import Actor
from tenants.browsers import kind_of
from tenants.limits import SIGN_IN_PLACES_PER_USER_MAX
from tenants.models import SignInPlace, User


@transaction.atomic
def record_sign_in(*, acting: Actor, user: User, network: str, user_agent: str) -> SignInPlace | None:
    """Records a sign-in; returns its place if the person has signed in before, but never from there.

    In that case a mail is sent if mail is configured, and other console sessions show a notice.
    """
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # serialises concurrent sign-ins
    now, browser = timezone.now(), kind_of(user_agent)
    audit.record(acting, "account.signed_in", user, None, {"email": user.email, "browser": browser or "unknown"})
    places = SignInPlace.objects.filter(user=user)
    if places.filter(browser=browser, network=network).update(last_at=now):
        return None
    is_new_place = places.exists()
    place = SignInPlace.objects.create(user=user, browser=browser, network=network, is_unread=is_new_place)
    _delete_oldest_places(user)
    if not is_new_place:
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
def acknowledge_sign_in_notices(*, user: User, place_ids: Collection[str], except_place: str | None) -> None:
    """Acknowledges the sign-ins from the places with these ids; later sign-ins stay unread.

    `except_place` is the sign-in of the current session, which it cannot acknowledge: an attacker could hide it.
    """
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # serialises it with concurrent sign-ins
    places = SignInPlace.objects.filter(user=user, is_unread=True)
    places.filter(pk__in=place_ids).exclude(pk=except_place or "").update(is_unread=False)
    User.objects.filter(pk=user.pk).update(has_sign_in_notices=places.exists())


def _delete_oldest_places(user: User) -> None:
    newest = SignInPlace.objects.filter(user=user).order_by("-last_at", "-pk")[:SIGN_IN_PLACES_PER_USER_MAX]
    SignInPlace.objects.filter(user=user).exclude(pk__in=list(newest.values_list("pk", flat=True))).delete()
