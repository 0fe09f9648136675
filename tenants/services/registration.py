"""Sign-up with mail configured: the response does not reveal whether the address has an account.

Both cases do the same checks, hash one password, write, and send one mail. A new account must verify its mailbox first:
if it could sign in immediately, an attempt would reveal it.
"""

from __future__ import annotations

from collections.abc import Callable

from django.contrib.auth.hashers import make_password
from django.db import transaction
from django.urls import reverse

from tenants import audit, mails
from tenants.actors import system_actor, user_actor
from tenants.errors import Conflict, NotFound
from tenants.models import Invitation, User, UserManager
from tenants.services import mailboxes
from tenants.services.members import accept_invitation
from tenants.services.people import create_own_tenant, create_user, require_valid_credentials, validated_name


@transaction.atomic
def request_sign_up(*, email: str, password: str, tenant_name: str, language: str) -> None:
    """Creates a person and their first tenant, pending verification of the mailbox. Raises `Invalid`."""
    validated_name(tenant_name)
    _register(email, password, language, "", lambda user: create_own_tenant(user=user, name=tenant_name))


@transaction.atomic
def request_sign_up_invited(*, email: str, password: str, invitation: Invitation, secret: str, language: str) -> None:
    """Signs up a person with an invitation link that did not come from the mail.

    Raises `NotFound` for another address than the invited one.
    """
    if UserManager.normalize_email(email) != invitation.email:
        raise NotFound("There is no open invitation for you under this link.")
    next_path = reverse("page-join", args=[secret])
    accept: Callable[[User], object] = lambda user: accept_invitation(  # noqa: E731
        acting=user_actor(user), user=user, secret=secret
    )
    _register(email, password, language, next_path, accept)


def _register(email: str, password: str, language: str, next_path: str, on_created: Callable[[User], object]) -> None:
    """Creates an account and calls `on_created` with its user, or mails the owner of an existing one.

    `next_path` is the page to which the mail leads an existing owner after the login, "" for the start page.
    """
    email = UserManager.normalize_email(email)
    require_valid_credentials(email, password, language)
    user = User.objects.filter(email=email).first()
    if user is None:
        try:
            user = create_user(email, password, language, enters_verified_only=True)
        except Conflict:  # a concurrent sign-up took the address
            user = User.objects.get(email=email)
        else:
            on_created(user)
            _mail_on_commit(lambda: mailboxes.send_verification_mail(user, language))
            return
    make_password(password)
    audit.record(system_actor("sign_up"), "account.sign_up_repeated", user, None, {"email": email})
    if mailboxes.may_enter(user):
        _mail_on_commit(lambda: _send_known_address_mail(email, language, next_path))
    else:
        _mail_on_commit(lambda: mailboxes.send_verification_mail(user, language))


def _send_known_address_mail(email: str, language: str, next_path: str) -> None:
    log_in = reverse("account_login") + (f"?next={next_path}" if next_path else "")
    reset = mails.public_url(reverse("account_reset_password"))
    mails.send("known_address", email, language, log_in=mails.public_url(log_in), reset=reset)


def _mail_on_commit(send: Callable[[], object]) -> None:
    transaction.on_commit(send)
