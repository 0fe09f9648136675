"""Forms of the actions on topics: they parse the input; services and brokers decide."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from instances.limits import TOPICS_AT_ONCE_MAX
from instances.models import TOPIC_CHARS_MAX
from instances.naming import is_valid_topic_name
from instances.topics.limits import PARTITIONS_PER_TOPIC_MAX
from instances.topics.listing import DEFAULT_SORT, SORTS
from instances.topics.purging import PurgeTarget
from tenants.limits import PAGE_TOKEN_CHARS_MAX

OFFSET_MAX = 2**63 - 1
OFFSETS_CHARS_MAX = 32 * PARTITIONS_PER_TOPIC_MAX
ALL, BEFORE_TIME, BEFORE_OFFSET = "all", "time", "offset"


class TopicListForm(forms.Form):
    """Filter, order and page of the list of topics, from the query of its URL."""

    q = forms.CharField(required=False, max_length=TOPIC_CHARS_MAX)
    sort = forms.ChoiceField(required=False, choices=[(name, name) for name in SORTS])
    page_token = forms.CharField(required=False, max_length=PAGE_TOKEN_CHARS_MAX)

    @property
    def list_query(self) -> tuple[str, str, str]:
        """Search text, order and page token; those of the first page of all topics if one is invalid."""
        if not self.is_valid():
            return "", DEFAULT_SORT, ""
        values = self.cleaned_data
        return values["q"], values["sort"] or DEFAULT_SORT, values["page_token"]


class SelectedTopicsForm(forms.Form):
    """Topics that were selected in the list, and the action on all of them."""

    act = forms.ChoiceField(choices=[(name, name) for name in ("purge", "delete", "config")])
    name = forms.MultipleChoiceField()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = self.data.getlist("name")[: TOPICS_AT_ONCE_MAX + 1] if hasattr(self.data, "getlist") else []
        field = self.fields["name"]
        assert isinstance(field, forms.MultipleChoiceField)
        field.choices = [(name, name) for name in names if is_valid_topic_name(name)]

    def clean_name(self) -> list[str]:
        names = sorted(set(self.cleaned_data["name"]))
        if len(names) > TOPICS_AT_ONCE_MAX:
            raise forms.ValidationError(_("At most %(n)s topics at once."), params={"n": TOPICS_AT_ONCE_MAX})
        return names


class PurgeForm(forms.Form):
    """Choice of the messages of a topic to delete. Values of the other choices are ignored."""

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
        required = {BEFORE_TIME: ("time",), BEFORE_OFFSET: ("partition", "offset")}.get(values.get("what", ""), ())
        for name in required:
            if values.get(name) is None and name not in self.errors:
                self.add_error(name, _("This is needed."))
        instant = values.get("time")
        if "time" in required and instant is not None and instant.timestamp() < 0:
            self.add_error("time", _("Times begin with 1970."))
        return values

    @property
    def target(self) -> PurgeTarget:
        """Target of the purge, if the values are valid."""
        values = self.cleaned_data
        if values["what"] == BEFORE_TIME:
            return PurgeTarget(at_ms=round(values["time"].timestamp() * 1_000))
        if values["what"] == BEFORE_OFFSET:
            return PurgeTarget(offsets={values["partition"]: values["offset"]})
        return PurgeTarget()


class ConfirmedOffsetsForm(forms.Form):
    """The offsets of a plan that a person confirmed, as JSON: exactly what was shown is deleted."""

    offsets = forms.CharField(max_length=OFFSETS_CHARS_MAX, widget=forms.HiddenInput)

    def clean_offsets(self) -> dict[int, int]:
        error = forms.ValidationError(_("Look at the table again."))
        try:
            offsets = json.loads(self.cleaned_data["offsets"])
        except ValueError:
            raise error from None
        if not isinstance(offsets, dict) or not 0 < len(offsets) <= PARTITIONS_PER_TOPIC_MAX:
            raise error
        result: dict[int, int] = {}
        for name, offset in offsets.items():
            is_partition = name.isascii() and name.isdigit() and len(name) <= 4
            if not is_partition or type(offset) is not int or not 0 <= offset <= OFFSET_MAX:
                raise error
            result[int(name)] = offset
        return result
