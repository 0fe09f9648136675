"""Forms of alert rules and webhooks. Limits are decided by services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from django import forms
from django.utils.translation import gettext_lazy as _

from instances.naming import TOPIC_NAME_LENGTH_MAX
from notifications.limits import (
    FOR_MINUTES,
    FOR_MINUTES_MAX,
    GROUP_CHARS_MAX,
    LAG_MAX,
    NAME_CHARS_MAX,
    WINDOW_MINUTES_MAX,
    WINDOW_MINUTES_MIN,
)
from notifications.models import OF_TENANTS
from notifications.models.webhooks import URL_CHARS_MAX


class AlertRuleChangeForm(forms.Form):
    """Fields of an alert rule that may be changed."""

    name = forms.CharField(label=_("Name"), max_length=NAME_CHARS_MAX)
    threshold = forms.IntegerField(
        label=_("Threshold"), min_value=1, max_value=LAG_MAX,
        help_text=_("Percent of storage or of time, records of lag, or brokers. The rule fires at it and above."),
    )  # fmt: skip
    for_minutes = forms.IntegerField(
        label=_("For, minutes"), min_value=1, max_value=FOR_MINUTES_MAX, initial=FOR_MINUTES,
        help_text=_("How long it must hold before the rule fires."),
    )  # fmt: skip
    group_id = forms.CharField(
        label=_("Consumer group"), max_length=GROUP_CHARS_MAX, required=False, strip=False,
        help_text=_("For a lag."),
    )  # fmt: skip
    topic = forms.CharField(
        label=_("Topic"), max_length=TOPIC_NAME_LENGTH_MAX, required=False,
        help_text=_("For a lag; empty: all topics that the group reads."),
    )  # fmt: skip
    window_minutes = forms.IntegerField(
        label=_("Of the last, minutes"), min_value=WINDOW_MINUTES_MIN, max_value=WINDOW_MINUTES_MAX, required=False,
        help_text=_("For time in which clients are delayed; empty: 15."),
    )  # fmt: skip


class AlertRuleForm(AlertRuleChangeForm):
    """New alert rule about an instance."""

    instance_id = forms.ChoiceField(label=_("Instance"), choices=())
    kind = forms.ChoiceField(label=_("What is watched"), choices=[(kind.value, kind.label) for kind in OF_TENANTS])
    field_order = ("name", "instance_id", "kind", "threshold", "for_minutes", "group_id", "topic", "window_minutes")

    def __init__(self, *args: Any, instances: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cast(forms.ChoiceField, self.fields["instance_id"]).choices = list(instances.items())


class WebhookForm(forms.Form):
    url = forms.CharField(
        label=_("Address"), max_length=URL_CHARS_MAX, help_text=_("By https:// to a public address."),
        widget=forms.TextInput(attrs={"inputmode": "url", "placeholder": "https://example.com/penstock"}),
    )  # fmt: skip
