"""Named limits, and the registry from which `GET /api/v1/limits` is answered.

An app states its limits as constants, and registers those a tenant can run into from `AppConfig.ready`:
`limits.register(Limit("topics_per_instance_max", 10_000, "topics", "Topics in one instance."))`.
"""

from __future__ import annotations

from dataclasses import dataclass

REQUEST_BODY_BYTES_MAX = 256 * 1024
PAGE_SIZE_DEFAULT = 50
PAGE_SIZE_MAX = 200
PAGE_TOKEN_CHARS_MAX = 2048
IDEMPOTENCY_KEY_CHARS_MAX = 128
IDEMPOTENCY_HOURS = 24
IDEMPOTENCY_RESPONSE_BYTES_MAX = 16 * 1024 * 1024
JSON_DEPTH_MAX = 32

API_READS_PER_MINUTE_MAX = 1200
API_WRITES_PER_MINUTE_MAX = 300
API_ANONYMOUS_PER_MINUTE_MAX = 120

TENANTS_PER_USER_MAX = 10
MEMBERS_PER_TENANT_MAX = 200
INVITATIONS_PENDING_MAX = 50
TOKENS_PER_TENANT_MAX = 100
INVITATION_DAYS = 7
NAME_CHARS_MAX = 64

assert PAGE_SIZE_DEFAULT <= PAGE_SIZE_MAX
assert API_WRITES_PER_MINUTE_MAX <= API_READS_PER_MINUTE_MAX

# What an operator tells a tenant when suspending it.
SUSPENSION_NOTE_CHARS_MAX = 500


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit a tenant can run into: `name` is stable, `unit` is what `value` counts."""

    name: str
    value: int
    unit: str
    description: str


_registered: dict[str, Limit] = {}


def register(*found: Limit) -> None:
    """Publish limits under `/limits`. Registering the same limit twice is harmless; changing one is a mistake."""
    for limit in found:
        assert _registered.get(limit.name, limit) == limit, f"limit {limit.name} is registered with two values"
        _registered[limit.name] = limit


def registered() -> list[Limit]:
    """All published limits, by name."""
    return [_registered[name] for name in sorted(_registered)]


register(
    Limit("request_body_bytes_max", REQUEST_BODY_BYTES_MAX, "bytes", "Largest body of one API request."),
    Limit("page_size_max", PAGE_SIZE_MAX, "items", "Largest page of a list."),
    Limit("idempotency_hours", IDEMPOTENCY_HOURS, "hours", "How long the answer to an Idempotency-Key is kept."),
    Limit("api_reads_per_minute_max", API_READS_PER_MINUTE_MAX, "requests", "Reads per minute and token."),
    Limit("api_writes_per_minute_max", API_WRITES_PER_MINUTE_MAX, "requests", "Writes per minute and token."),
    Limit("members_per_tenant_max", MEMBERS_PER_TENANT_MAX, "members", "People in one tenant."),
    Limit("invitations_pending_max", INVITATIONS_PENDING_MAX, "invitations", "Invitations not yet answered."),
    Limit("tokens_per_tenant_max", TOKENS_PER_TENANT_MAX, "tokens", "API tokens that are not revoked."),
    Limit("tenants_per_user_max", TENANTS_PER_USER_MAX, "tenants", "Tenants one person may belong to."),
    Limit("invitation_days", INVITATION_DAYS, "days", "How long an invitation can be accepted."),
)
