"""Authentication of requests from agents that joined by a token, and audit rows of refused requests."""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.utils import timezone

from brokers.contract.agent_requests import AgentCredentials, signed_text
from brokers.infra.request_signatures import is_signed_by
from brokers.limits import AGENT_CLOCK_S_MAX, AGENT_REFUSALS_AUDITED_PER_MINUTE_MAX
from brokers.models import AgentCertificate, Host
from tenants import audit
from tenants.actors import Actor
from tenants.choices import ActorKind
from tenants.errors import DomainError
from tenants.models import AuditEntry

log = structlog.get_logger(__name__)

REFUSED = "host.agent_refused"
_MICROSECONDS_PER_S = 1_000_000


class AgentRefused(DomainError):
    """The request is not accepted as one of an agent. `host` is the host that it names, if that exists."""

    code = "agent_refused"
    http_status = 401
    title = "The agent is not accepted"

    def __init__(self, detail: str, *, code: str, host: Host | None = None, http_status: int | None = None) -> None:
        super().__init__(detail, code=code, http_status=http_status)
        self.host = host


def agent_actor(host: Host, *, ip: str | None = None, request_id: str | None = None) -> Actor:
    """Returns the actor of the agent of a host."""
    return Actor(
        kind=ActorKind.SYSTEM, id=f"agent:{host.pk}", label=f"agent of {host.name}", ip=ip, request_id=request_id
    )


def authenticate(*, header: str, method: str, target: str, body: bytes, now: datetime) -> Host:
    """Returns the host whose agent has signed a request, and records that it was seen. Raises `AgentRefused`.

    The sequence number is compared and stored in one statement: of two requests with the same number one is refused.
    """
    credentials = AgentCredentials.parse(header)
    if credentials is None:
        raise AgentRefused("Sign the request with the agent's certificate.", code="unauthenticated")
    certificate = AgentCertificate.objects.select_related("host").filter(serial=credentials.serial).first()
    if certificate is None:
        raise AgentRefused("The certificate is unknown. Join again with a new token.", code="certificate_unknown")
    host = certificate.host
    signed_header = signed_text(method=method, target=target, sequence=credentials.sequence, body=body)
    if not is_signed_by(certificate.certificate_pem, signed_header, credentials.signature):
        raise AgentRefused("The signature is wrong.", code="signature_wrong", host=host)
    if host.removed_at is not None:
        raise AgentRefused("The host is removed from the fleet.", code="host_removed", host=host)
    if certificate.revoked_at is not None:
        raise AgentRefused(
            "The certificate is revoked. Join again with a new token.", code="certificate_revoked", host=host
        )
    if certificate.expires_at <= now:
        raise AgentRefused(
            "The certificate has expired. Join again with a new token.", code="certificate_expired", host=host
        )
    clock_difference_s = credentials.sequence / _MICROSECONDS_PER_S - now.timestamp()
    if abs(clock_difference_s) > AGENT_CLOCK_S_MAX:
        detail = f"The request's time is {round(clock_difference_s)} s off; at most {AGENT_CLOCK_S_MAX} s are accepted."
        raise AgentRefused(detail, code="request_late", host=host)
    accepted = Host.objects.filter(pk=host.pk, agent_sequence__lt=credentials.sequence).update(
        agent_sequence=credentials.sequence, agent_seen_at=now
    )
    if not accepted:
        raise AgentRefused("The request, or a later one, was received before.", code="request_replayed", host=host)
    if certificate.first_used_at is None:
        _record_first_use(certificate, now)
    return host


@transaction.atomic
def _record_first_use(certificate: AgentCertificate, now: datetime) -> None:
    """Records the first use of a certificate, and revokes the earlier certificates of its host."""
    Host.objects.select_for_update(no_key=True).get(pk=certificate.host_id)
    AgentCertificate.objects.filter(pk=certificate.pk, first_used_at=None).update(first_used_at=now)
    earlier_certificates = AgentCertificate.objects.filter(
        host=certificate.host_id, revoked_at=None, pk__lt=certificate.pk
    )
    earlier_certificates.update(revoked_at=now)


def record_refusal(refusal: AgentRefused, *, ip: str | None, request_id: str | None) -> None:
    """Records a refusal in the log and in the audit log; must be called outside of the transaction of the request.

    Requests for unknown hosts are not audited, and those for a known host only up to a number per minute, because
    anyone can send such requests.
    """
    host = refusal.host
    log.warning("agent.refused_request", host=host.name if host else "", code=refusal.code, ip=ip)
    if host is None:
        return
    since = timezone.now() - timedelta(minutes=1)
    recent = AuditEntry.objects.filter(target_id=host.pk, time__gt=since, action=REFUSED)
    if recent.count() < AGENT_REFUSALS_AUDITED_PER_MINUTE_MAX:
        acting = agent_actor(host, ip=ip, request_id=request_id)
        audit.record(acting, REFUSED, host, None, {"reason": refusal.code, "detail": refusal.detail})
