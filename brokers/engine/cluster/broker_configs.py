"""What operators set for running brokers, as it is stored in `/config/brokers/*` (ZK-13)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

Values = Mapping[str, str]


@dataclass(frozen=True)
class BrokerConfigs:
    """`of_all` is the document `<default>`, `of_broker` those of single brokers by id. What is set for one broker goes
    before what is set for all (QUO-60).
    """

    of_all: Values = field(default_factory=dict)
    of_broker: Mapping[int, Values] = field(default_factory=dict)

    def own(self, broker_id: int) -> Values:
        return self.of_broker.get(broker_id, {})

    def with_changes(self, changed: Mapping[int | None, Values]) -> BrokerConfigs:
        """The next image: by broker id, None for all brokers, what a document says; empty when it is gone."""
        of_broker = {id: values for id, values in self.of_broker.items() if id not in changed}
        of_broker.update({id: values for id, values in changed.items() if id is not None and values})
        return BrokerConfigs(changed.get(None, self.of_all), of_broker)

    def only(self, kept: Collection[int | None]) -> BrokerConfigs:
        """Without the documents that are not among `kept`."""
        of_broker = {id: values for id, values in self.of_broker.items() if id in kept}
        return BrokerConfigs(self.of_all if None in kept else {}, of_broker)


def usable(values: Mapping[str, object]) -> dict[str, str]:
    """A document's values without what is no text (QUO-75)."""
    return {key: value for key, value in values.items() if isinstance(value, str)}
