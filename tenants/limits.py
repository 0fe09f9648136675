"""Named limits, and the registry behind `GET /api/v1/limits`.

An app defines its limits as constants, and registers those that a tenant can reach in `AppConfig.ready`:
`limits.register(Limit("topics_per_instance_max", 10_000, "topics", "Topics in one instance."))`.
"""

from __future__ import annotations

from dataclasses import dataclass

REQUEST_BODY_BYTES_MAX = 256 * 1024
# Limit for URLs whose last segment is registered by `allow_long_bodies`; the HTTP server accepts no larger request.
LONG_BODY_BYTES_MAX = 1024 * 1024
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
# Limits of all tokens and members of a tenant together.
API_TENANT_READS_PER_MINUTE_MAX = 6_000
API_TENANT_WRITES_PER_MINUTE_MAX = 1_500

TENANTS_PER_USER_MAX = 10
MEMBERS_PER_TENANT_MAX = 200
INVITATIONS_PENDING_MAX = 50
INVITATIONS_PER_TENANT_AND_DAY_MAX = 200
TOKENS_PER_TENANT_MAX = 100
INVITATION_DAYS = 7
NAME_CHARS_MAX = 64

# Wrong passwords. Operators' sign-in is counted separately. An address is an IPv4 address or an IPv6 /64 network.
SIGN_IN_FAILURES_PER_ADDRESS_AND_MINUTE_MAX = 10
# A request for the challenge of a passkey creates a session, although its user is not signed in yet.
PASSKEY_QUESTIONS_PER_ADDRESS_AND_MINUTE_MAX = 30
SIGN_IN_FAILURES_PER_ACCOUNT_AND_ADDRESS_MAX = 5
SIGN_IN_ACCOUNT_AND_ADDRESS_WINDOW_S = 300
# Limit of one account over all addresses, except those from which it was signed in to recently.
SIGN_IN_FAILURES_PER_ACCOUNT_AND_HOUR_MAX = 100
SIGN_IN_ADDRESS_KNOWN_DAYS = 30
PASSWORD_CHANGES_PER_USER_AND_MINUTE_MAX = 5
# Codes of a second factor are counted by address, and by account and address, like passwords. The hourly limit per
# account is lower: there are only a million codes, and an attacker already knows the password.
CODE_FAILURES_PER_ACCOUNT_AND_HOUR_MAX = 20
# Tolerated clock skew in steps of 30 s.
CODE_STEPS_TOLERATED = 1
RECOVERY_CODES = 10
PASSKEYS_PER_USER_MAX = 10

# Sessions. The first three are defaults of PENSTOCK_SESSION_IDLE_HOURS, PENSTOCK_SESSION_DAYS_MAX and
# PENSTOCK_REAUTHENTICATION_MINUTES.
SESSION_IDLE_HOURS = 24
SESSION_DAYS_MAX = 14
REAUTHENTICATION_MINUTES = 10
SESSION_SEEN_EVERY_S = 60
# Lifetime of a session without sign-in.
ANONYMOUS_SESSION_HOURS_MAX = 24
SESSIONS_PER_USER_MAX = 50
USER_AGENT_CHARS_MAX = 200
# Maximum number of remembered sign-in places (browser and network) of a person; the least recently used is removed.
SIGN_IN_PLACES_PER_USER_MAX = 50

# Mails about signing up to one address, regardless of the sender.
SIGN_UP_MAILS_PER_ADDRESS_AND_HOUR_MAX = 3
VERIFICATION_DAYS = 3
# Limits of all instances together while no owner has a verified address: the smallest plan.
UNVERIFIED_BANDWIDTH_MB_S_MAX = 5
UNVERIFIED_STORAGE_GB_MAX = 20

# Argon2 takes 100 MiB for each hash.
HASHINGS_AT_ONCE_MAX = 2
OPERATORS_HASHINGS_AT_ONCE_MAX = 1
HASHING_WAIT_MS = 2_000
# Each waiting request occupies a thread of the web process.
HASHINGS_WAITING_MAX = 4

