"""People, tenants, memberships, credentials, and the tables that every app writes to: audit log and idempotency
records.

Tenants, members, invitations and tokens are never deleted, because other rows refer to them: a member is removed, a
token or an invitation revoked, a tenant suspended.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from tenants.choices import ActorKind, InvitationState, Language, Role, SuspensionReason, TenantStatus, Theme
from tenants.ids import ID_CHARS_MAX, ID_LONG_RANDOM_CHARS, TypedIdField, new_id
from tenants.limits import (
    AUDIT_REF_CHARS_MAX,
    DOMAIN_CHARS_MAX,
    IDEMPOTENCY_KEY_CHARS_MAX,
    NAME_CHARS_MAX,
    SSO_CLAIM_CHARS_MAX,
    SSO_TEXT_CHARS_MAX,
    SUSPENSION_NOTE_CHARS_MAX,
    USER_AGENT_CHARS_MAX,
)
from tenants.versioned import Versioned

SECRET_HASH_CHARS = 64
TOKEN_PREFIX_CHARS = 12
SIGN_IN_PLACE_ID_START = "sin"
SESSION_ID_START = "ses"


def new_session_id() -> str:
    """Returns the public id of a session, shown on its owner's page."""
    return new_id(SESSION_ID_START, ID_LONG_RANDOM_CHARS)


class UserManager(BaseUserManager["User"]):
    """Creates users by e-mail address, stored in lower case."""

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        user = self.model(email=self.normalize_email(email), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)

    @classmethod
    def normalize_email(cls, email: str | None) -> str:
        return (email or "").strip().lower()

    def get_by_natural_key(self, username: str | None) -> User:
        return self.get(email=self.normalize_email(username))


class User(AbstractBaseUser, PermissionsMixin):
    """Person who signs in with an e-mail address; permissions come from memberships."""

    id = TypedIdField("usr")
    email = models.EmailField(_("e-mail"), max_length=254, unique=True)
    name = models.CharField(_("name"), max_length=NAME_CHARS_MAX, blank=True)
    language = models.CharField(_("language"), max_length=8, choices=Language.choices, default=Language.ENGLISH)
    time_zone = models.CharField(_("time zone"), max_length=64, default="UTC")
    theme = models.CharField(_("theme"), max_length=8, choices=Theme.choices, default=Theme.SYSTEM)
    is_staff = models.BooleanField(_("operator"), default=False, help_text=_("May open the operator panel."))
    is_active = models.BooleanField(_("active"), default=True)
    date_joined = models.DateTimeField(_("joined"), default=timezone.now)
    email_verified_at = models.DateTimeField(_("e-mail verified"), null=True, blank=True)
    enters_verified_only = models.BooleanField(
        _("signs in with a verified e-mail only"), default=False,
        help_text=_("The account was made where mail is configured."),
    )  # fmt: skip
    # True if `SignInPlace` has unread rows. It saves a query per page, since there are hardly ever any.
    has_sign_in_notices = models.BooleanField(default=False, editable=False)

    objects: ClassVar[UserManager] = UserManager()

    USERNAME_FIELD = "email"
    EMAIL_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        ordering = ("email",)
        verbose_name = _("user")
        verbose_name_plural = _("users")
        constraints = (models.UniqueConstraint(Lower("email"), name="user_email_once_in_any_case"),)

    def __str__(self) -> str:
        return self.email

    def clean(self) -> None:
        super().clean()
        self.email = UserManager.normalize_email(self.email)


