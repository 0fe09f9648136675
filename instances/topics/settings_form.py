"""Form of all settings of a topic. An empty field means the default; a field that differs from the setting in force
is a change.
"""

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
    SettingDescription,
    ValueKind,
    is_no_limit,
    number_and_unit,
    value_of,
)
from instances.topics.value_formatting import format_value

UNIT_SUFFIX = ":unit"
CHANGES_CHARS_MAX = 50_000
DIGITS_MAX = 24


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting as the page shows it. `unit` is None for a value without a unit; `setting` is None for a setting
    without a description here.
    """

    entry: ConfigEntry
    setting: SettingDescription | None
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
    """Change of one setting. `before` and `after` are formatted values; `after_value` is Kafka's value, None to reset
    the setting to its default.
    """

    name: str
    label: str | Promise
    before: str
    after_value: str | None
    after: str


class TopicSettingsForm(forms.Form):
    """Form with a field for each setting that brokers describe. `maximums` has lower maximums for some settings."""

    def __init__(
        self,
        data: Any = None,
        *,
        entries: Sequence[ConfigEntry],
        maximums: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data, **kwargs)
        self.entries = {entry.name: entry for entry in entries}
        self._maximums = maximums or {}
        for entry in entries:
            if not entry.is_read_only:
                self._add_field(entry)

    def _add_field(self, entry: ConfigEntry) -> None:
        setting = SETTINGS.get(entry.name)
        own_value = None if entry.is_default else entry.value
        if setting is None:
            self.fields[entry.name] = forms.CharField(
                label=entry.name, required=False, max_length=CONFIG_VALUE_CHARS_MAX, initial=own_value or "",
                widget=forms.TextInput(attrs={"placeholder": _default_of(entry) or "", "class": "mono"}),
            )  # fmt: skip
            return
        default = _default_of(entry) or ""
        if setting.kind is ValueKind.CHOICE:
            options = list(setting.choices)
            if own_value and own_value not in {value for value, _label in options}:
                options.append((own_value, own_value))
            default_text = format_value(setting, default)
            unset_choice = ("", self._unset_label(default_text))
            self.fields[entry.name] = forms.ChoiceField(
                label=str(setting.label), required=False, choices=[unset_choice, *options], initial=own_value or ""
            )
            return
        number, unit = (
            number_and_unit(setting, own_value) if own_value is not None else ("", number_and_unit(setting, default)[1])
        )
        placeholder = number_and_unit(setting, default)[0] if own_value is None else ""
        self.fields[entry.name] = forms.DecimalField(
            label=str(setting.label), required=False, min_value=0, max_digits=DIGITS_MAX, initial=number or None,
            widget=forms.TextInput(attrs={"inputmode": "decimal", "placeholder": placeholder}),
        )  # fmt: skip
        if setting.units:
            choices: list[tuple[str, Any]] = [(setting_unit.name, setting_unit.label) for setting_unit in setting.units]
            if setting.no_limit is not None:
                choices.append((NO_LIMIT_UNIT, _("no limit")))
            if not default:
                unit = choices[0][0]
            self.fields[entry.name + UNIT_SUFFIX] = forms.ChoiceField(
                label=gettext_lazy("Unit"), choices=choices, initial=unit, required=False
            )

    def _unset_label(self, default: str) -> str:
        """Returns the label of the choice that sets nothing."""
        return _("default: %(value)s") % {"value": default}

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        self._entered_values: dict[str, str | None] = {}
        for name, entry in self.entries.items():
            if name in self.fields and name not in self.errors:
                try:
                    self._entered_values[name] = self._value(entry, values)
                except InvalidSetting as error:
                    self.add_error(name, str(error))
        return values

    def _value(self, entry: ConfigEntry, values: Mapping[str, Any]) -> str | None:
        """Returns Kafka's value of the entered text, None for the default. Raises `InvalidSetting`."""
        setting, entered_value = SETTINGS.get(entry.name), values.get(entry.name)
        if setting is None or setting.kind is ValueKind.CHOICE:
            return entered_value or None
        unit = values.get(entry.name + UNIT_SUFFIX) or ""
        if unit == NO_LIMIT_UNIT:
            if entered_value is not None:
                raise InvalidSetting(_("Choose a unit, or leave the number empty: it has no limit."))
            return str(setting.no_limit)
        if entered_value is None:
            return None
        if setting.kind is ValueKind.RATIO:
            self._require_within_bounds(setting, entered_value, "")
            return f"{entered_value:f}"
        try:
            value = value_of(setting, entered_value, unit)
        except InvalidSetting:
            raise InvalidSetting(_("This is finer than the setting is.")) from None
        self._require_within_bounds(setting, Decimal(value), unit)
        return value

    def _require_within_bounds(self, setting: SettingDescription, value: Decimal, unit: str) -> None:
        maximum = min(setting.maximum, self._maximums.get(setting.name, setting.maximum))
        if value < setting.minimum:
            raise InvalidSetting(_("At least %(value)s.") % {"value": format_value(setting, str(setting.minimum))})
        if value > maximum:
            raise InvalidSetting(_("At most %(value)s.") % {"value": format_value(setting, str(maximum))})

    @property
    def changes(self) -> list[SettingChange]:
        """Differences of the valid values from those in force. A value equal to the default resets the setting."""
        result = []
        for name, entered in self._entered_values.items():
            entry = self.entries[name]
            setting, default = SETTINGS.get(name), _default_of(entry)
            own_value = None if entry.is_default else entry.value
            after = None if entered is not None and _is_equal(setting, entered, default) else entered
            if _is_equal(setting, after, own_value) or (after is None and own_value is None):
                continue
            result.append(
                SettingChange(
                    name=name,
                    label=setting.label if setting else name,
                    before=_formatted(setting, entry.value),
                    after_value=after,
                    after=_formatted(setting, after if after is not None else default),
                )
            )
        return result

    def groups(self) -> Iterator[SettingRows]:
        """Yields the groups that have settings, then the settings that no group has."""
        remaining = dict(self.entries)
        for group in GROUPS:
            rows = [self._row(remaining.pop(setting.name)) for setting in group.settings if setting.name in remaining]
            if rows:
                yield SettingRows(group.label, rows)
        if remaining:
            yield SettingRows(
                gettext_lazy("Others, as Kafka has them"),
                [self._row(remaining[name]) for name in remaining],
                is_folded=True,
            )

    def _row(self, entry: ConfigEntry) -> SettingRow:
        setting = SETTINGS.get(entry.name)
        unit = entry.name + UNIT_SUFFIX
        return SettingRow(
            entry, setting, self[entry.name] if entry.name in self.fields else None,
            self[unit] if unit in self.fields else None, _formatted(setting, entry.value),
        )  # fmt: skip


