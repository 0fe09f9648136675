"""The settings of a broker, and the values in effect (QUO-60). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.engine import config
from brokers.engine.assembly.dynamic_configs import DynamicSettings  # noqa: F401 (imports the users of settings)
from brokers.engine.cluster.broker_configs import BrokerConfigs
from brokers.engine.compatibility import CONSUMER_DEFAULT_KEY, PRODUCER_DEFAULT_KEY, PROFILE_KEY
from brokers.engine.controller import policy
from brokers.engine.coordinators import settings as coordinators
from brokers.engine.handlers.broker_layers import BrokerLayers
from brokers.engine.handlers.configs import broker_settings
from brokers.engine.handlers.configs.broker_setting_list import FREE_BYTES
from brokers.engine.handlers.configs.broker_settings import (
    SETTINGS,
    InvalidBrokerSetting,
    origins,
    shared,
    value_of,
)
from brokers.engine.partitions.topic_config import ConfigSource, topic_defaults
from brokers.engine.storage.compaction import settings as cleaner
from quotas.rates import WINDOW

DYNAMIC = sorted(name for name, setting in SETTINGS.items() if setting.is_dynamic)
WINDOWS = (config.QUOTA_WINDOWS, config.CONTROLLER_QUOTA_WINDOWS)
READERS: list[Callable[[Mapping[str, str]], Any]] = [
    policy.from_overrides,
    coordinators.from_overrides,
    cleaner.from_overrides,
    topic_defaults,
]
layers_of = st.dictionaries(st.sampled_from(["message.max.bytes", "log.retention.ms"]), st.integers(1, 9).map(str))


@given(layers_of, layers_of, layers_of)
def test_a_brokers_own_goes_before_that_of_all_before_what_it_was_started_with(
    static: dict[str, str], of_all: dict[str, str], own: dict[str, str]
) -> None:
    layers = BrokerLayers(static, of_all, own)
    for name in ("message.max.bytes", "log.retention.ms"):
        result = [(layer[name], source) for layer, source in ((own, 2), (of_all, 3), (static, 4)) if name in layer]
        all_origins = origins(layers, SETTINGS[name])
        assert [(value, source) for _, value, source in all_origins[: len(result)]] == result
        assert all_origins[-1].source == ConfigSource.DEFAULT
        assert layers.effective.get(name) == (result[0][0] if result else None)
        assert [(value, source) for _, value, source in shared(layers, SETTINGS[name])] == result[bool(name in own) :][
            : name in of_all
        ]


def test_retention_falls_back_on_the_keys_of_other_units() -> None:
    retention = SETTINGS["log.retention.ms"]

    def shown(static: dict[str, str]) -> list[tuple[str, str, str]]:
        return [
            (origin.name, origin.value, value_of(retention, origin))
            for origin in origins(BrokerLayers(static), retention)
        ]

    assert shown({}) == [("log.retention.hours", "168", "604800000")]
    assert shown({"log.retention.hours": "2", "log.retention.minutes": "3"}) == [
        ("log.retention.minutes", "3", "180000"),
        ("log.retention.hours", "2", "7200000"),
        ("log.retention.hours", "168", "604800000"),
    ]


@pytest.mark.parametrize("name", DYNAMIC)
def test_every_default_of_what_can_change_is_a_value_that_can_be_set(name: str) -> None:
    default = SETTINGS[name].default
    if default is not None:
        assert broker_settings.check(name, f" {default} ") == default or SETTINGS[name].type.name == "DOUBLE"


@pytest.mark.parametrize("name", ["broker.id", "num.partitions", "no.such.key", "retention.ms", "max.connections"])
def test_what_cannot_change_while_a_broker_runs_is_refused(name: str) -> None:
    with pytest.raises(InvalidBrokerSetting):
        broker_settings.check(name, "1")


def test_of_a_stored_document_what_can_be_is_used_and_the_rest_is_named() -> None:
    kept, reasons = broker_settings.usable(
        {"message.max.bytes": " 5 ", "log.retention.ms": "soon", "broker.id": "1", "x": "1", "log.cleanup.policy": "-"}
    )

    assert kept == {"message.max.bytes": "5"}
    assert sorted(reasons) == ["broker.id", "log.cleanup.policy", "log.retention.ms", "x"]


class Noting(dict[str, str]):
    """Settings that record which keys were read."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return default

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return False


def test_operators_see_every_key_that_a_broker_reads_and_no_other() -> None:
    given = Noting()
    for read in READERS:
        read(given)
    asked = given.asked | set(config._NUMBERS) | {"quota.burst.ms", "connections.max.reauth.ms", FREE_BYTES}
    asked |= {PROFILE_KEY, PRODUCER_DEFAULT_KEY, CONSUMER_DEFAULT_KEY}
    asked |= {config.QUOTA_CALLBACK} | {f"{prefix}.{part}" for prefix in WINDOWS for part in ("num", "size.seconds")}
    asked = {key for key in asked if not key.endswith(".throttled.replicas")}

    assert sorted(asked | {"broker.id", "broker.rack", "log.dirs"}) == sorted(SETTINGS)


def test_operators_are_shown_the_defaults_that_are_in_force() -> None:
    defaults = {name: setting.default for name, setting in SETTINGS.items() if setting.default is not None}
    del defaults["log.retention.hours"]

    for read in READERS[:-1]:
        assert read(defaults) == read({})
    assert {key: int(defaults[key]) for key in config._NUMBERS} == config._NUMBERS
    assert int(defaults["quota.burst.ms"]) == config._burst({})
    assert int(defaults["connections.max.reauth.ms"]) == config._max_reauth({})
    assert [config._window(prefix, defaults) for prefix in WINDOWS] == [WINDOW, WINDOW]


def test_a_document_that_is_gone_leaves_nothing() -> None:
    configs = BrokerConfigs().with_changes({None: {"a": "1"}, 1: {"b": "2"}, 2: {"c": "3"}})

    assert configs.with_changes({None: {}, 1: {}}) == BrokerConfigs({}, {2: {"c": "3"}})
    assert configs.only([1]) == BrokerConfigs({}, {1: {"b": "2"}})
    assert configs.only([None]) == BrokerConfigs({"a": "1"}, {})
    assert configs.own(7) == {}
