"""Whose mailbox an address is: links in mails that only who reads them can follow.

All of it is on where mail is configured. Without mail nobody can prove anything, and nothing is asked for.
"""

from __future__ import annotations

import hmac

from django.conf import settings
from django.core import signing
from django.db import transaction
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import salted_hmac

from tenants import audit, mails
from tenants.actors import Actor
from tenants.limits import VERIFICATION_DAYS
from tenants.models import Invitation, User

VERIFICATION_SALT = "penstock.mailbox"
INVITATION_SALT = "penstock.invitation.mailbox"


def may_enter(user: User) -> bool:
    """Whether a right password is enough: an account that was made where mail is configured begins with its mailbox."""
    if not settings.MAIL_IS_CONFIGURED:
        return True
    return user.email_verified_at is not None or not user.enters_verified_only


def mail_verification(user: User, language: str = "") -> bool:
    """Send the link that proves the mailbox; whether the server took it."""
    secret = signing.dumps([user.pk, user.email], salt=VERIFICATION_SALT)
    link = mails.public_url(reverse("page-verify", args=[secret]))
    return mails.send("verify", user.email, language or user.language, link=link, days=VERIFICATION_DAYS)


def user_behind(secret: str) -> User | None:
    """Whose mailbox a link was sent to, while it is good."""
    try:
        user_id, email = signing.loads(secret, salt=VERIFICATION_SALT, max_age=VERIFICATION_DAYS * 86_400)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    return User.objects.filter(pk=user_id, email=email, is_active=True).first()


@transaction.atomic
def verify_mailbox(*, acting: Actor, user: User) -> None:
    """The person has shown that mails to their address reach them."""
    changed = User.objects.filter(pk=user.pk, email_verified_at=None).update(email_verified_at=timezone.now())
    user.refresh_from_db(fields=["email_verified_at"])
    if changed:
        audit.record(acting, "email.verified", user, None, {"email": user.email})


def invitation_url(secret: str) -> str:
    """The page where an invitation is accepted."""
    return mails.public_url(reverse("page-join", args=[secret]))


def invitation_proof(secret: str) -> str:
    """What stands in the mailed link alone: who invites never sees it."""
    return salted_hmac(INVITATION_SALT, secret, algorithm="sha256").hexdigest()


def proves_mailbox(secret: str, proof: str) -> bool:
    """Whether the link came out of the mail."""
    return hmac.compare_digest(invitation_proof(secret).encode(), proof.encode())


def mail_invitation(invitation: Invitation, secret: str) -> None:
    """Send the link that both accepts the invitation and proves the mailbox, where mail is configured."""
    if not settings.MAIL_IS_CONFIGURED:
        return
    link = mails.public_url(reverse("page-join-mailed", args=[secret, invitation_proof(secret)]))
    by = invitation.invited_by.user
    mails.send(
        "invitation", invitation.email, by.language, link=link, tenant=invitation.tenant.name, by=by.email,
        expires_at=invitation.expires_at,
    )  # fmt: skip
