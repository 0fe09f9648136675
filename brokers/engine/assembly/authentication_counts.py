"""Authentication counters for the admin port: by instance and outcome."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from brokers.engine.handlers.authentication import Authentication
from brokers.engine.telemetry.metrics import Sample


def by_instance(authentication: Authentication) -> dict[str, dict[str, int]]:
    """Returns the counters of all instances with authentication attempts."""
    return {instance_id: asdict(counts) for instance_id, counts in authentication.counts()}


def samples(authentication: Authentication) -> Iterator[Sample]:
    text = "Authentications of an instance's clients: succeeded, failed, or refused after too many failures."
    for instance_id, counts in by_instance(authentication).items():
        for result, count in counts.items():
            labels = (("instance", instance_id), ("result", result))
            yield Sample("penstock_broker_authentications", "counter", text, count, labels)
