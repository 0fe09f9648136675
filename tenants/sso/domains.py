"""DNS records by which a tenant proves that it controls an e-mail domain: a TXT record below the domain.

The name begins with an underscore, so that a service that hands out host names below its own domain does not hand out
X
"""

from __future__ import annotations

import secrets
from typing import Final

from django.conf import settings
from dns.exception import DNSException
from dns.nameserver import Do53Nameserver
from dns.resolver import NXDOMAIN, NoAnswer, Resolver

from tenants.errors import Message, gettext_noop
from tenants.limits import DNS_DEADLINE_S
from tenants.sso import provider
from tenants.sso.protocol import SsoFailed

LABEL: Final = "_penstock-challenge"
VALUE_PREFIX: Final = "penstock-domain-verification="
RANDOM_BYTES: Final = 16


def new_challenge() -> str:
    """Returns a random value for the record of one domain of one tenant."""
    return secrets.token_hex(RANDOM_BYTES)


def record_name(domain: str) -> str:
    """Returns the name of the TXT record."""
    return f"{LABEL}.{domain}"


def record_value(challenge: str) -> str:
    """Returns the content of the TXT record."""
    return VALUE_PREFIX + challenge


def has_record(tenant_id: str, domain: str, challenge: str) -> bool:
    """Returns True if the DNS has the record now. Raises `SsoFailed` without an answer, or with too many requests."""
    expected = record_value(challenge).encode()
    try:
        with provider.slot(tenant_id):
            records = _resolver().resolve(f"{record_name(domain)}.", "TXT", search=False)
            return any(b"".join(record.strings) == expected for record in records)
    except (NXDOMAIN, NoAnswer):
        return False
    except DNSException:
        detail = Message(gettext_noop("The DNS of %(domain)s gives no answer. Try again later."), domain=domain)
        raise SsoFailed("dns_unreachable", detail) from None


def _resolver() -> Resolver:
    resolver = Resolver(configure=not settings.DNS_SERVERS)
    if settings.DNS_SERVERS:
        resolver.nameservers = [Do53Nameserver(address, port) for address, port in settings.DNS_SERVERS]
    resolver.lifetime = DNS_DEADLINE_S
    return resolver
