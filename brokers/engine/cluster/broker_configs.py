"""Operators' settings of running brokers, as stored in `/config/brokers/*` (ZK-13)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

Values = Mapping[str, str]


@dataclass(frozen=True)
class BrokerConfigs:
    """Settings of brokers: `of_all` is the document `<default>`, and `of_broker` has those of single brokers by id.

    Settings of one broker override those of all (QUO-60).
    """

    of_all: Values = field(default_factory=dict)
    of_broker: Mapping[int, Values] = field(default_factory=dict)

    def own(self, broker_id: int) -> Values:
        return self.of_broker.get(broker_id, {})

    def with_changes(self, changed: Mapping[int | None, Values]) -> BrokerConfigs:
        """Returns the next value; `changed` has documents by broker id, None for all brokers, empty if deleted."""
        of_broker = {id: values for id, values in self.of_broker.items() if id not in changed}
        of_broker.update({id: values for id, values in changed.items() if id is not None and values})
        return BrokerConfigs(changed.get(None, self.of_all), of_broker)

    def only(self, kept: Collection[int | None]) -> BrokerConfigs:
        """Returns only the documents that are among `kept`."""
        of_broker = {id: values for id, values in self.of_broker.items() if id in kept}
        return BrokerConfigs(self.of_all if None in kept else {}, of_broker)


def usable(values: Mapping[str, object]) -> dict[str, str]:
    """Returns the values of a document that are strings (QUO-75)."""
    return {key: value for key, value in values.items() if isinstance(value, str)}
