"""Forms of the pages about messages: where to begin reading, and a message to send."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import forms
from django.core.validators import MaxValueValidator
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from instances.messages import content, limits, record_filter
from instances.messages.drafts import HEADER_LINES_CHARS_MAX
from instances.messages.interfaces import NEWEST, OFFSET, OLDEST, TIME, NewMessage
from instances.messages.record_filter import FilterTexts, UnusableFilter
from instances.messages.schemas.sources import AVRO, PROTOBUF
from instances.messages.start import OFFSET_MAX, to_ms
from instances.messages.value_filter import PROGRAM_CHARS_MAX
from tenants.limits import PAGE_TOKEN_CHARS_MAX
from tenants.wording import localized

# Parameter of the API for each filter field.
FILTER_FIELDS = {
    "q": "contains", "key": "key_contains", "header": "header_contains", "re": "matches", "key_re": "key_matches",
    "jq": "jq",
}  # fmt: skip
# Filter fields whose text has a syntax, with their parameters.
PARSED_FILTERS = {"re": "matches", "key_re": "key_matches", "jq": "jq"}


class ReadForm(forms.Form):
    """Choice of the messages that a page shows: with all fields empty, the newest ones of all partitions."""

    start = forms.ChoiceField(
        label=pgettext_lazy("messages", "From"), required=False,
        choices=[(NEWEST, _("Newest")), (OLDEST, _("Oldest")), (OFFSET, _("Offset")), (TIME, _("Time"))],
    )  # fmt: skip
    offset = forms.IntegerField(label=_("Offset"), required=False, min_value=0, max_value=OFFSET_MAX)
    time = forms.DateTimeField(
        label=_("Time"), required=False, input_formats=["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S"],
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S"),
    )  # fmt: skip
    partition = forms.TypedChoiceField(label=_("Partition"), required=False, coerce=int, empty_value=None)
    q = forms.CharField(
        label=_("In key or value"), required=False, max_length=limits.FILTER_CHARS_MAX, strip=False
    )  # fmt: skip
    key = forms.CharField(label=_("In the key"), required=False, max_length=limits.FILTER_CHARS_MAX, strip=False)
    header = forms.CharField(label=_("In a header"), required=False, max_length=limits.FILTER_CHARS_MAX, strip=False)
    re = forms.CharField(
        label=_("Regular expression"), required=False, max_length=limits.FILTER_CHARS_MAX, strip=False
    )  # fmt: skip
    key_re = forms.CharField(
        label=_("Regular expression, key"), required=False, max_length=limits.FILTER_CHARS_MAX, strip=False
    )  # fmt: skip
    show = forms.ChoiceField(
        label=_("Show as"), required=False,
        choices=[(content.AUTO, _("What fits")), (content.TEXT, _("Text")), (content.JSON, "JSON"),
                 (content.HEX, "Hex"), (content.BASE64, "Base64"), (content.INTEGER, _("Integer")),
                 (content.FLOAT, _("Floating-point number")), (AVRO, "Avro"), (PROTOBUF, "Protobuf")],
    )  # fmt: skip
    jq = forms.CharField(
        label=_("Filter by path"), required=False, max_length=PROGRAM_CHARS_MAX, strip=False,
    )  # fmt: skip
    page_token = forms.CharField(required=False, max_length=PAGE_TOKEN_CHARS_MAX, widget=forms.HiddenInput)

    def __init__(self, *args: Any, partitions: int, **options: Any) -> None:
        super().__init__(*args, **options)
        numbers = [(str(index), str(index)) for index in range(partitions)]
        self.fields["partition"].choices = [("", _("All")), *numbers]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        kind = values.get("start") or NEWEST
        if kind == OFFSET and values.get("offset") is None and "offset" not in self.errors:
            self.add_error("offset", _("Give an offset."))
        instant = values.get("time")
        if kind == TIME and "time" not in self.errors:
            if instant is None:
                self.add_error("time", _("Give a time."))
            elif to_ms(instant) < 0:
                self.add_error("time", _("Times begin with 1970."))
        for name, parameter in PARSED_FILTERS.items():
            try:
                record_filter.check(parameter, values.get(name) or "")
            except UnusableFilter as error:
                self.add_error(name, localized(error.args[0]))
        return values

    @property
    def filters(self) -> FilterTexts:
        """The filters, under the names of the API."""
        values = self.cleaned_data
        return FilterTexts(**{parameter: values.get(name) or "" for name, parameter in FILTER_FIELDS.items()})

    @property
    def start_text(self) -> str:
        """The start position, as the API's parameter `start` has it."""
        values = self.cleaned_data
        kind = values.get("start") or NEWEST
        if kind == OFFSET:
            return f"{OFFSET}:{values['offset']}"
        if kind == TIME:
            instant: datetime = values["time"].astimezone(UTC)
            return f"{TIME}:{instant:%Y-%m-%dT%H:%M:%S}Z"
        return kind


