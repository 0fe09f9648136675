"""Proofs of e-mail domains: only addresses of domains that the tenant controls may sign in to it by single sign-on.

Without a proof a tenant could set up a provider of its own that vouches for addresses of another company, and create
accounts or sign in as members with these addresses.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from tenants import access, audit
from tenants.actors import Actor, system_actor
from tenants.errors import Conflict, Invalid, Message, Unavailable
from tenants.limits import (
    DOMAIN_CHECK_AGAIN_AFTER_H,
    DOMAIN_CHECKS_PER_ROUND_MAX,
    DOMAIN_PROOF_KEPT_DAYS,
    DOMAIN_ROUND_S,
)
from tenants.models import DomainProof, Tenant
from tenants.sso import domains
from tenants.sso.protocol import SsoFailed


def proofs_of(tenant: Tenant) -> list[DomainProof]:
    """Returns the tenant's domains with the state of their proofs, by name."""
    return list(DomainProof.objects.filter(tenant=tenant).order_by("domain"))


def sync_proofs(tenant: Tenant, domain_names: Sequence[str]) -> None:
    """Creates challenges for wanted domains that have none, and deletes the proofs of all other domains."""
    DomainProof.objects.filter(tenant=tenant).exclude(domain__in=domain_names).delete()
    stored_names = set(DomainProof.objects.filter(tenant=tenant).values_list("domain", flat=True))
    DomainProof.objects.bulk_create(
        DomainProof(tenant=tenant, domain=domain, challenge=domains.new_challenge())
        for domain in domain_names
        if domain not in stored_names
    )


def is_proved(tenant: Tenant, domain: str) -> bool:
    """Returns True if addresses of the domain may sign in to the tenant."""
    return DomainProof.objects.filter(tenant=tenant, domain=domain, proved_at__isnull=False).exists()


def has_proved_domain(tenant: Tenant) -> bool:
    """Returns True if addresses of any domain may sign in to the tenant."""
    return DomainProof.objects.filter(tenant=tenant, proved_at__isnull=False).exists()


def prove_domain(*, acting: Actor, domain: str) -> DomainProof:
    """Looks for the domain's record in the DNS, and marks the domain as proved.

    Raises `Invalid` for a domain that single sign-on does not name, `Conflict` without the record, `Unavailable`
    if the DNS does not answer.
    """
    access.require_may_set_sso(acting)
    tenant = access.tenant_of(acting)
    name = domain.strip().lower()
    proof = DomainProof.objects.filter(tenant=tenant, domain=name).first()
    if proof is None:
        raise Invalid.at("/domain", "It is none of the e-mail domains of single sign-on.")
    try:
        is_found = domains.has_record(tenant.pk, name, proof.challenge)
    except SsoFailed as error:
        raise Unavailable(error.detail) from None
    if not is_found:
        detail = Message(
            gettext_noop("The DNS has no TXT record %(name)s with the value %(value)s. New records take a while."),
            name=domains.record_name(name), value=domains.record_value(proof.challenge),
        )  # fmt: skip
        raise Conflict(detail, code="record_missing")
    now = timezone.now()
    with transaction.atomic():
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        unchanged_proof = DomainProof.objects.filter(pk=proof.pk, challenge=proof.challenge)
        if not unchanged_proof.update(proved_at=proof.proved_at or now, checked_at=now, missing_since=None):
            raise Conflict("Single sign-on was changed meanwhile. Try again.")
        audit.record(acting, "sso.domain_proved", tenant, None, {"domain": name}, tenant=tenant)
    proof.refresh_from_db()
    return proof


def recheck_domains(now: datetime) -> int:
    """Looks again for the records of proved domains, those checked longest ago first; returns the number that lapsed.

    A domain lapses when its record was missing for `DOMAIN_PROOF_KEPT_DAYS`, but not because the DNS does not answer.
    """
    proofs_to_check = DomainProof.objects.filter(
        proved_at__isnull=False, checked_at__lt=now - timedelta(hours=DOMAIN_CHECK_AGAIN_AFTER_H)
    ).order_by("checked_at")
    deadline_s = time.monotonic() + DOMAIN_ROUND_S
    lapsed_count = 0
    for proof in proofs_to_check.select_related("tenant")[:DOMAIN_CHECKS_PER_ROUND_MAX]:
        if time.monotonic() >= deadline_s:
            break
        lapsed_count += _recheck(proof, now)
    return lapsed_count


def _recheck(proof: DomainProof, now: datetime) -> bool:
    """Looks for the record of one domain; True if the domain lapsed."""
    unchanged_proof = DomainProof.objects.filter(pk=proof.pk, challenge=proof.challenge, proved_at=proof.proved_at)
    try:
        is_found = domains.has_record(proof.tenant_id, proof.domain, proof.challenge)
    except SsoFailed:
        unchanged_proof.update(checked_at=now)
        return False
    missing_since = None if is_found else proof.missing_since or now
    if missing_since is None or now - missing_since < timedelta(days=DOMAIN_PROOF_KEPT_DAYS):
        unchanged_proof.update(checked_at=now, missing_since=missing_since)
        return False
    with transaction.atomic():
        if not unchanged_proof.update(checked_at=now, proved_at=None, missing_since=None):
            return False
        acting = system_actor("sso", proof.tenant)
        audit.record(acting, "sso.domain_lapsed", proof.tenant, {"domain": proof.domain}, None, tenant=proof.tenant)
    return True
