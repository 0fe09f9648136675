"""Verification of mailboxes by links in mails.

It is active if mail is configured; otherwise no verification is possible or required.
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
    """True if a correct password suffices: accounts created with mail configured must verify their mailbox first."""
    if not settings.MAIL_IS_CONFIGURED:
        return True
    return user.email_verified_at is not None or not user.enters_verified_only


def send_verification_mail(user: User, language: str = "") -> bool:
    """Sends the verification link; returns True if the mail was accepted."""
    secret = signing.dumps([user.pk, user.email], salt=VERIFICATION_SALT)
    link = mails.public_url(reverse("page-verify", args=[secret]))
    return mails.send("verify", user.email, language or user.language, link=link, days=VERIFICATION_DAYS)


def user_of_verification_link(secret: str) -> User | None:
    """Returns the user whose mailbox received the link, while the link is valid."""
    try:
        user_id, email = signing.loads(secret, salt=VERIFICATION_SALT, max_age=VERIFICATION_DAYS * 86_400)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    return User.objects.filter(pk=user_id, email=email, is_active=True).first()


@transaction.atomic
def verify_mailbox(*, acting: Actor, user: User) -> None:
    """Marks the person's address as verified."""
    changed_count = User.objects.filter(pk=user.pk, email_verified_at=None).update(email_verified_at=timezone.now())
    user.refresh_from_db(fields=["email_verified_at"])
    if changed_count:
        audit.record(acting, "email.verified", user, None, {"email": user.email})


def invitation_url(secret: str) -> str:
    """Returns the URL of the page that accepts an invitation."""
    return mails.public_url(reverse("page-join", args=[secret]))


def invitation_proof(secret: str) -> str:
    """Returns the proof that only the mailed link contains; the inviting member never sees it."""
    return salted_hmac(INVITATION_SALT, secret, algorithm="sha256").hexdigest()


def is_invitation_proof(secret: str, proof: str) -> bool:
    """True if the link came from the mail."""
    return hmac.compare_digest(invitation_proof(secret).encode(), proof.encode())


def send_invitation_mail(invitation: Invitation, secret: str) -> None:
    """Sends the link that accepts the invitation and verifies the mailbox, if mail is configured."""
    if not settings.MAIL_IS_CONFIGURED:
        return
    link = mails.public_url(reverse("page-join-mailed", args=[secret, invitation_proof(secret)]))
    inviter = invitation.invited_by.user
    mails.send(
        "invitation", invitation.email, inviter.language, link=link, tenant=invitation.tenant.name, by=inviter.email,
        expires_at=invitation.expires_at,
    )  # fmt: skip
