"""Forms of the acts on topics: they read what was typed; services and brokers decide."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from instances.topics.limits import PARTITIONS_PER_TOPIC_MAX
from instances.topics.purging import PurgeTarget

OFFSET_MAX = 2**63 - 1
OFFSETS_CHARS_MAX = 32 * PARTITIONS_PER_TOPIC_MAX
ALL, BEFORE_TIME, BEFORE_OFFSET = "all", "time", "offset"


class PurgeForm(forms.Form):
    """Which messages of a topic go. Values that another choice takes are not looked at."""

    what = forms.ChoiceField(
        label=_("Delete"), widget=forms.RadioSelect, initial=ALL,
        choices=[
            (ALL, _("All messages that are there now")),
            (BEFORE_TIME, _("Messages before a time")),
            (BEFORE_OFFSET, _("Messages of one partition before an offset")),
        ],
    )  # fmt: skip
    time = forms.DateTimeField(
        label=_("Time"), required=False, input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"],
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S"),
        help_text=_("In your time zone."),
    )  # fmt: skip
    partition = forms.IntegerField(
        label=_("Partition"), required=False, min_value=0, max_value=PARTITIONS_PER_TOPIC_MAX - 1
    )
    offset = forms.IntegerField(label=_("Offset"), required=False, min_value=0, max_value=OFFSET_MAX)

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        needed = {BEFORE_TIME: ("time",), BEFORE_OFFSET: ("partition", "offset")}.get(values.get("what", ""), ())
        for name in needed:
            if values.get(name) is None and name not in self.errors:
                self.add_error(name, _("This is needed."))
        moment = values.get("time")
        if "time" in needed and moment is not None and moment.timestamp() < 0:
            self.add_error("time", _("Times begin with 1970."))
        return values

    @property
    def target(self) -> PurgeTarget:
        """Where the purge ends, out of valid values."""
        values = self.cleaned_data
        if values["what"] == BEFORE_TIME:
            return PurgeTarget(at_ms=round(values["time"].timestamp() * 1_000))
        if values["what"] == BEFORE_OFFSET:
            return PurgeTarget(offsets={values["partition"]: values["offset"]})
        return PurgeTarget()


class AgreedOffsetsForm(forms.Form):
    """The offsets of a plan that a person agreed to, as JSON: what was shown is what goes."""

    offsets = forms.CharField(max_length=OFFSETS_CHARS_MAX, widget=forms.HiddenInput)

    def clean_offsets(self) -> dict[int, int]:
        wrong = forms.ValidationError(_("Look at the table again."))
        try:
            given = json.loads(self.cleaned_data["offsets"])
        except ValueError:
            raise wrong from None
        if not isinstance(given, dict) or not 0 < len(given) <= PARTITIONS_PER_TOPIC_MAX:
            raise wrong
        result: dict[int, int] = {}
        for name, offset in given.items():
            is_partition = name.isascii() and name.isdigit() and len(name) <= 4
            if not is_partition or type(offset) is not int or not 0 <= offset <= OFFSET_MAX:
                raise wrong
            result[int(name)] = offset
        return result
