"""Settings of a topic as the console shows them: groups, labels, units and bounds. Brokers decide which values
are valid.

Requests have values as Kafka writes them (milliseconds, bytes, `true`); this module converts them to a number with a
unit, or to a choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
NO_LIMIT = -1

Text = str | Promise


class ValueKind(StrEnum):
    """Kind of input for a value."""

    SPAN = "span"
    SIZE = "size"
    RATE = "rate"
    COUNT = "count"
    RATIO = "ratio"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of a number. `factor` is its size in Kafka's unit of the setting."""

    name: str
    label: Text
    factor: int


UNITS: dict[ValueKind, tuple[Unit, ...]] = {
    ValueKind.SPAN: (
        Unit("d", _("days"), 86_400_000),
        Unit("h", _("hours"), 3_600_000),
        Unit("min", _("minutes"), 60_000),
        Unit("s", _("seconds"), 1_000),
        Unit("ms", _("milliseconds"), 1),
    ),
    ValueKind.SIZE: (
        Unit("GB", "GB", 10**9), Unit("MB", "MB", 10**6), Unit("kB", "kB", 10**3), Unit("B", _("bytes"), 1),
    ),
    ValueKind.RATE: (Unit("MB/s", "MB/s", 10**6), Unit("kB/s", "kB/s", 10**3), Unit("B/s", "B/s", 1)),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDescription:
    """One setting. `minimum` and `maximum` bound it in Kafka's own unit; `no_limit` is the value that removes the
    limit and may lie outside of them. `choices` are values with their labels.
    """

    name: str
    kind: ValueKind
    label: Text
    help: Text
    minimum: int = 0
    maximum: int = LONG_MAX
    no_limit: int | None = None
    choices: tuple[tuple[str, Text], ...] = ()

    @property
    def units(self) -> tuple[Unit, ...]:
        return UNITS.get(self.kind, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingGroup:
    """Settings that a page shows together."""

    label: Text
    settings: Sequence[SettingDescription]


GROUPS: tuple[SettingGroup, ...] = (
    SettingGroup(
        label=_("How long messages are kept"),
        settings=(
            SettingDescription(
                name="retention.ms", kind=ValueKind.SPAN, label=_("Keep messages for"), no_limit=NO_LIMIT, minimum=0,
                help=_("Then their segment goes, which may be later: a segment goes as a whole."),
            ),
            SettingDescription(
                name="retention.bytes", kind=ValueKind.SIZE, label=_("Keep at most, in each partition"),
                no_limit=NO_LIMIT,
                help=_("The oldest segments go beyond it."),
            ),
            SettingDescription(
                name="cleanup.policy", kind=ValueKind.CHOICE, label=_("Cleanup"),
                help=_("By age and size, or all but the last message of each key."),
                choices=(
                    ("delete", _("old messages (delete)")),
                    ("compact", _("all but the last of each key (compact)")),
                    ("compact,delete", _("both (compact,delete)")),
                ),
            ),
        ),
    ),
    SettingGroup(
        label=_("Limits and safety"),
        settings=(
            SettingDescription(
                name="penstock.produce.byte.rate", kind=ValueKind.RATE, label=_("All producers together"),
                no_limit=NO_LIMIT, minimum=1, help=_("They wait beyond it."),
            ),
            SettingDescription(
                name="penstock.consume.byte.rate", kind=ValueKind.RATE, label=_("All consumers together"),
                no_limit=NO_LIMIT, minimum=1, help=_("They wait beyond it."),
            ),
            SettingDescription(
                name="max.message.bytes", kind=ValueKind.SIZE, label=_("Largest batch"), maximum=INT_MAX,
                help=_("As it is sent, compressed. A larger one is refused."),
            ),
            SettingDescription(
                name="min.insync.replicas", kind=ValueKind.COUNT, label=_("Replicas that must have a message"),
                minimum=1, maximum=INT_MAX, help=_("Before it is acknowledged to a producer with acks=all."),
            ),
            SettingDescription(
                name="unclean.leader.election.enable", kind=ValueKind.CHOICE, label=_("Replicas that lack messages"),
                help=_("Where no other replica is left: wait for one, or lose what is missing."),
                choices=(("false", _("never lead (safe)")), ("true", _("may lead, messages may be lost"))),
            ),
        ),
    ),
    SettingGroup(
        label=_("What is stored"),
        settings=(
            SettingDescription(
                name="compression.type", kind=ValueKind.CHOICE, label=_("Compression"),
                help=_("A codec other than the producer's makes brokers compress again."),
                choices=(
                    ("producer", _("as the producer sent it")), ("uncompressed", _("none")), ("gzip", "gzip"),
                    ("snappy", "snappy"), ("lz4", "lz4"), ("zstd", "zstd"),
                ),
            ),
            SettingDescription(
                name="message.timestamp.type", kind=ValueKind.CHOICE, label=_("Timestamps"),
                help=_("Whose clock they are of."),
                choices=(("CreateTime", _("of the producer")), ("LogAppendTime", _("of the broker"))),
            ),
            SettingDescription(
                name="message.timestamp.before.max.ms", kind=ValueKind.SPAN, label=_("Timestamps at most in the past"),
                no_limit=LONG_MAX, help=_("Older ones are refused."),
            ),
            SettingDescription(
                name="message.timestamp.after.max.ms", kind=ValueKind.SPAN, label=_("Timestamps at most in the future"),
                no_limit=LONG_MAX, help=_("Later ones are refused."),
            ),
        ),
    ),
    SettingGroup(
        label=_("Compaction"),
        settings=(
            SettingDescription(
                name="min.cleanable.dirty.ratio", kind=ValueKind.RATIO, label=_("Share not compacted yet"), maximum=1,
                help=_("From which on a log is worth compacting, 0 to 1."),
            ),
            SettingDescription(
                name="min.compaction.lag.ms", kind=ValueKind.SPAN, label=_("Keep every message at least for"),
                help=_("Younger ones are never compacted away."),
            ),
            SettingDescription(
                name="max.compaction.lag.ms", kind=ValueKind.SPAN, label=_("Compact at the latest after"), minimum=1,
                no_limit=LONG_MAX, help=_("Whatever the share is."),
            ),
            SettingDescription(
                name="delete.retention.ms", kind=ValueKind.SPAN, label=_("Keep tombstones for"),
                help=_("So that readers that lag behind see that a key was deleted."),
            ),
        ),
    ),
    SettingGroup(
        label=_("Segments"),
        settings=(
            SettingDescription(
                name="segment.bytes", kind=ValueKind.SIZE, label=_("Size of a segment"), minimum=14, maximum=INT_MAX,
                help=_("Less than 1,048,576 bytes counts as that."),
            ),
            SettingDescription(
                name="segment.ms", kind=ValueKind.SPAN, label=_("Begin another segment after"), minimum=1,
                help=_("Whatever its size is. Retention waits for the end of a segment."),
            ),
        ),
    ),
)  # fmt: skip
SETTINGS: dict[str, SettingDescription] = {setting.name: setting for group in GROUPS for setting in group.settings}


class InvalidSetting(ValueError):
    """The text that was entered is not a value of the setting; the message has the reason."""


def number_and_unit(setting: SettingDescription, value: str) -> tuple[str, str]:
    """Returns the number and the unit that a form shows for a value: ("7", "d"), or ("", "none") for no limit."""
    if not setting.units:
        return value, ""
    try:
        number = int(value)
    except ValueError:
        return value, setting.units[-1].name
    if is_no_limit(setting, number):
        return "", NO_LIMIT_UNIT
    for unit in setting.units:
        if number and number % (unit.factor // 10 or 1) == 0 and number >= unit.factor:
            return _plain(Decimal(number) / unit.factor), unit.name
    return str(number), setting.units[-1].name


NO_LIMIT_UNIT = "none"


def value_of(setting: SettingDescription, number: Decimal, unit_name: str) -> str:
    """Returns Kafka's value of a number and a unit. Raises `InvalidSetting`."""
    factor = next((unit.factor for unit in setting.units if unit.name == unit_name), 1)
    value = number * factor
    if value != value.to_integral_value():
        raise InvalidSetting("This is finer than the setting is.")
    return str(int(value))


def is_no_limit(setting: SettingDescription, value: int) -> bool:
    if setting.no_limit is None:
        return False
    return value == setting.no_limit or (setting.no_limit == NO_LIMIT and value < 0)


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"
