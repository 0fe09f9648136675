"""Join tokens of hosts, and the certificates that agents get for them (decision 163)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from brokers.contract.agent_requests import serial_text
from brokers.infra import certificates
from brokers.infra.request_signatures import fingerprint, requested_key
from brokers.limits import JOIN_TOKEN_MINUTES
from brokers.models import AgentCertificate, Host
from brokers.operations import revocation
from brokers.operations.agent_access import AgentRefused, agent_actor
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import ActorKind, Scope
from tenants.errors import Conflict, Invalid, Message, NotFound, Unavailable
from tenants.secrets import hash_secret, new_secret

TOKEN_PREFIX = "psj_"  # noqa: S105 (a prefix)
# Stored certificates of a host, including revoked ones: a request that uses one of these is refused with the reason.
CERTIFICATES_KEPT_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinToken:
    """Join token of a host, with the command line that uses it. The secret is not stored."""

    secret: str
    expires_at: datetime
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Certificate that an agent gets for its token, with the authority that signed it."""

    host: Host
    certificate_pem: str
    authority_pem: str


@transaction.atomic
def new_join_token(*, acting: Actor, host: Host) -> JoinToken:
    """Makes a join token for a host. It voids an earlier token and the certificates of the host's agent, and, if an
    agent had joined, the internal certificates of its brokers, whose keys are on the same machine.
    """
    access.require(acting, Scope.OPERATOR)
    row = Host.objects.select_for_update(no_key=True).get(pk=host.pk)
    if row.removed_at is not None:
        raise Conflict("The host is removed.", code="removed")
    now = timezone.now()
    secret, expires_at = new_secret(TOKEN_PREFIX), now + timedelta(minutes=JOIN_TOKEN_MINUTES)
    Host.objects.filter(pk=row.pk).update(
        join_token_hash=hash_secret(secret), join_token_expires_at=expires_at, join_token_used_at=None
    )
    after = {"expires_at": expires_at, "revoked_certificates": revoke_certificates(row, now)}
    if row.agent_joined_at is not None:
        after["revoked_broker_certificates"] = revocation.revoke_for_host(row, now)
    audit.record(acting, "host.join_token_made", row, None, after)
    return JoinToken(secret=secret, expires_at=expires_at, command=join_command(secret))


def joining_actor(token: str, *, ip: str | None, request_id: str | None) -> Actor:
    """Returns the actor of a join, who is identified by the token only."""
    return Actor(
        kind=ActorKind.SYSTEM, id=f"join:{hash_secret(token)[:32]}", label="join", ip=ip, request_id=request_id
    )


def join_command(secret: str) -> str:
    """Returns the command line that joins the agent of a host, and starts it."""
    arguments = ["manage.py agent", f"--join {settings.PUBLIC_URL}", f"--token {secret}"]
    file = settings.INTERNAL_TLS_DIR / certificates.CA_FILE
    if file.exists():
        arguments.append(f"--ca-sha256 {fingerprint(file.read_bytes())}")
    return " ".join(arguments)


def authority_pem() -> str:
    """Returns the certificate of the internal authority. Raises `NotFound` in an installation without one."""
    file = settings.INTERNAL_TLS_DIR / certificates.CA_FILE
    try:
        return file.read_text(encoding="ascii")
    except FileNotFoundError:
        raise NotFound from None


def revoke_certificates(host: Host, now: datetime) -> int:
    """Revokes all certificates of the agent of a host; returns their number."""
    return AgentCertificate.objects.filter(host=host, revoked_at=None).update(revoked_at=now)


