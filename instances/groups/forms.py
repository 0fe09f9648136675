"""Forms of consumer groups: they parse the input; services and brokers decide."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from instances.groups.offset_plans import ResetMode, ResetTarget, time_ms
from instances.limits import PARTITIONS_PER_TOPIC_MAX

OFFSET_MAX = 2**63 - 1
PARTITIONS_CHARS_MAX = 2_000
_PARTITION_RANGE = re.compile(r"\s*(\d{1,6})\s*(?:[-–]\s*(\d{1,6})\s*)?\Z")

RESET_MODES = (
    (ResetMode.EARLIEST.value, _("The first message kept")),
    (ResetMode.LATEST.value, _("The end: skip all that is there")),
    (ResetMode.TIME.value, _("The first message since a time")),
    (ResetMode.OFFSET.value, _("An offset")),
    (ResetMode.SHIFT.value, _("Forward or back by a number of messages")),
)


class ResetForm(forms.Form):
    """The new offsets of a group. Values of other targets are ignored."""

    to = forms.ChoiceField(
        label=_("Read on from"), choices=RESET_MODES, widget=forms.RadioSelect, initial=ResetMode.EARLIEST.value
    )
    time = forms.DateTimeField(
        label=_("Time"), required=False, input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"],
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S"),
        help_text=_("In your time zone."),
    )  # fmt: skip
    offset = forms.IntegerField(label=_("Offset"), required=False, min_value=0, max_value=OFFSET_MAX)
    by = forms.IntegerField(
        label=_("Messages"), required=False, min_value=-OFFSET_MAX, max_value=OFFSET_MAX,
        help_text=_("Negative: read them again. Positive: skip them."),
    )  # fmt: skip
    topic = forms.ChoiceField(label=_("Topics"), required=False)
    partitions = forms.CharField(
        label=_("Partitions"), required=False, max_length=PARTITIONS_CHARS_MAX,
        help_text=_("Of the chosen topic, for example 0, 3-5. Empty: all."),
    )  # fmt: skip

    def __init__(self, *args: Any, topics: Iterable[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["topic"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", _("All it has read")), *((name, name) for name in topics)]

    def clean_partitions(self) -> list[int] | None:
        text = self.cleaned_data["partitions"].strip()
        if not text:
            return None
        result: set[int] = set()
        for part in text.split(","):
            match = _PARTITION_RANGE.match(part)
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if not match or not first <= last < PARTITIONS_PER_TOPIC_MAX:
                raise forms.ValidationError(_("Use numbers and ranges, for example 0, 3-5."))
            result |= set(range(first, last + 1))
        return sorted(result)

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        required = {ResetMode.TIME: "time", ResetMode.OFFSET: "offset", ResetMode.SHIFT: "by"}.get(values.get("to", ""))
        if required and values.get(required) is None and required not in self.errors:
            self.add_error(required, _("This is needed."))
        if values.get("partitions") and not values.get("topic"):
            self.add_error("topic", _("Choose the topic whose partitions you mean."))
        return values

    @property
    def target(self) -> ResetTarget:
        """Returns the target of the reset."""
        values = self.cleaned_data
        mode = ResetMode(values["to"])
        return ResetTarget(
            mode=mode,
            at_ms=time_ms(values["time"]) if mode is ResetMode.TIME else None,
            offset=values["offset"] if mode is ResetMode.OFFSET else None,
            by=values["by"] if mode is ResetMode.SHIFT else None,
        )

    @property
    def selection(self) -> list[tuple[str, list[int] | None]]:
        """Returns the chosen topic and partitions; empty for all."""
        topic = self.cleaned_data["topic"]
        return [(topic, self.cleaned_data["partitions"])] if topic else []


class DeleteOffsetsForm(forms.Form):
    """The topic whose offsets are deleted."""

    topic = forms.ChoiceField(label=_("Topic"))

    def __init__(self, *args: Any, topics: Iterable[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["topic"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(name, name) for name in topics]