class MessagePositionForm(forms.Form):
    """Partition and offset of one message."""

    partition = forms.IntegerField(min_value=0)
    offset = forms.IntegerField(min_value=0, max_value=OFFSET_MAX)

    def __init__(self, *args: Any, partitions: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["partition"].validators.append(MaxValueValidator(partitions - 1))


class SendLinesForm(forms.Form):
    """Several messages as lines of text, typed or read from a file by the browser."""

    lines_are = forms.ChoiceField(
        label=_("A line is"),
        choices=[("values", _("a value")), ("messages", _("a message as JSON, as saved by “Take this away”"))],
    )  # fmt: skip
    lines = forms.CharField(
        label=_("Messages"), max_length=limits.SENT_BYTES_MAX, strip=False,
        widget=forms.Textarea(attrs={"rows": 6, "class": "mono", "spellcheck": "false"}),
        help_text=_("One a line, at most %(n)s.") % {"n": limits.SENT_MESSAGES_MAX},
    )  # fmt: skip


class SendForm(forms.Form):
    """One message to send. An empty key means no key, but an empty value is a value: a tombstone has its own field."""

    key = forms.CharField(
        label=pgettext_lazy("message", "Key"), required=False, max_length=limits.SENT_KEY_CHARS_MAX, strip=False,
        help_text=_("Messages of one key keep their order. Empty: the message has none."),
    )  # fmt: skip
    key_format = forms.ChoiceField(
        label=_("The key is"), required=False,
        choices=[(content.TEXT, _("Text")), (content.HEX, "Hex"), (content.BASE64, "Base64")],
    )  # fmt: skip
    value = forms.CharField(
        label=_("Value"), required=False, max_length=limits.SENT_BYTES_MAX, strip=False, widget=forms.Textarea
    )
    value_format = forms.ChoiceField(
        label=_("The value is"), required=False,
        choices=[(content.TEXT, _("Text")), (content.JSON, "JSON"), (content.HEX, "Hex"), (content.BASE64, "Base64")],
    )  # fmt: skip
    is_tombstone = forms.BooleanField(
        label=_("No value (tombstone)"), required=False, help_text=_("Compaction then deletes the key.")
    )
    headers = forms.CharField(
        label=_("Headers"), required=False, max_length=HEADER_LINES_CHARS_MAX, widget=forms.Textarea,
        help_text=_("One a line: name: value"),
    )  # fmt: skip
    partition = forms.TypedChoiceField(label=_("Partition"), required=False, coerce=int, empty_value=None)

    def __init__(self, *args: Any, partitions: int, **options: Any) -> None:
        super().__init__(*args, **options)
        numbers = [(str(index), str(index)) for index in range(partitions)]
        self.fields["partition"].choices = [("", _("By the key")), *numbers]  # type: ignore[attr-defined]

    def clean_headers(self) -> list[tuple[str, bytes | None]]:
        headers: list[tuple[str, bytes | None]] = []
        for line in self.cleaned_data["headers"].splitlines():
            if not line.strip():
                continue
            name, colon, value = line.partition(":")
            if not colon or not name.strip():
                raise forms.ValidationError(_("Write each header as name: value."))
            if len(name.strip()) > limits.SENT_HEADER_KEY_CHARS_MAX or len(headers) >= limits.SENT_HEADERS_MAX:
                raise forms.ValidationError(_("These are too many headers, or a name is too long."))
            headers.append((name.strip(), value.strip().encode()))
        return headers

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        text = values.get("value", "").replace("\r\n", "\n")  # browsers send CR LF as line end
        try:
            values["raw"] = content.to_bytes(text, values.get("value_format") or content.TEXT)
        except content.Unwritable:
            self.add_error("value", _("The value does not have this format."))
        try:
            values["raw_key"] = content.to_bytes(values.get("key", ""), values.get("key_format") or content.TEXT)
        except content.Unwritable:
            self.add_error("key", _("The key does not have this format."))
        return values

    @property
    def message(self) -> NewMessage:
        values = self.cleaned_data
        return NewMessage(
            key=values["raw_key"] or None,
            value=None if values["is_tombstone"] else values["raw"],
            headers=values["headers"],
            partition=values["partition"],
        )