@transaction.atomic
def join(*, token: str, csr_pem: str, host_name: str = "", ip: str | None, request_id: str | None) -> Membership:
    """Uses up a join token: returns a certificate for the key in the signing request.

    Raises `AgentRefused` for a token that is unknown, used, expired, or of another host than `host_name`, if that is
    given, and `Invalid` for a wrong signing request, which leaves the token as it is.
    """
    row = Host.objects.select_for_update(no_key=True).filter(join_token_hash=hash_secret(token)).first()
    now = timezone.now()
    if row is None or row.removed_at is not None:
        raise AgentRefused("The token is unknown. Make a new one.", code="join_token_unknown")
    if row.join_token_used_at is not None:
        detail = "The token was used before. If not by you, make a new one: that revokes the certificate got for it."
        raise AgentRefused(detail, code="join_token_used", host=row)
    if row.join_token_expires_at is None or row.join_token_expires_at <= now:
        raise AgentRefused("The token has expired. Make a new one.", code="join_token_expired", host=row)
    if host_name and host_name != row.name:
        raise AgentRefused("The token is another host's.", code="other_host", host=row, http_status=403)
    key = require_valid_key(csr_pem)
    revoke_certificates(row, now)
    certificate = _issue_and_store(row, key, now)
    Host.objects.filter(pk=row.pk).update(join_token_used_at=now, agent_joined_at=now, agent_sequence=0)
    acting = agent_actor(row, ip=ip, request_id=request_id)
    audit.record(acting, "host.joined", row, None, {"serial": certificate.serial, "expires_at": certificate.expires_at})
    return Membership(host=row, certificate_pem=certificate.certificate_pem, authority_pem=authority_pem())


@transaction.atomic
def renew(*, acting: Actor, host: Host, csr_pem: str) -> str:
    """Returns the next certificate of an agent, in PEM. Its first use revokes the present one.

    Raises `Conflict` (`not_due`) if the present one is valid for more than `certificates.RENEWAL_DAYS`, `AgentRefused`
    if it is revoked, and `Invalid` for a wrong signing request.
    """
    row = Host.objects.select_for_update(no_key=True).get(pk=host.pk)
    now = timezone.now()
    current = AgentCertificate.objects.filter(host=row, revoked_at=None).exclude(first_used_at=None).first()
    if current is None:
        raise AgentRefused("The certificate is revoked.", code="certificate_revoked", host=row)
    if current.expires_at - now > timedelta(days=certificates.RENEWAL_DAYS):
        raise Conflict("The certificate is not renewed yet.", code="not_due")
    key = require_valid_key(csr_pem)
    # A certificate that was never used did not reach the agent.
    AgentCertificate.objects.filter(host=row, revoked_at=None, first_used_at=None).update(revoked_at=now)
    certificate = _issue_and_store(row, key, now)
    after = {"serial": certificate.serial, "expires_at": certificate.expires_at}
    audit.record(acting, "host.certificate_renewed", row, {"serial": current.serial}, after)
    return certificate.certificate_pem


def require_valid_key(csr_pem: str) -> ec.EllipticCurvePublicKey:
    """Returns the key of a signing request. Raises `Invalid`."""
    try:
        return requested_key(csr_pem)
    except ValueError as error:
        unusable = Message(gettext_noop("This is no signing request that can be used: %(reason)s."), reason=str(error))
        raise Invalid.at("/csr_pem", unusable) from None


def _issue_and_store(host: Host, key: ec.EllipticCurvePublicKey, now: datetime) -> AgentCertificate:
    try:
        certificate = certificates.issue_agent_certificate(settings.INTERNAL_TLS_DIR, host.pk, key, now)
    except OSError:
        raise _no_authority() from None
    kept_ids = (
        AgentCertificate.objects.filter(host=host)
        .order_by("-pk")
        .values_list("pk", flat=True)[: CERTIFICATES_KEPT_MAX - 1]
    )
    AgentCertificate.objects.filter(host=host).exclude(pk__in=list(kept_ids)).exclude(revoked_at=None).delete()
    return AgentCertificate.objects.create(
        host=host,
        serial=serial_text(certificate.serial_number),
        certificate_pem=certificate.public_bytes(Encoding.PEM).decode(),
        issued_at=now,
        expires_at=certificate.not_valid_after_utc,
    )


def _no_authority() -> Unavailable:
    return Unavailable("The web process has no key of the internal authority (ca_key.pem).", retry_after_s=60)
