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
INVITATIONS_PER_TENANT_AND_DAY_MAX = 200
TOKENS_PER_TENANT_MAX = 100
INVITATION_DAYS = 7
NAME_CHARS_MAX = 64

# Wrong passwords. Operators' sign-in counts its own. An address is a whole IPv4 address or an IPv6 network of 64 bits.
SIGN_IN_FAILURES_PER_ADDRESS_AND_MINUTE_MAX = 10
SIGN_IN_FAILURES_PER_ACCOUNT_AND_ADDRESS_MAX = 5
SIGN_IN_ACCOUNT_AND_ADDRESS_WINDOW_S = 300
# Of one account from all addresses together that it was not signed in to from lately.
SIGN_IN_FAILURES_PER_ACCOUNT_AND_HOUR_MAX = 100
SIGN_IN_ADDRESS_KNOWN_DAYS = 30
PASSWORD_CHANGES_PER_USER_AND_MINUTE_MAX = 5

# Mails about signing up that one address gets, whoever asks for them.
SIGN_UP_MAILS_PER_ADDRESS_AND_HOUR_MAX = 3
VERIFICATION_DAYS = 3
# Of all instances together, while no owner has proved a mailbox: the smallest plan.
UNVERIFIED_BANDWIDTH_MB_S_MAX = 5
UNVERIFIED_STORAGE_GB_MAX = 20

# Argon2 takes 100 MiB for each password it hashes.
HASHINGS_AT_ONCE_MAX = 2
OPERATORS_HASHINGS_AT_ONCE_MAX = 1
HASHING_WAIT_MS = 2_000
# Who waits holds a thread of the web process.
HASHINGS_WAITING_MAX = 4

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
    Limit(
        "invitations_per_tenant_and_day_max",
        INVITATIONS_PER_TENANT_AND_DAY_MAX,
        "invitations",
        "Invitations that one tenant sends in 24 hours.",
    ),
    Limit(
        "sign_in_failures_per_address_and_minute_max",
        SIGN_IN_FAILURES_PER_ADDRESS_AND_MINUTE_MAX,
        "sign-ins",
        "Failed sign-ins from one address in a minute; operators' are counted apart.",
    ),
    Limit(
        "sign_in_failures_per_account_and_address_max",
        SIGN_IN_FAILURES_PER_ACCOUNT_AND_ADDRESS_MAX,
        "sign-ins",
        "Failed sign-ins to one account from one address in five minutes.",
    ),
    Limit(
        "sign_in_failures_per_account_and_hour_max",
        SIGN_IN_FAILURES_PER_ACCOUNT_AND_HOUR_MAX,
        "sign-ins",
        "Failed sign-ins to one account in an hour, from addresses it was not signed in to from within 30 days.",
    ),
    Limit(
        "password_changes_per_user_and_minute_max",
        PASSWORD_CHANGES_PER_USER_AND_MINUTE_MAX,
        "changes",
        "Tries of one person to change a password in a minute.",
    ),
    Limit(
        "sign_up_mails_per_address_and_hour_max",
        SIGN_UP_MAILS_PER_ADDRESS_AND_HOUR_MAX,
        "mails",
        "Mails about signing up to one address in an hour.",
    ),
    Limit("verification_days", VERIFICATION_DAYS, "days", "How long a link that verifies an e-mail address works."),
    Limit(
        "unverified_bandwidth_mb_s_max",
        UNVERIFIED_BANDWIDTH_MB_S_MAX,
        "MB/s",
        "Bandwidth of all instances of a tenant together until an owner has verified an e-mail address, where mail is "
        "configured.",
    ),
    Limit(
        "unverified_storage_gb_max",
        UNVERIFIED_STORAGE_GB_MAX,
        "GB",
        "Storage of all instances of a tenant together until an owner has verified an e-mail address, where mail is "
        "configured.",
    ),
    Limit(
        "password_hashings_at_once_max",
        HASHINGS_AT_ONCE_MAX,
        "passwords",
        "Passwords that are hashed at a time; operators have a turn of their own. More wait up to two seconds.",
    ),
)
