"""Topic settings: accepted values, descriptions and parsing (spec N)."""

from __future__ import annotations

import pytest

from brokers.engine.partitions.topic_bounds import SEGMENT_BYTES
from brokers.engine.partitions.topic_config import (
    INDEX_BYTES_MAX,
    INDEX_INTERVAL_BYTES_MAX,
    ConfigSource,
    InvalidTopicConfig,
    check_config,
    check_value,
    describe,
    parse,
    topic_defaults,
)
from brokers.engine.partitions.topic_settings import SETTINGS
from brokers.engine.records.validation import LONG_MAX


def test_every_default_is_acceptable_and_documented() -> None:
    for setting in SETTINGS.values():
        assert setting.accepts(setting.default), setting.name
        assert setting.documentation.endswith(".")
    assert list(SETTINGS) == sorted(SETTINGS)
    parse({}, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", " 60000 "),
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", ""),
        ("compression.type", "zstd"),
        ("min.cleanable.dirty.ratio", "0.25"),
        ("unclean.leader.election.enable", "true"),
        ("segment.bytes", "1048576"),
        ("message.format.version", "0.9.0"),
        ("message.format.version", "2.8-IV1"),
        ("message.format.version", "3.9"),
    ],
)
def test_valid_values_are_accepted(name: str, value: str) -> None:
    assert check_config({name: value}, {}, {}) == {name: value.strip()}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.key", "1"),
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("retention.ms", None),
        ("retention.ms", "1" * 2_000),
        ("cleanup.policy", "shred"),
        ("compression.type", "rar"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.insync.replicas", "0"),
        ("max.message.bytes", str(2**31)),
        ("unclean.leader.election.enable", "maybe"),
        ("message.timestamp.type", "Mine"),
        ("flush.messages", "0"),
        ("flush.ms", "-1"),
        ("file.delete.delay.ms", "-1"),
        ("preallocate", "true"),
        ("message.format.version", "nonsense"),
        ("message.format.version", ""),
        ("message.format.version", "0.7"),
    ],
)
def test_other_values_are_refused(name: str, value: str | None) -> None:
    with pytest.raises(InvalidTopicConfig):
        check_value(name, value)


def test_a_description_names_the_source_of_each_value() -> None:
    defaults = topic_defaults({"log.segment.bytes": "2097152", "log.retention.hours": "2", "message.max.bytes": "99"})
    assert defaults == {"segment.bytes": "2097152", "retention.ms": "7200000", "max.message.bytes": "99"}
    lines = {line.setting.name: line for line in describe({"retention.ms": "5"}, defaults)}
    assert (lines["retention.ms"].value, lines["retention.ms"].source) == ("5", ConfigSource.TOPIC)
    assert (lines["segment.bytes"].value, lines["segment.bytes"].source) == ("2097152", ConfigSource.STATIC_BROKER)
    assert lines["cleanup.policy"].source == ConfigSource.DEFAULT


@pytest.mark.parametrize("key", ["log.retention.hours", "log.retention.minutes"])
def test_a_broker_without_a_retention_time_shows_a_value_that_a_client_can_write_back(key: str) -> None:
    (shown,) = [line.value for line in describe({}, topic_defaults({key: "-1"})) if line.setting.name == "retention.ms"]
    assert check_value("retention.ms", shown) == "-1"


def test_a_broker_setting_in_another_form_has_the_meaning_of_a_topic_setting() -> None:
    defaults = topic_defaults({"log.message.downconversion.enable": " False", "log.cleanup.policy": "compact, delete"})
    assert defaults == {"message.downconversion.enable": "false", "cleanup.policy": "compact,delete"}
    assert not parse({}, defaults).converts_down
    assert not parse({}, {"message.downconversion.enable": "FALSE"}).converts_down


def test_an_empty_cleanup_policy_neither_deletes_nor_compacts() -> None:
    view = parse({"cleanup.policy": ""}, {"cleanup.policy": "compact"})
    assert (view.log.retention.delete, view.batch_rules.compacted) == (False, False)


def test_no_tenant_makes_a_search_long_or_an_index_large_for_all() -> None:
    """A fetch reads every batch between two index entries on the event loop."""
    most = str(2**31 - 1)
    view = parse({"index.interval.bytes": most, "segment.index.bytes": most}, {})
    assert view.log.index_limits == (INDEX_INTERVAL_BYTES_MAX, INDEX_BYTES_MAX)
    assert parse({"index.interval.bytes": "0", "segment.index.bytes": "70000"}, {}).log.index_limits == (0, 70_000)


def test_the_parsed_view_follows_topic_over_broker_over_default() -> None:
    view = parse({"segment.bytes": "100", "cleanup.policy": "compact"}, {"max.message.bytes": "5000"})
    assert view.batch_rules.segment_bytes == 100
    assert view.log.segment_bytes == SEGMENT_BYTES.default
    assert view.batch_rules.batch_bytes_max == 5_000
    assert view.batch_rules.compacted
    assert view.batch_rules.walks_all
    assert not view.log.retention.delete
    bounds = parse({"message.timestamp.difference.max.ms": "7", "message.timestamp.after.max.ms": "9"}, {}).batch_rules
    assert (bounds.timestamp_before_ms_max, bounds.timestamp_after_ms_max) == (7, 9)


@pytest.mark.parametrize(
    ("name", "own", "in_force"),
    [
        ("flush.ms", "1", "30000"),
        ("flush.ms", "30001", "30001"),
        ("flush.messages", "1", str(LONG_MAX)),
        ("file.delete.delay.ms", "60001", "60000"),
        ("file.delete.delay.ms", "0", "0"),
    ],
)
def test_beyond_the_operators_bound_the_bound_is_in_force_and_shown(name: str, own: str, in_force: str) -> None:
    line = next(line for line in describe({name: own}, {}) if line.setting.name == name)
    is_bounded = own != in_force

    assert (line.value, line.own_value) == (in_force, own if is_bounded else None)
    assert line.source is (ConfigSource.STATIC_BROKER if is_bounded else ConfigSource.TOPIC)
    config = parse({name: own}, {})
    fields = {
        "flush.ms": "flush_ms",
        "flush.messages": "flush_messages",
        "file.delete.delay.ms": "file_delete_delay_ms",
    }
    assert str(getattr(config, fields[name])) == in_force


def test_operators_set_the_bounds_and_their_own_defaults_know_none() -> None:
    defaults = topic_defaults({"log.flush.interval.ms.min": "5", "log.flush.interval.messages": "7"})

    config = parse({"flush.ms": "1"}, defaults)

    assert (config.flush_ms, config.flush_messages) == (5, 7)