class Tenant(Versioned):
    """Customer: owns instances, is isolated from other tenants, and receives invoices."""

    id = TypedIdField("ten")
    slug = models.SlugField(_("short name"), max_length=48, unique=True)
    name = models.CharField(_("name"), max_length=NAME_CHARS_MAX)
    currency = models.CharField(_("currency"), max_length=3, default="EUR")
    status = models.CharField(
        _("status"), max_length=12, choices=TenantStatus.choices, default=TenantStatus.ACTIVE, db_index=True
    )
    suspension_reason = models.CharField(
        _("suspended because"), max_length=12, choices=SuspensionReason.choices, blank=True, default=""
    )
    suspension_note = models.CharField(
        _("note for the tenant"), max_length=SUSPENSION_NOTE_CHARS_MAX, blank=True, default=""
    )
    requires_second_factor = models.BooleanField(
        _("members need a second factor"), default=False, help_text=_("Who has none is led to set one up.")
    )
    # Stored here to save a query per page, because `second_factor.gate` checks it with every request.
    requires_sso = models.BooleanField(_("members use single sign-on only"), default=False, editable=False)

    class Meta:
        ordering = ("name", "id")
        verbose_name = _("tenant")
        verbose_name_plural = _("tenants")
        constraints = (
            models.CheckConstraint(
                condition=models.Q(status="active", suspension_reason="")
                | (models.Q(status="suspended") & ~models.Q(suspension_reason="")),
                name="tenant_suspended_with_reason",
            ),
            models.CheckConstraint(condition=models.Q(currency__regex=r"^[A-Z]{3}$"), name="tenant_currency_code"),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def is_suspended(self) -> bool:
        return self.status == TenantStatus.SUSPENDED


class Member(Versioned):
    """Membership of a user in a tenant, with a role. Removed members stay: the audit log and tokens refer to them."""

    id = TypedIdField("mem")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="members", verbose_name=_("tenant"))
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="memberships", verbose_name=_("user"))
    role = models.CharField(_("role"), max_length=12, choices=Role.choices)
    removed_at = models.DateTimeField(_("removed"), null=True, blank=True)

    class Meta:
        ordering = ("created_at", "id")
        verbose_name = _("member")
        verbose_name_plural = _("members")
        constraints = (
            models.UniqueConstraint(
                fields=("tenant", "user"), condition=models.Q(removed_at=None), name="member_once_per_tenant"
            ),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="member_role_known"),
        )

    def __str__(self) -> str:
        return f"{self.user_id} {self.role} @ {self.tenant_id}"


class Invitation(Versioned):
    """Invitation to a tenant, sent as a link. Only the hash of the link's secret is stored."""

    id = TypedIdField("inv")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="invitations", verbose_name=_("tenant"))
    email = models.EmailField(_("e-mail"), max_length=254)
    role = models.CharField(_("role"), max_length=12, choices=Role.choices)
    secret_hash = models.CharField(max_length=SECRET_HASH_CHARS, unique=True, editable=False)
    invited_by = models.ForeignKey(Member, on_delete=models.PROTECT, related_name="+", verbose_name=_("invited by"))
    token = models.ForeignKey(
        "ApiToken", on_delete=models.PROTECT, null=True, blank=True, related_name="invitations",
        verbose_name=_("with the token"),
    )  # fmt: skip
    expires_at = models.DateTimeField(_("expires"))
    accepted_at = models.DateTimeField(_("accepted"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True)

    class Meta:
        ordering = ("-created_at", "id")
        verbose_name = _("invitation")
        verbose_name_plural = _("invitations")
        constraints = (
            models.UniqueConstraint(
                fields=("tenant", "email"),
                condition=models.Q(accepted_at=None, revoked_at=None),
                name="invitation_open_once",
            ),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="invitation_role_known"),
        )

    def __str__(self) -> str:
        return f"{self.email} → {self.tenant_id} ({self.role})"

    def state_at(self, now: datetime) -> InvitationState:
        """Returns its state at `now`."""
        if self.accepted_at is not None:
            return InvitationState.ACCEPTED
        if self.revoked_at is not None:
            return InvitationState.REVOKED
        return InvitationState.EXPIRED if self.expires_at <= now else InvitationState.OPEN


class SsoConfiguration(Versioned):
    """Identity provider of a tenant (OpenID Connect), and the roles that its claims give."""

    id = TypedIdField("sso")
    tenant = models.OneToOneField(Tenant, on_delete=models.PROTECT, related_name="sso", verbose_name=_("tenant"))
    issuer = models.CharField(_("issuer"), max_length=SSO_TEXT_CHARS_MAX)
    client_id = models.CharField(_("client id"), max_length=SSO_TEXT_CHARS_MAX)
    # Encrypted by `tenants.second_factor.adapter.cipher`: it is sent to the provider, so it cannot be hashed.
    client_secret_sealed = models.TextField(editable=False)
    domains = models.JSONField(_("e-mail domains"), default=list)
    role_claim = models.CharField(_("role claim"), max_length=SSO_CLAIM_CHARS_MAX, blank=True, default="")
    roles = models.JSONField(_("roles by value"), default=dict)
    assume_email_verified = models.BooleanField(
        _("addresses without `email_verified` count as verified"), default=False
    )

    class Meta:
        verbose_name = _("single sign-on")
        verbose_name_plural = _("single sign-on")

    def __str__(self) -> str:
        return f"{self.issuer} of {self.tenant_id}"