class SharedSettingsForm(TopicSettingsForm):
    """Form of settings for several topics at once: an empty field changes nothing."""

    def __init__(self, data: Any = None, *, maximums: Mapping[str, int] | None = None) -> None:
        entries = [ConfigEntry(name=name, value="", is_default=True, is_read_only=False) for name in SETTINGS]
        super().__init__(data, entries=entries, maximums=maximums)

    def _unset_label(self, default: str) -> str:
        return _("as it is")

    @property
    def config(self) -> dict[str, str]:
        """Entered values by setting, if they are valid."""
        return {name: entered for name, entered in self._entered_values.items() if entered is not None}

    @property
    def changes(self) -> list[SettingChange]:
        return [
            SettingChange(
                name=name, label=SETTINGS[name].label, before="", after_value=value,
                after=format_value(SETTINGS[name], value),
            )
            for name, value in self.config.items()
        ]  # fmt: skip


class ConfirmedChangesForm(forms.Form):
    """The changes that a person confirmed, as JSON, and the fingerprint of the settings that they apply to."""

    changes = forms.CharField(max_length=CHANGES_CHARS_MAX, widget=forms.HiddenInput)
    expected = forms.CharField(max_length=64, widget=forms.HiddenInput)

    def clean_changes(self) -> dict[str, str | None]:
        error = forms.ValidationError(_("Look at the changes again."))
        try:
            changes = json.loads(self.cleaned_data["changes"])
        except ValueError:
            raise error from None
        if not isinstance(changes, dict) or not 0 < len(changes) <= TOPIC_CONFIGS_MAX:
            raise error
        if not all(value is None or isinstance(value, str) for value in changes.values()):
            raise error
        return changes


def fingerprint(entries: Sequence[ConfigEntry]) -> str:
    """Returns a digest that is the same for the same settings."""
    settings = sorted((entry.name, entry.value, entry.is_default) for entry in entries)
    return hashlib.sha256(repr(settings).encode()).hexdigest()[:32]


def _default_of(entry: ConfigEntry) -> str | None:
    return entry.value if entry.is_default else entry.default


def _formatted(setting: SettingDescription | None, value: str | None) -> str:
    if value is None:
        return _("default")
    return value if setting is None else format_value(setting, value)


def _is_equal(setting: SettingDescription | None, first: str | None, second: str | None) -> bool:
    """True for equal values, also if a number or no limit is written in two ways."""
    if first is None or second is None or setting is None or not setting.units:
        return first == second
    try:
        numbers = int(first), int(second)
    except ValueError:
        return first == second
    return numbers[0] == numbers[1] or all(is_no_limit(setting, number) for number in numbers)
