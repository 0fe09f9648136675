"""Forms of the page on which a topic's schemas and masked fields are chosen."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from instances.choices import MessagePart, SchemaFormat, SchemaFraming
from instances.messages import limits, value_paths
from instances.messages.masks import Mask
from instances.messages.schemas import limits as schema_limits
from instances.messages.schemas.sources import SCHEMA_ID_MAX

MASK_LINES_CHARS_MAX = limits.MASKS_PER_TOPIC_MAX * (limits.MASK_CHARS_MAX + 10)


class SchemaForm(forms.Form):
    """A schema of a topic's keys or values."""

    format = forms.ChoiceField(label=_("Format"), choices=SchemaFormat.choices)
    part = forms.ChoiceField(
        label=_("Of the"), initial=MessagePart.VALUE.value,
        choices=[(MessagePart.VALUE.value, _("Value")), (MessagePart.KEY.value, pgettext_lazy("message", "Key"))],
    )  # fmt: skip
    framing = forms.ChoiceField(
        label=_("The bytes are"), choices=SchemaFraming.choices, initial=SchemaFraming.CONFLUENT.value,
        help_text=_("Serializers of Confluent write a zero byte and the id of the schema first."),
    )  # fmt: skip
    schema_id = forms.IntegerField(
        label=_("Id of the schema"), required=False, min_value=0, max_value=SCHEMA_ID_MAX,
        help_text=_("Empty: for every id that has no schema of its own."),
    )  # fmt: skip
    message = forms.CharField(
        label=_("Message"), required=False, max_length=schema_limits.NAME_CHARS_MAX,
        help_text=_("Of Protobuf, where the bytes do not say it. Empty: the first one of the file."),
    )  # fmt: skip
    schema = forms.CharField(
        label=_("Schema"), max_length=schema_limits.SCHEMA_CHARS_MAX, strip=False, widget=forms.Textarea,
        help_text=_("Avro as JSON, the text of a .proto file, or a descriptor set in base64."),
    )  # fmt: skip


class MasksForm(forms.Form):
    """Masked fields, one a line: a part and a path."""

    masks = forms.CharField(
        label=_("Masked fields"), required=False, max_length=MASK_LINES_CHARS_MAX, widget=forms.Textarea,
        help_text=_("One a line: value .card.number, key ., header .authorization"),
    )  # fmt: skip

    def clean_masks(self) -> list[Mask]:
        lines = [line.strip() for line in self.cleaned_data["masks"].splitlines() if line.strip()]
        if len(lines) > limits.MASKS_PER_TOPIC_MAX:
            raise forms.ValidationError(_("At most %(n)s fields."), params={"n": limits.MASKS_PER_TOPIC_MAX})
        return [_mask(line) for line in lines]


def _mask(line: str) -> Mask:
    part, _space, text = line.partition(" ")
    try:
        path = value_paths.parse(text.strip())
    except value_paths.WrongPath:
        path = None
    if part not in MessagePart.values or path is None or len(str(path)) > limits.MASK_CHARS_MAX:
        raise forms.ValidationError(
            _("“%(line)s” is no part and path, such as: value .card.number"), params={"line": line[:60]}
        )
    return Mask(part, path)


def mask_lines(rows: Any) -> str:
    """Masks as the form shows them."""
    return "\n".join(f"{row.part} {row.path}" for row in rows)