class DomainProof(models.Model):
    """Proof that a tenant controls an e-mail domain: the value its DNS must have, and when it was found there.

    Several tenants may prove one domain, each with a value of its own.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", verbose_name=_("tenant"))
    domain = models.CharField(_("domain"), max_length=DOMAIN_CHARS_MAX)
    challenge = models.CharField(_("challenge"), max_length=64, editable=False)
    proved_at = models.DateTimeField(_("proved"), null=True, blank=True)
    checked_at = models.DateTimeField(_("checked"), null=True, blank=True)
    # Time of the first check of a proved domain that did not find the record.
    missing_since = models.DateTimeField(_("missing since"), null=True, blank=True)

    class Meta:
        verbose_name = _("proof of a domain")
        verbose_name_plural = _("proofs of domains")
        constraints = (models.UniqueConstraint(fields=("tenant", "domain"), name="domain_once_per_tenant"),)

    def __str__(self) -> str:
        return f"{self.domain} of {self.tenant_id}"


class SsoIdentity(models.Model):
    """Account of a member at the tenant's identity provider: the pair of issuer and subject never changes its user."""

    id = TypedIdField("sid")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", verbose_name=_("tenant"))
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+", verbose_name=_("user"))
    issuer = models.CharField(_("issuer"), max_length=SSO_TEXT_CHARS_MAX)
    subject = models.CharField(_("subject"), max_length=255)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    last_used_at = models.DateTimeField(_("last used"), default=timezone.now)

    class Meta:
        verbose_name = _("identity")
        verbose_name_plural = _("identities")
        constraints = (
            models.UniqueConstraint(fields=("tenant", "issuer", "subject"), name="sso_subject_once_per_tenant"),
            models.UniqueConstraint(fields=("tenant", "issuer", "user"), name="sso_user_once_per_issuer"),
        )

    def __str__(self) -> str:
        return f"{self.subject} → {self.user_id} @ {self.tenant_id}"


class ApiToken(models.Model):
    """Credential of a program. The secret is shown once; its SHA-256 and its first characters are stored."""

    id = TypedIdField("tok")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="tokens", verbose_name=_("tenant"))
    member = models.ForeignKey(Member, on_delete=models.PROTECT, related_name="tokens", verbose_name=_("made by"))
    parent = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="children",
        verbose_name=_("made with the token"),
    )  # fmt: skip
    name = models.CharField(_("name"), max_length=NAME_CHARS_MAX)
    prefix = models.CharField(_("starts with"), max_length=TOKEN_PREFIX_CHARS, editable=False)
    secret_hash = models.CharField(max_length=SECRET_HASH_CHARS, unique=True, editable=False)
    scopes = models.JSONField(_("scopes"), default=list)
    created_at = models.DateTimeField(_("created"), auto_now_add=True)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True, editable=False)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True)

    class Meta:
        ordering = ("-created_at", "id")
        verbose_name = _("API token")
        verbose_name_plural = _("API tokens")

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class AppendOnlyError(Exception):
    """Attempt to modify the audit log."""


class AuditQuerySet(models.QuerySet["AuditEntry"]):
    """Read-only queryset of the audit log."""

    def update(self, **kwargs: Any) -> int:
        raise AppendOnlyError("audit entries are never changed")

    def delete(self) -> tuple[int, dict[str, int]]:
        raise AppendOnlyError("audit entries are never deleted")


