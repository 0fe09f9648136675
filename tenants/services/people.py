"""People: sign-up, founding of tenants, preferences, operators."""

from __future__ import annotations

from typing import Any
from zoneinfo import available_timezones

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.text import slugify
from django.utils.translation import gettext_noop

from tenants import access, audit, selectors
from tenants.actors import Actor, system_actor, user_actor
from tenants.choices import Language, Role, Theme
from tenants.errors import Conflict, Invalid, Message, NotFound, QuotaExceeded
from tenants.ids import new_id
from tenants.limits import NAME_CHARS_MAX, TENANTS_PER_USER_MAX
from tenants.models import Member, Tenant, User, UserManager
from tenants.services.members import accept_invitation

SLUG_BASE_CHARS = 32
SLUG_RANDOM_CHARS = 6


@transaction.atomic
def sign_up(
    *, email: str, password: str, tenant_name: str, language: str = Language.ENGLISH, acting: Actor | None = None
) -> Member:
    """Creates a person and their first tenant. Raises `Invalid` for a bad value and `Conflict` for a known e-mail."""
    user = create_user(email, password, language)
    return create_own_tenant(user=user, name=tenant_name, acting=acting)


@transaction.atomic
def sign_up_invited(
    *, email: str, password: str, secret: str, language: str = Language.ENGLISH, is_mailbox_verified: bool = False
) -> Member:
    """Creates a person who joins the inviting tenant. `is_mailbox_verified` means that the link came from the mail.

    Raises `Invalid` for a bad value, `Conflict` for a known e-mail, and the errors of `accept_invitation`. The
    existence of an account is revealed for the invited address only, to holders of its link.
    """
    invitation = selectors.invitation_of_link(secret)
    if invitation is None or invitation.email != UserManager.normalize_email(email):
        raise NotFound("There is no open invitation for you under this link.")
    user = create_user(email, password, language, email_verified_at=timezone.now() if is_mailbox_verified else None)
    return accept_invitation(acting=user_actor(user), user=user, secret=secret)


def require_valid_credentials(email: str, password: str, language: str = Language.ENGLISH) -> None:
    """Raises `Invalid` for an address or password that no account can have, without revealing existing accounts."""
    _validate("/email", validate_email, email)
    _validate("/password", validate_password, password, User(email=email, language=language))


def create_user(email: str, password: str, language: str, **fields: Any) -> User:
    """Creates a user. Raises `Invalid` and `Conflict(email_taken)`."""
    email = UserManager.normalize_email(email)
    require_valid_credentials(email, password, language)
    user = User(email=email, language=language, **fields)
    email_taken = Conflict("There is an account with this e-mail address.", code="email_taken")
    if User.objects.filter(email=email).exists():
        raise email_taken
    user.set_password(password)
    try:
        with transaction.atomic():
            user.save()
    except IntegrityError:  # a concurrent sign-up took the address
        raise email_taken from None
    return user


@transaction.atomic
def create_own_tenant(*, user: User, name: str, slug: str | None = None, acting: Actor | None = None) -> Member:
    """Creates a tenant with `user` as its owner. Raises `QuotaExceeded` if the user belongs to too many.

    A generated slug ends in random characters: without them it would reveal whether another tenant has taken it.
    """
    if acting is not None:
        access.require_whole_account(acting)
    name = validated_name(name)
    User.objects.select_for_update().get(pk=user.pk)
    if selectors.memberships(user).count() >= TENANTS_PER_USER_MAX:
        raise QuotaExceeded(Message(gettext_noop("A person may belong to %(n)s tenants."), n=TENANTS_PER_USER_MAX))
    tenant = Tenant.objects.create(name=name, slug=slug or _slug(name))
    member = Member.objects.create(tenant=tenant, user=user, role=Role.OWNER)
    acting = acting or user_actor(user)
    audit.record(acting, "tenant.created", tenant, None, {"name": name, "slug": tenant.slug}, tenant=tenant)
    after = {"email": user.email, "role": Role.OWNER}
    audit.record(acting, "member.joined", member, None, after, tenant=tenant)
    return member


