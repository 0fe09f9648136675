"""The settings of a broker, and the values in effect (QUO-60). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.contract.usage import RECORD_VERSION_SETTING
from brokers.engine import config
from brokers.engine.assembly import dynamic_configs
from brokers.engine.cluster.broker_configs import BrokerConfigs
from brokers.engine.compatibility import CONSUMER_DEFAULT_KEY, PRODUCER_DEFAULT_KEY, PROFILE_KEY, ignored
from brokers.engine.controller import policy
from brokers.engine.controller.placement import strategy_from
from brokers.engine.coordinators import settings as coordinators
from brokers.engine.errors import SettingsWrong
from brokers.engine.handlers.configs import broker_settings
from brokers.engine.handlers.configs.broker_settings import (
    DELETION,
    FREE_BYTES,
    SETTINGS,
    WATERMARK,
    InvalidBrokerSetting,
    origins,
    shared_origins,
    value_of,
)
from brokers.engine.handlers.services import BrokerLayers
from brokers.engine.partitions.topic_config import ConfigSource, topic_defaults
from brokers.engine.storage.compaction import settings as cleaner
from quotas.rates import SAMPLE_SETTINGS

DYNAMIC = sorted(name for name, setting in SETTINGS.items() if setting.is_dynamic)
WINDOWS = (config.QUOTA_WINDOWS, config.CONTROLLER_QUOTA_WINDOWS)
READERS: list[Callable[[Mapping[str, str]], Any]] = [
    policy.from_overrides,
    config._delays_responses,
    config._selects_by_rack,
    partial(dynamic_configs._is_on, DELETION),
    partial(dynamic_configs._is_on, WATERMARK),
    coordinators.from_overrides,
    cleaner.from_overrides,
    strategy_from,
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
        assert [(value, source) for _, value, source in shared_origins(layers, SETTINGS[name])] == result[
            bool(name in own) :
        ][: name in of_all]


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


def test_no_retention_time_is_minus_one_in_every_unit() -> None:
    retention = SETTINGS["log.retention.ms"]
    layers = BrokerLayers({"log.retention.hours": "-1", "log.retention.minutes": "-1"})
    assert [value_of(retention, origin) for origin in origins(layers, retention)] == ["-1", "-1", "604800000"]


def test_times_to_roll_fall_back_on_hours() -> None:
    for name, hours, default in (
        ("log.roll.ms", "log.roll.hours", "168"),
        ("log.roll.jitter.ms", "log.roll.jitter.hours", "0"),
    ):
        roll = SETTINGS[name]
        values = [(origin.name, value_of(roll, origin)) for origin in origins(BrokerLayers({hours: "3"}), roll)]
        assert values == [(hours, "10800000"), (hours, str(int(default) * 3_600_000))]
    given = {"log.roll.hours": "3", "log.roll.jitter.hours": "1"}
    assert topic_defaults(given) == {"segment.ms": "10800000", "segment.jitter.ms": "3600000"}
    assert topic_defaults({**given, "log.roll.ms": "7"}) == {"segment.ms": "7", "segment.jitter.ms": "3600000"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("replica.assignment.strategy", "random"),
        ("replica.selector.class", "org.example.Nearest"),
        ("quota.delay.style", "never"),
        ("delete.topic.enable", "perhaps"),
        ("hw.advance.under.min.isr", "1"),
    ],
)
def test_a_broker_does_not_start_with_a_setting_that_means_nothing(key: str, value: str) -> None:
    with pytest.raises(SettingsWrong, match=key):
        for read in READERS:
            read({key: value})


def test_settings_of_older_brokers_without_effect_are_named() -> None:
    """DEC-2."""
    assert list(ignored({"replica.lag.max.messages": "4000", "replica.lag.time.max.ms": "1"})) == [
        "replica.lag.max.messages"
    ]


@pytest.mark.parametrize("name", DYNAMIC)
def test_every_default_of_what_can_change_is_a_value_that_can_be_set(name: str) -> None:
    default = SETTINGS[name].default
    if default is not None:
        assert broker_settings.check(name, f" {default} ") == default or SETTINGS[name].type.name == "DOUBLE"


@pytest.mark.parametrize("name", ["broker.id", "num.partitions", "no.such.key", "retention.ms", "max.connections"])
def test_a_setting_that_cannot_change_while_a_broker_runs_is_refused(name: str) -> None:
    with pytest.raises(InvalidBrokerSetting):
        broker_settings.check(name, "1")


def test_valid_settings_of_a_stored_document_are_used_and_the_rest_is_named() -> None:
    kept, reasons = broker_settings.split_valid(
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
    asked |= {PROFILE_KEY, PRODUCER_DEFAULT_KEY, CONSUMER_DEFAULT_KEY, RECORD_VERSION_SETTING}
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
    assert [config._window(prefix, defaults) for prefix in WINDOWS] == [SAMPLE_SETTINGS, SAMPLE_SETTINGS]


def test_a_document_that_is_gone_leaves_nothing() -> None:
    configs = BrokerConfigs().with_changes({None: {"a": "1"}, 1: {"b": "2"}, 2: {"c": "3"}})

    assert configs.with_changes({None: {}, 1: {}}) == BrokerConfigs({}, {2: {"c": "3"}})
    assert configs.only([1]) == BrokerConfigs({}, {1: {"b": "2"}})
    assert configs.only([None]) == BrokerConfigs({"a": "1"}, {})
    assert configs.of_broker(7) == {}


def test_a_broker_does_not_start_with_an_unknown_strategy_of_assignment() -> None:
    with pytest.raises(SettingsWrong, match=r"replica\.assignment\.strategy"):
        strategy_from({"replica.assignment.strategy": "random"})
