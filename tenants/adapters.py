"""Where django-allauth meets our services: a sign-up founds a tenant, or joins the one that invited."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import get_language

from tenants import selectors, services
from tenants.actors import client_ip, user_actor
from tenants.choices import Language
from tenants.models import User

INVITATION_SESSION_KEY = "invitation_secret"


class AccountAdapter(DefaultAccountAdapter):
    """Saves the user and the tenant in one transaction, so that nobody exists half."""

    @transaction.atomic
    def save_user(self, request: HttpRequest, user: User, form: Any, commit: bool = True) -> User:
        user.language = _language()
        user = super().save_user(request, user, form, commit=commit)
        if not commit:
            return user
        acting = user_actor(user, ip=client_ip(request), request_id=getattr(request, "request_id", None))
        secret = request.session.pop(INVITATION_SESSION_KEY, None)
        invitation = selectors.open_invitation(secret, timezone.now()) if secret else None
        if invitation is not None and invitation.email == user.email:
            services.accept_invitation(acting=acting, user=user, secret=secret)
        else:
            services.found_tenant(user=user, name=form.cleaned_data["tenant_name"], acting=acting)
        return user


def _language() -> str:
    active = (get_language() or "").lower()
    return Language.CHINESE if active.startswith("zh") else Language.ENGLISH