class AuditEntry(models.Model):
    """Audit entry: actor, action, target, and values before and after.

    A trigger refuses UPDATE and DELETE, except of expired entries about Kafka clients
    (`audit.delete_expired_client_entries`).
    """

    id = TypedIdField("aud", ID_LONG_RANDOM_CHARS)
    time = models.DateTimeField(_("time"), default=timezone.now)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, null=True, blank=True, related_name="audit_entries", verbose_name=_("tenant")
    )
    actor_kind = models.CharField(_("kind of actor"), max_length=8, choices=ActorKind.choices)
    actor_id = models.CharField(_("actor"), max_length=AUDIT_REF_CHARS_MAX)
    actor_label = models.CharField(_("actor name"), max_length=254)
    action = models.CharField(_("action"), max_length=64)
    target_type = models.CharField(_("kind of target"), max_length=32)
    target_id = models.CharField(_("target"), max_length=AUDIT_REF_CHARS_MAX)
    before = models.JSONField(_("before"), null=True, blank=True)
    after = models.JSONField(_("after"), null=True, blank=True)
    request_id = models.CharField(_("request id"), max_length=64, blank=True, default="")
    ip = models.GenericIPAddressField(_("IP address"), null=True, blank=True)
    # For Kafka clients: client id, route, broker, and a count if several actions are summarised.
    context = models.JSONField(_("context"), null=True, blank=True)

    objects: ClassVar[models.Manager[AuditEntry]] = models.Manager.from_queryset(AuditQuerySet)()

    class Meta:
        ordering = ("-time", "-id")
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit log")
        indexes = (
            models.Index(fields=("tenant", "-time", "-id"), name="audit_by_tenant_and_time"),
            models.Index(fields=("target_id", "-time"), name="audit_by_target"),
            models.Index(fields=("time",), name="audit_of_clients", condition=models.Q(actor_kind="client")),
        )

    def __str__(self) -> str:
        return f"{self.time:%Y-%m-%d %H:%M:%S} {self.actor_label} {self.action} {self.target_id}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise AppendOnlyError("audit entries are never changed")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        raise AppendOnlyError("audit entries are never deleted")


class IdempotencyRecord(models.Model):
    """Response stored under an Idempotency-Key, in the transaction of the change.

    A record therefore exists exactly if its change is committed. Concurrent requests are serialised by an advisory lock
    of that transaction (`tenants.api.idempotency`), which a crash releases.
    """

    actor_id = models.CharField(max_length=64)
    tenant_id = models.CharField(max_length=ID_CHARS_MAX, blank=True, default="")
    key = models.CharField(max_length=IDEMPOTENCY_KEY_CHARS_MAX)
    fingerprint = models.CharField(max_length=SECRET_HASH_CHARS)
    status = models.PositiveSmallIntegerField()
    headers = models.JSONField(default=dict)
    body = models.JSONField(null=True)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ("created_at", "id")
        verbose_name = _("idempotency record")
        verbose_name_plural = _("idempotency records")
        constraints = (
            models.UniqueConstraint(fields=("tenant_id", "actor_id", "key"), name="idempotency_key_once_per_actor"),
        )

    def __str__(self) -> str:
        return f"{self.actor_id} {self.key} → {self.status}"


class Session(AbstractBaseSession):
    """Session of a browser with information for its owner. `config.sessions` reads and writes it.

    `session_key` is the value of the cookie and is shown on no page; `public_id` is shown.
    """

    public_id = models.CharField(max_length=ID_CHARS_MAX, unique=True, editable=False, default=new_session_id)
    user = models.ForeignKey(
        User, on_delete=models.CASCADE, null=True, blank=True, related_name="sessions", verbose_name=_("user")
    )
    created_at = models.DateTimeField(_("first seen"), default=timezone.now)
    last_seen_at = models.DateTimeField(_("last seen"), default=timezone.now, db_index=True)
    ip = models.GenericIPAddressField(_("IP address"), null=True, blank=True)
    user_agent = models.CharField(max_length=USER_AGENT_CHARS_MAX, blank=True, default="")

    class Meta:
        verbose_name = _("session")
        verbose_name_plural = _("sessions")

    def __str__(self) -> str:
        return f"{self.public_id} of {self.user_id or 'nobody'}"


class SignInPlace(models.Model):
    """Browser and network from which a person has signed in. A sign-in with another pair is reported to the person."""

    id = TypedIdField(SIGN_IN_PLACE_ID_START)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="sign_in_places", verbose_name=_("user"))
    browser = models.CharField(_("browser"), max_length=64, blank=True)
    network = models.CharField(_("network"), max_length=64, blank=True)
    first_at = models.DateTimeField(_("first sign-in"), default=timezone.now)
    last_at = models.DateTimeField(_("last sign-in"), default=timezone.now)
    # Shown in the person's other console sessions until one of them acknowledges it.
    is_unread = models.BooleanField(default=False, editable=False)

    class Meta:
        ordering = ("-last_at", "id")
        verbose_name = _("place of sign-in")
        verbose_name_plural = _("places of sign-in")
        constraints = (
            models.UniqueConstraint(fields=("user", "browser", "network"), name="sign_in_place_once_per_user"),
        )

    def __str__(self) -> str:
        return f"{self.user_id} {self.browser} {self.network}"
