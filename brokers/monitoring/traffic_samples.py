"""The one writer of samples (decision 113): asks each broker what all its instances did since it was asked last, and
keeps it, seconds in the cache and minutes of delays in the database.

Asking costs a broker one request for all of its instances, or a few where many of them did something. Another writer at
the same time does no harm: what is kept twice is kept once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from brokers.limits import SAMPLE_PAGES_MAX, SAMPLES_KEPT_S
from brokers.models import Cluster
from brokers.monitoring import observe, second_samples
from brokers.monitoring.observe import Target
from brokers.monitoring.second_samples import MS_PER_S, Row, Spans
from instances import services
from instances.services import MinuteOfBroker

logger = logging.getLogger(__name__)

# Asked again: a request that began in a second may be counted there a moment after its end.
OVERLAP_MS: Final = 2_000


@dataclass(slots=True)
class _Heard:
    """Of one broker in one round. `until_ms`: before it, nothing is missing."""

    since_ms: int
    after: str = ""
    alive_since_ms: int = 0
    until_ms: int = 0
    is_complete: bool = False
    rows: dict[str, list[Row]] = field(default_factory=dict)
    minutes: list[MinuteOfBroker] = field(default_factory=list)


def collect() -> int:
    """One round over every cluster; returns of how many instances something was heard."""
    return sum(_collect(cluster) for cluster in Cluster.objects.order_by("pk"))


def since(known: Spans) -> int:
    """From when on a broker is asked: from where its part is kept to, or for all it has. Pure."""
    return max(0, known[-1][1] - OVERLAP_MS) if known else 0


def _collect(cluster: Cluster) -> int:
    targets = observe.targets_of_cluster(cluster)
    known = second_samples.spans(cluster.pk, [target.number for target in targets])
    heard = {target.number: _Heard(since(known[target.number])) for target in targets}
    _ask(targets, heard)
    found: dict[str, dict[int, list[Row]]] = {}
    for number, part in heard.items():
        for instance_id, rows in part.rows.items():
            found.setdefault(instance_id, {})[number] = rows
    second_samples.keep(found)
    services.keep_throttled_minutes([minute for part in heard.values() for minute in part.minutes])
    second_samples.keep_spans(
        cluster.pk,
        {number: extended(known[number], part) for number, part in heard.items() if part.is_complete},
    )
    return len(found)


def extended(known: Spans, part: _Heard) -> Spans:
    """The spans of a broker after a round. Pure."""
    oldest_ms = part.until_ms - SAMPLES_KEPT_S * MS_PER_S
    first_ms = max(part.since_ms, part.alive_since_ms, part.until_ms - observe.RING_MS)
    return second_samples.joined(known, (first_ms, part.until_ms), oldest_ms)


def _ask(targets: Sequence[Target], heard: Mapping[int, _Heard]) -> None:
    """Page after page of those that have more to say."""
    left = list(targets)
    for _ in range(SAMPLE_PAGES_MAX):
        answers = observe.ask_each([(target, _path(heard[target.number])) for target in left])
        for number, body in answers.bodies.items():
            take(heard[number], number, body)
        left = [target for target in left if target.number in answers.bodies and not heard[target.number].is_complete]
        if not left:
            return
    logger.warning("brokers %s have more to say than a round has pages", [target.number for target in left])


def _path(part: _Heard) -> str:
    return f"/v1/traffic?since_ms={part.since_ms}&after={quote(part.after)}"


def take(part: _Heard, number: int, body: Mapping[str, Any]) -> None:
    """One page of a broker's answer. Pure."""
    now_ms = int(body["now_ms"])
    last_ms = now_ms - now_ms % MS_PER_S
    # What the first page has may have gone on while the others were made.
    part.until_ms = min(part.until_ms or last_ms, last_ms)
    part.alive_since_ms = int(body["alive_since_ms"])
    for instance_id, did in body["instances"].items():
        if did["points"]:
            part.rows[instance_id] = list(second_samples.summed(did["points"]).values())
        part.minutes += [
            MinuteOfBroker(instance_id, int(minute["minute_ms"]), number, part.alive_since_ms, minute["causes"])
            for minute in did["throttled"]
        ]
    part.after = body["next"] or ""
    part.is_complete = not part.after
