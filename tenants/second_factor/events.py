"""Consequences when a second factor is added, removed or used: audit rows, mails, and the end of other sessions.

The library creates and deletes the rows. The consequences depend on signals of the rows instead of the library's, some
of which are sent after the commit, because audit rows belong in the transaction.
"""

from __future__ import annotations

from typing import Any

from allauth.account.signals import authentication_step_completed
from allauth.core import context
from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authenticator_used
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.signals import post_delete, post_save
from django.http import HttpRequest

from tenants import audit, mails, sessions
from tenants.actors import Actor, operator_actor, system_actor
from tenants.models import User
from tenants.requests import acting_person, client_ip
from tenants.services.sessions import end_sessions_of

PRIMARY = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)


def connect() -> None:
    """Connects to signals of the rows and of the library."""
    uid = "tenants.second_factor"
    post_save.connect(_saved, sender=Authenticator, dispatch_uid=uid)
    post_delete.connect(_deleted, sender=Authenticator, dispatch_uid=uid)
    authenticator_used.connect(_used, dispatch_uid=uid)
    authentication_step_completed.connect(_step_completed, dispatch_uid=uid)


def primary_of(user: User) -> QuerySet[Authenticator]:
    """Returns the factors that are requested at sign-in. Recovery codes alone are not a factor."""
    return Authenticator.objects.filter(user=user, type__in=PRIMARY)


def _saved(instance: Authenticator, created: bool, **_: Any) -> None:
    """Records the new factor; the first one ends sessions that were started without one."""
    if not created:
        return
    user, request = instance.user, context.request
    audit.record(_acting(request, user), "second_factor.added", user, None, _audit_values(instance))
    if instance.type not in PRIMARY:
        return
    if _is_own(request, user):
        sessions.record_second_factor(request, user)
    if primary_of(user).count() == 1:
        _end_other_sessions(request, user)
    _mail(user, "added")


def _deleted(instance: Authenticator, **_: Any) -> None:
    """Records the removal; removing the last factor ends other sessions, which assume that the account has one."""
    user, request = instance.user, context.request
    audit.record(_acting(request, user), "second_factor.removed", user, _audit_values(instance), None)
    if instance.type not in PRIMARY:
        return
    if not primary_of(user).exists():
        if _is_own(request, user):
            sessions.clear_second_factor(request)
        _end_other_sessions(request, user)
    _mail(user, "removed")


def _used(request: HttpRequest, user: User, authenticator: Authenticator, **_: Any) -> None:
    sessions.record_second_factor(request, user)
    if authenticator.type == Authenticator.Type.RECOVERY_CODES:
        codes_left = len(authenticator.wrap().get_unused_codes())
        audit.record(
            acting_person(request, user), "recovery_code.used", user, None, {"email": user.email, "left": codes_left}
        )
        _mail(user, "recovery_code")


def _step_completed(request: HttpRequest, user: User, method: str, **details: Any) -> None:
    """Confirms the session after a reauthentication."""
    if details.get("reauthenticated"):
        sessions.confirm(request)
        after = {"email": user.email, "by": details.get("type") or method}
        audit.record(acting_person(request, user), "account.confirmed", user, None, after)


def _is_own(request: HttpRequest | None, user: User) -> bool:
    return request is not None and request.user.is_authenticated and request.user.pk == user.pk


def _acting(request: HttpRequest | None, user: User) -> Actor:
    if request is None or not request.user.is_authenticated:
        return system_actor("second_factor")
    if _is_own(request, user):
        return acting_person(request, user)
    return operator_actor(request.user, ip=client_ip(request), request_id=getattr(request, "request_id", None))


def _end_other_sessions(request: HttpRequest | None, user: User) -> None:
    current_key = request.session.session_key if request is not None and _is_own(request, user) else None
    end_sessions_of(acting=_acting(request, user), user=user, except_key=current_key)


def _audit_values(authenticator: Authenticator) -> dict[str, str]:
    values = {"kind": str(authenticator.type), "email": authenticator.user.email}
    return values | ({"name": authenticator.wrap().name} if authenticator.type == Authenticator.Type.WEBAUTHN else {})


def _mail(user: User, event: str) -> None:
    if settings.MAIL_IS_CONFIGURED:
        transaction.on_commit(lambda: mails.send("second_factor", user.email, user.language, what=event))
