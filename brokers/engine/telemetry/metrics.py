"""Rendering of plain numbers as Prometheus text.

The numbers are kept where they arise and read at a scrape, so counting costs a request nothing. `prometheus_client` is
imported at the first scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    """One sample of a metric; `labels` are pairs of name and value."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


ReadSamples = Callable[[], Iterable[Sample]]


class _Collector:
    """Collector in the form that `prometheus_client` requires."""

    def __init__(self, read_samples: ReadSamples) -> None:
        self._read_samples = read_samples

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families: dict[str, Any] = {}
        for sample in self._read_samples():
            family = families.get(sample.name)
            if family is None:
                make = CounterMetricFamily if sample.kind == "counter" else GaugeMetricFamily
                family = make(sample.name, sample.help, labels=[name for name, _ in sample.labels])
                families[sample.name] = family
            family.add_metric([value for _, value in sample.labels], sample.value)
        yield from families.values()


def render(read_samples: ReadSamples) -> bytes:
    """Returns the Prometheus text of the samples that `read_samples` returns now."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(_Collector(read_samples))
    return bytes(generate_latest(registry))
