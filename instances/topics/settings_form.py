"""Form of all settings of a topic: an empty field means the default, and a field that differs is a change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django import forms
from django.forms import BoundField
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from instances.interfaces import ConfigEntry
from instances.limits import CONFIG_VALUE_CHARS_MAX, TOPIC_CONFIGS_MAX
from instances.topics.settings import (
    GROUPS,
    NO_LIMIT_UNIT,
    SETTINGS,
    InvalidSetting,
    SettingWords,
    ValueKind,
    is_no_limit,
    joined_value,
    split_value,
)
from instances.topics.words import value_words

UNIT_SUFFIX = ":unit"
CHANGES_CHARS_MAX = 50_000
DIGITS_MAX = 24


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting as the page shows it. `unit` is None where its value has none."""

    entry: ConfigEntry
    words: SettingWords | None
    value: BoundField | None
    unit: BoundField | None
    in_force: str


@dataclass(frozen=True, slots=True)
class SettingRows:
    """A group of settings."""

    label: str | Promise
    rows: Sequence[SettingRow]
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One line of the difference. `after` None: back to the default."""

    name: str
    label: str | Promise
    before: str
    after_value: str | None
    after: str


class TopicSettingsForm(forms.Form):
    """Fields for what brokers describe. `most` bounds some settings further than they are anywhere."""

    def __init__(
        self, data: Any = None, *, entries: Sequence[ConfigEntry], most: Mapping[str, int] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(data, **kwargs)
        self.entries = {entry.name: entry for entry in entries}
        self._most = most or {}
        for entry in entries:
            if not entry.is_read_only:
                self._add(entry)

    def _add(self, entry: ConfigEntry) -> None:
        words = SETTINGS.get(entry.name)
        own = None if entry.is_default else entry.value
        if words is None:
            self.fields[entry.name] = forms.CharField(
                label=entry.name, required=False, max_length=CONFIG_VALUE_CHARS_MAX, initial=own or "",
                widget=forms.TextInput(attrs={"placeholder": _default_of(entry) or "", "class": "mono"}),
            )  # fmt: skip
            return
        default = _default_of(entry) or ""
        if words.kind is ValueKind.CHOICE:
            known = list(words.choices)
            if own and own not in {value for value, _words in known}:
                known.append((own, own))
            shown = value_words(words, default)
            first = ("", self._empty_words(shown))
            self.fields[entry.name] = forms.ChoiceField(
                label=str(words.label), required=False, choices=[first, *known], initial=own or ""
            )
            return
        number, unit = split_value(words, own) if own is not None else ("", split_value(words, default)[1])
        placeholder = split_value(words, default)[0] if own is None else ""
        self.fields[entry.name] = forms.DecimalField(
            label=str(words.label), required=False, min_value=0, max_digits=DIGITS_MAX, initial=number or None,
            widget=forms.TextInput(attrs={"inputmode": "decimal", "placeholder": placeholder}),
        )  # fmt: skip
        if words.units:
            choices: list[tuple[str, Any]] = [(item.name, item.words) for item in words.units]
            if words.no_limit is not None:
                choices.append((NO_LIMIT_UNIT, _("no limit")))
            if not default:
                unit = choices[0][0]
            self.fields[entry.name + UNIT_SUFFIX] = forms.ChoiceField(
                label=gettext_lazy("Unit"), choices=choices, initial=unit, required=False
            )

    def _empty_words(self, default: str) -> str:
        """Words of the choice that sets nothing."""
        return _("default: %(value)s") % {"value": default}

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        self._wanted: dict[str, str | None] = {}
        for name, entry in self.entries.items():
            if name in self.fields and name not in self.errors:
                try:
                    self._wanted[name] = self._value(entry, values)
                except InvalidSetting as error:
                    self.add_error(name, str(error))
        return values

    def _value(self, entry: ConfigEntry, values: Mapping[str, Any]) -> str | None:
        """Kafka's value of what was typed, None for the default. Raises `InvalidSetting`."""
        words, given = SETTINGS.get(entry.name), values.get(entry.name)
        if words is None or words.kind is ValueKind.CHOICE:
            return given or None
        unit = values.get(entry.name + UNIT_SUFFIX) or ""
        if unit == NO_LIMIT_UNIT:
            if given is not None:
                raise InvalidSetting(_("Choose a unit, or leave the number empty: it has no limit."))
            return str(words.no_limit)
        if given is None:
            return None
        if words.kind is ValueKind.RATIO:
            self._require_between(words, given, "")
            return f"{given:f}"
        try:
            value = joined_value(words, given, unit)
        except InvalidSetting:
            raise InvalidSetting(_("This is finer than the setting is.")) from None
        self._require_between(words, Decimal(value), unit)
        return value

    def _require_between(self, words: SettingWords, value: Decimal, unit: str) -> None:
        most = min(words.most, self._most.get(words.name, words.most))
        if value < words.least:
            raise InvalidSetting(_("At least %(value)s.") % {"value": value_words(words, str(words.least))})
        if value > most:
            raise InvalidSetting(_("At most %(value)s.") % {"value": value_words(words, str(most))})

    @property
    def changes(self) -> list[SettingChange]:
        """Differences from the values in force, out of valid values; the default's own value is the default."""
        result = []
        for name, wanted in self._wanted.items():
            entry = self.entries[name]
            words, default = SETTINGS.get(name), _default_of(entry)
            own = None if entry.is_default else entry.value
            after = None if wanted is not None and _is_same(words, wanted, default) else wanted
            if _is_same(words, after, own) or (after is None and own is None):
                continue
            result.append(
                SettingChange(
                    name=name,
                    label=words.label if words else name,
                    before=_shown(words, entry.value),
                    after_value=after,
                    after=_shown(words, after if after is not None else default),
                )
            )
        return result

    def groups(self) -> Iterator[SettingRows]:
        """Groups that have settings, then what has no words of its own."""
        left = dict(self.entries)
        for group in GROUPS:
            rows = [self._row(left.pop(words.name)) for words in group.settings if words.name in left]
            if rows:
                yield SettingRows(group.label, rows)
        if left:
            yield SettingRows(gettext_lazy("Others, as Kafka has them"), [self._row(left[name]) for name in left], True)

    def _row(self, entry: ConfigEntry) -> SettingRow:
        words = SETTINGS.get(entry.name)
        unit = entry.name + UNIT_SUFFIX
        return SettingRow(
            entry, words, self[entry.name] if entry.name in self.fields else None,
            self[unit] if unit in self.fields else None, _shown(words, entry.value),
        )  # fmt: skip