# Limits of a request from our machines to an address given by a tenant (outbound.py).
OUTBOUND_DEADLINE_S = 5.0
OUTBOUND_ADDRESSES_TRIED_MAX = 3

# Sign-in by OpenID Connect (tenants/sso).
SSO_DOMAINS_MAX = 20
SSO_ROLE_VALUES_MAX = 50
SSO_TEXT_CHARS_MAX = 512
SSO_CLAIM_CHARS_MAX = 128
# Values of the role claim of one person; a token with more is refused, not cut.
SSO_CLAIM_VALUES_MAX = 500
SSO_ANSWER_BYTES_MAX = 64 * 1024
SSO_KEYS_MAX = 32
SSO_DEADLINE_S = 4.0
# Requests to one tenant's provider at the same time in one web process, and of all tenants together.
SSO_REQUESTS_PER_TENANT_AT_ONCE_MAX = 2
SSO_REQUESTS_AT_ONCE_MAX = 6
SSO_STARTS_PER_ADDRESS_AND_MINUTE_MAX = 30
SSO_STARTED_MINUTES = 10
SSO_SESSION_HOURS_MAX = 12
SSO_JOINS_PER_TENANT_AND_DAY_MAX = 200
SSO_ID_TOKEN_HINT_CHARS_MAX = 6_000
DOMAIN_CHARS_MAX = 253
# Proofs of e-mail domains (tenants/sso/domains.py).
DNS_DEADLINE_S = 4.0
DOMAIN_CHECK_AGAIN_AFTER_H = 24
DOMAIN_CHECKS_PER_ROUND_MAX = 100
# A round of checks ends after this time, so that slow name servers do not block a worker.
DOMAIN_ROUND_S = 20.0
DOMAIN_PROOF_KEPT_DAYS = 7

assert PAGE_SIZE_DEFAULT <= PAGE_SIZE_MAX
assert API_WRITES_PER_MINUTE_MAX <= API_READS_PER_MINUTE_MAX

# Lengths in the audit log, and retention of entries about Kafka clients; entries about people are kept forever.
AUDIT_REF_CHARS_MAX = 300
AUDIT_CLIENT_ROWS_KEPT_DAYS = 365

# Note of an operator to a suspended tenant.
SUSPENSION_NOTE_CHARS_MAX = 500


@dataclass(frozen=True, slots=True)
class Limit:
    """Limit that a tenant can reach: `name` is stable, `unit` is the unit of `value`."""

    name: str
    value: int
    unit: str
    description: str


_registered: dict[str, Limit] = {}
_long_bodies: set[str] = set()


def register(*limits: Limit) -> None:
    """Publishes limits under `/limits`. Registering an equal limit twice is harmless; a different value is an error."""
    for limit in limits:
        assert _registered.get(limit.name, limit) == limit, f"limit {limit.name} is registered with two values"
        _registered[limit.name] = limit


def allow_long_bodies(last_part: str) -> None:
    """Allows LONG_BODY_BYTES_MAX for requests to URLs with this last segment."""
    _long_bodies.add(last_part)


def body_bytes_max(path: str) -> int:
    return LONG_BODY_BYTES_MAX if path.rpartition("/")[2] in _long_bodies else REQUEST_BODY_BYTES_MAX


def registered() -> list[Limit]:
    """Returns all published limits by name."""
    return [_registered[name] for name in sorted(_registered)]


