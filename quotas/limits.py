"""Limits of client quotas, each a named constant."""

from __future__ import annotations

from tenants.limits import Limit, register

ENTITY_NAME_CHARS_MAX = 1_024  # what can be looked for and removed: names of before the limit in bytes
# Of a user's or client's name as the brokers keep it: what is not a letter, digit, `-`, `_` or `.` takes three bytes
# for each byte of UTF-8.
ENTITY_NAME_BYTES_MAX = 255
BYTE_RATE_MAX = 2**53  # bytes/s; the largest integer a JSON number and a Kafka double both hold exactly
PERCENTAGE_MAX = 1_000_000.0
MUTATION_RATE_MAX = 1_000_000.0
QUOTAS_PER_INSTANCE_MAX = 1_000


def publish() -> None:
    """Put the limits under `/limits`; called once from `AppConfig.ready`."""
    register(
        Limit("quotas_per_instance_max", QUOTAS_PER_INSTANCE_MAX, "quotas", "Client quotas of one instance."),
        Limit(
            "quota_name_bytes_max",
            ENTITY_NAME_BYTES_MAX,
            "bytes",
            "A name in a client quota; what is no letter, digit, -, _ or . counts three for each byte.",
        ),
    )
