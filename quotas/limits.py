"""Limits of client quotas as named constants."""

from __future__ import annotations

from tenants.limits import Limit, register

ENTITY_NAME_CHARS_MAX = 1_024  # for lookup and removal, since older names may exceed the limit in bytes
# Limit of a name as the brokers store it: each UTF-8 byte except letters, digits, `-`, `_` and `.` takes three bytes.
ENTITY_NAME_BYTES_MAX = 255
BYTE_RATE_MAX = 2**53  # bytes/s; the largest integer that a JSON number and a Kafka double both represent exactly
PERCENTAGE_MAX = 1_000_000.0
MUTATION_RATE_MAX = 1_000_000.0
QUOTAS_PER_INSTANCE_MAX = 1_000


def publish() -> None:
    """Registers the limits for `/limits`; called once from `AppConfig.ready`."""
    register(
        Limit("quotas_per_instance_max", QUOTAS_PER_INSTANCE_MAX, "quotas", "Client quotas of one instance."),
        Limit(
            "quota_name_bytes_max",
            ENTITY_NAME_BYTES_MAX,
            "bytes",
            "A name in a client quota; what is no letter, digit, -, _ or . counts three for each byte.",
        ),
    )