register(
    Limit(
        "request_body_bytes_max",
        REQUEST_BODY_BYTES_MAX,
        "bytes",
        "Largest body of one API request; a revocation list's is longer.",
    ),
    Limit("page_size_max", PAGE_SIZE_MAX, "items", "Largest page of a list."),
    Limit("idempotency_hours", IDEMPOTENCY_HOURS, "hours", "How long the answer to an Idempotency-Key is kept."),
    Limit("api_reads_per_minute_max", API_READS_PER_MINUTE_MAX, "requests", "Reads per minute and token."),
    Limit("api_writes_per_minute_max", API_WRITES_PER_MINUTE_MAX, "requests", "Writes per minute and token."),
    Limit(
        "api_tenant_reads_per_minute_max",
        API_TENANT_READS_PER_MINUTE_MAX,
        "requests",
        "Reads per minute of all tokens and members of a tenant together.",
    ),
    Limit(
        "api_tenant_writes_per_minute_max",
        API_TENANT_WRITES_PER_MINUTE_MAX,
        "requests",
        "Writes per minute of all tokens and members of a tenant together.",
    ),
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
        "passkey_questions_per_address_and_minute_max",
        PASSKEY_QUESTIONS_PER_ADDRESS_AND_MINUTE_MAX,
        "questions",
        "What one address begins of sign-ins by a passkey alone.",
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
        "code_failures_per_account_and_hour_max",
        CODE_FAILURES_PER_ACCOUNT_AND_HOUR_MAX,
        "codes",
        "Wrong codes of a second factor for one account in an hour, from addresses where it gave no right one within "
        "30 days; by address and by account and address codes have the limits of passwords.",
    ),
    Limit("sso_domains_max", SSO_DOMAINS_MAX, "domains", "E-mail domains of a tenant's single sign-on."),
    Limit("sso_role_values_max", SSO_ROLE_VALUES_MAX, "values", "Values of the role claim that are mapped to roles."),
    Limit(
        "sso_claim_values_max",
        SSO_CLAIM_VALUES_MAX,
        "values",
        "Values of the role claim in one ID token; a sign-in with more is refused.",
    ),
    Limit(
        "sso_answer_bytes_max",
        SSO_ANSWER_BYTES_MAX,
        "bytes",
        "Longest answer of an identity provider (its configuration, its keys, its tokens).",
    ),
    Limit("sso_keys_max", SSO_KEYS_MAX, "keys", "Keys in the key set of an identity provider."),
    Limit(
        "sso_starts_per_address_and_minute_max",
        SSO_STARTS_PER_ADDRESS_AND_MINUTE_MAX,
        "sign-ins",
        "Single sign-ons that one address begins or completes in a minute.",
    ),
    Limit("sso_started_minutes", SSO_STARTED_MINUTES, "minutes", "How long a begun single sign-on can be completed."),
    Limit(
        "sso_session_hours_max",
        SSO_SESSION_HOURS_MAX,
        "hours",
        "How long a session from single sign-on lasts before the provider is asked again.",
    ),
    Limit(
        "sso_joins_per_tenant_and_day_max",
        SSO_JOINS_PER_TENANT_AND_DAY_MAX,
        "members",
        "Members who join one tenant by single sign-on in 24 hours.",
    ),
    Limit(
        "domain_check_again_after_h",
        DOMAIN_CHECK_AGAIN_AFTER_H,
        "hours",
        "Time between two checks of the DNS record of a proved e-mail domain.",
    ),
    Limit(
        "domain_proof_kept_days",
        DOMAIN_PROOF_KEPT_DAYS,
        "days",
        "How long an e-mail domain stays proved after its DNS record is gone.",
    ),
    Limit("recovery_codes", RECOVERY_CODES, "codes", "Recovery codes of an account; each works once."),
    Limit("passkeys_per_user_max", PASSKEYS_PER_USER_MAX, "passkeys", "Passkeys of one account."),
    Limit(
        "sessions_per_user_max",
        SESSIONS_PER_USER_MAX,
        "sessions",
        "Open sessions of one account; the one seen longest ago ends when another begins.",
    ),
    Limit(
        "sign_in_places_per_user_max",
        SIGN_IN_PLACES_PER_USER_MAX,
        "places",
        "Browsers and networks of one account's sign-ins that are remembered, so that a new one is told.",
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
