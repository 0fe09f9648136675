"""Operators' settings of running brokers, as stored in `/config/brokers/*` (ZK-13)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

Values = Mapping[str, str]


@dataclass(frozen=True)
class BrokerConfigs:
    """Settings of brokers: `cluster_defaults` is the document `<default>`, and `by_broker` has those of single brokers
    by id.

    Settings of one broker override the defaults (QUO-60).
    """

    cluster_defaults: Values = field(default_factory=dict)
    by_broker: Mapping[int, Values] = field(default_factory=dict)

    def of_broker(self, broker_id: int) -> Values:
        return self.by_broker.get(broker_id, {})

    def with_changes(self, changed: Mapping[int | None, Values]) -> BrokerConfigs:
        """Returns the next value; `changed` has documents by broker id, None for all brokers, empty if deleted."""
        by_broker = {id: values for id, values in self.by_broker.items() if id not in changed}
        by_broker.update({id: values for id, values in changed.items() if id is not None and values})
        return BrokerConfigs(changed.get(None, self.cluster_defaults), by_broker)

    def only(self, kept: Collection[int | None]) -> BrokerConfigs:
        """Returns only the documents that are among `kept`."""
        by_broker = {id: values for id, values in self.by_broker.items() if id in kept}
        return BrokerConfigs(self.cluster_defaults if None in kept else {}, by_broker)


def usable(values: Mapping[str, object]) -> dict[str, str]:
    """Returns the values of a document that are strings (QUO-75)."""
    return {key: value for key, value in values.items() if isinstance(value, str)}