class SharedSettingsForm(TopicSettingsForm):
    """Form of settings for several topics at once: an empty field changes nothing."""

    def __init__(self, data: Any = None, *, most: Mapping[str, int] | None = None) -> None:
        entries = [ConfigEntry(name=name, value="", is_default=True, is_read_only=False) for name in SETTINGS]
        super().__init__(data, entries=entries, most=most)

    def _empty_words(self, default: str) -> str:
        return _("as it is")

    @property
    def config(self) -> dict[str, str]:
        """Typed values by setting, out of valid ones."""
        return {name: wanted for name, wanted in self._wanted.items() if wanted is not None}

    @property
    def changes(self) -> list[SettingChange]:
        return [
            SettingChange(
                name=name, label=SETTINGS[name].label, before="", after_value=value,
                after=value_words(SETTINGS[name], value),
            )
            for name, value in self.config.items()
        ]  # fmt: skip


class AgreedChangesForm(forms.Form):
    """The changes that a person confirmed, as JSON, and the fingerprint of the settings that they apply to."""

    changes = forms.CharField(max_length=CHANGES_CHARS_MAX, widget=forms.HiddenInput)
    expected = forms.CharField(max_length=64, widget=forms.HiddenInput)

    def clean_changes(self) -> dict[str, str | None]:
        wrong = forms.ValidationError(_("Look at the changes again."))
        try:
            given = json.loads(self.cleaned_data["changes"])
        except ValueError:
            raise wrong from None
        if not isinstance(given, dict) or not 0 < len(given) <= TOPIC_CONFIGS_MAX:
            raise wrong
        if not all(value is None or isinstance(value, str) for value in given.values()):
            raise wrong
        return given


def fingerprint(entries: Sequence[ConfigEntry]) -> str:
    """Returns a digest that is the same for the same settings."""
    lines = sorted((entry.name, entry.value, entry.is_default) for entry in entries)
    return hashlib.sha256(repr(lines).encode()).hexdigest()[:32]


def _default_of(entry: ConfigEntry) -> str | None:
    return entry.value if entry.is_default else entry.default


def _shown(words: SettingWords | None, value: str | None) -> str:
    if value is None:
        return _("default")
    return value if words is None else value_words(words, value)


def _is_same(words: SettingWords | None, first: str | None, second: str | None) -> bool:
    """Equal, or two spellings of no limit or of one number."""
    if first is None or second is None or words is None or not words.units:
        return first == second
    try:
        numbers = int(first), int(second)
    except ValueError:
        return first == second
    return numbers[0] == numbers[1] or all(is_no_limit(words, number) for number in numbers)