@transaction.atomic
def create_tenant_for(*, email: str, name: str, acting: Actor) -> tuple[Member, bool]:
    """Creates a tenant for a person, with an account if needed. Returns the member, and True if an account was
    created.

    A new account has no password; a link sets it.
    """
    email = UserManager.normalize_email(email)
    _validate("/email", validate_email, email)
    user = User.objects.filter(email=email).first()
    is_new = user is None
    if user is None:
        user = User.objects.create_user(email, None, email_verified_at=timezone.now())
    return create_own_tenant(user=user, name=name, acting=acting), is_new


@transaction.atomic
def set_preferences(
    *,
    user: User,
    name: str | None = None,
    language: str | None = None,
    time_zone: str | None = None,
    theme: str | None = None,
) -> User:
    """Sets display preferences of a person; None does not change a setting."""
    if language is not None and language not in Language.values:
        raise Invalid.at("/language", "There is no such language.")
    if theme is not None and theme not in Theme.values:
        raise Invalid.at("/theme", "There is no such theme.")
    if time_zone is not None and time_zone not in available_timezones():
        raise Invalid.at("/time_zone", "There is no such time zone.")
    values_by_field = {"name": name, "language": language, "time_zone": time_zone, "theme": theme}
    fields = [field for field, value in values_by_field.items() if value is not None]
    for field in fields:
        setattr(user, field, values_by_field[field])
    user.save(update_fields=fields)
    return user


@transaction.atomic
def create_operator(*, email: str, password: str) -> tuple[User, bool]:
    """Creates an operator; returns the user and True if the user is new. An existing password is kept.

    Raises `Invalid` for an address or password that no account can have.
    """
    appointed = appoint_operator(email=email)
    if appointed is not None:
        return appointed[0], False
    email = UserManager.normalize_email(email)
    require_valid_credentials(email, password)
    user = User.objects.create_superuser(email, password, email_verified_at=timezone.now())
    audit.record(system_actor("create_operator"), "operator.appointed", user, None, {"email": email})
    return user, True


@transaction.atomic
def appoint_operator(*, email: str) -> tuple[User, bool] | None:
    """Makes an existing user an operator; the password is kept. Returns the user and True if the user was none before,
    None if there is no such user.
    """
    user = User.objects.select_for_update().filter(email=UserManager.normalize_email(email)).first()
    if user is None:
        return None
    if user.is_staff and user.is_superuser and user.is_active:
        return user, False
    user.is_staff = user.is_superuser = user.is_active = True
    user.save(update_fields=["is_staff", "is_superuser", "is_active"])
    audit.record(system_actor("create_operator"), "operator.appointed", user, None, {"email": user.email})
    return user, True


@transaction.atomic
def replace_password(*, email: str, password: str) -> bool:
    """Replaces the lost password of an account whose password the supervisor keeps (operator, demo). Returns False if
    there is no such account.

    Open sessions become invalid.
    """
    user = User.objects.select_for_update().filter(email=UserManager.normalize_email(email)).first()
    if user is None:
        return False
    user.set_password(password)
    user.save(update_fields=["password"])
    audit.record(system_actor("up"), "password.replaced", user, None, {"email": user.email})
    return True


def validated_name(name: str) -> str:
    """Returns a name without surrounding spaces. Raises `Invalid`."""
    name = name.strip()
    if not 1 <= len(name) <= NAME_CHARS_MAX or not name.isprintable():
        raise Invalid.at(
            "/name", Message(gettext_noop("A name has 1 to %(n)s printable characters."), n=NAME_CHARS_MAX)
        )
    return name


def _slug(name: str) -> str:
    base = slugify(name)[:SLUG_BASE_CHARS].strip("-") or "tenant"
    return new_id(base, SLUG_RANDOM_CHARS)


def _validate(pointer: str, check: Any, *values: Any) -> None:
    try:
        check(*values)
    except ValidationError as error:
        raise Invalid.at(pointer, " ".join(error.messages)) from None
