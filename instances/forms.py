"""Forms of instances, topics and quotas. They parse the input; services and brokers decide what is allowed."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from instances.choices import BandwidthPolicy, QuotaScope, StorageWhenFull
from instances.limits import (
    ADDRESS_CHARS_MAX,
    ALLOW_LIST_ENTRIES_MAX,
    DEFAULT_PARTITIONS_MAX,
    NAME_CHARS_MAX,
    NAME_PATTERN,
    PARTITIONS_PER_TOPIC_MAX,
    REPLICATION_FACTOR_MAX,
    RETENTION_HOURS_MAX,
    RETENTION_MINUTES_MAX,
    STORAGE_GB_MAX,
)
from instances.models import TOPIC_CHARS_MAX
from instances.naming import is_valid_topic_name
from quotas.addresses import CONNECTION_CREATION_RATE_MAX
from quotas.interfaces import EntityPart
from quotas.limits import ENTITY_NAME_CHARS_MAX

PARTITIONS_INITIAL = 3
ALLOW_LIST_CHARS_MAX = ALLOW_LIST_ENTRIES_MAX * (ADDRESS_CHARS_MAX + 2)


class NameForm(forms.Form):
    name = forms.RegexField(
        NAME_PATTERN, label=_("Name"), max_length=NAME_CHARS_MAX,
        help_text=_("You can rename it; the id, the address and the messages stay."),
        error_messages={"invalid": _("Use a to z, digits and dashes, beginning with a letter.")},
    )  # fmt: skip


class AutoTopicsForm(forms.Form):
    auto_create_topics = forms.BooleanField(label=_("Create topics when a client first uses them"), required=False)
    default_partitions = forms.IntegerField(
        label=_("Partitions of such a topic"), min_value=1, max_value=DEFAULT_PARTITIONS_MAX
    )


class OpenAccessForm(forms.Form):
    allow_everyone_if_no_acl = forms.BooleanField(
        label=_("What has no access rule is open to every user"), required=False,
        help_text=_(
            "With it, every client may read, change and delete what has no rule; only administering the instance takes "
            "one. Without it, users do what rules allow; those with full access do everything."
        ),
    )  # fmt: skip


class SharingForm(forms.Form):
    bandwidth_policy = forms.ChoiceField(
        label=_("Bandwidth over brokers"), choices=BandwidthPolicy.choices,
        help_text=_("Each broker has a share of what you bought; together they never have more."),
    )  # fmt: skip
    quota_scope = forms.ChoiceField(label=_("A client quota holds"), choices=QuotaScope.choices)


class StorageForm(forms.Form):
    """Settings for storage that is full or nearly full. The service checks how far an instance may grow."""

    storage_when_full = forms.ChoiceField(label=_("When it is full"), choices=StorageWhenFull.choices)
    storage_retention_minutes_min = forms.IntegerField(
        label=_("Never delete records younger than, minutes"), min_value=1, max_value=RETENTION_MINUTES_MAX,
        help_text=_("From 95 % on the oldest records of topics that delete go, until less than 90 % is used."),
    )  # fmt: skip
    storage_grow_step_gb = forms.IntegerField(
        label=_("Grow by, GB"), min_value=1, max_value=STORAGE_GB_MAX, required=False,
        help_text=_("From 90 % on. Each step is charged like any other. Empty: it does not grow by itself."),
    )  # fmt: skip
    storage_grow_max_gb = forms.IntegerField(
        label=_("Grow up to, GB"), min_value=1, max_value=STORAGE_GB_MAX, required=False
    )


class TopicForm(forms.Form):
    name = forms.CharField(label=_("Name"), max_length=TOPIC_CHARS_MAX)
    partitions = forms.IntegerField(
        label=_("Partitions"), min_value=1, max_value=PARTITIONS_PER_TOPIC_MAX, initial=PARTITIONS_INITIAL,
        help_text=_("You can add some later, never take some away."),
    )  # fmt: skip
    replication_factor = forms.TypedChoiceField(
        label=_("Replicas"), coerce=int, required=False, empty_value=None,
        help_text=_("Copies of each partition, on different brokers. With 2 or more it outlives the loss of a broker."),
    )  # fmt: skip
    retention_hours = forms.DecimalField(
        label=_("Retention"), min_value=0, max_value=RETENTION_HOURS_MAX, decimal_places=4, required=False,
        help_text=_("Empty: 168 h, the default. 0: unlimited."),
    )  # fmt: skip

    def __init__(self, *args: Any, brokers: int, **kwargs: Any) -> None:
        """Bounds the replicas of a partition by `brokers`, the number of the instance's brokers."""
        super().__init__(*args, **kwargs)
        factors = range(1, min(REPLICATION_FACTOR_MAX, max(1, brokers)) + 1)
        field = self.fields["replication_factor"]
        assert isinstance(field, forms.TypedChoiceField)
        field.choices = [(factor, str(factor)) for factor in factors]

    def clean_name(self) -> str:
        return checked_topic_name(self.cleaned_data["name"])


class CloneForm(forms.Form):
    name = forms.CharField(label=_("Name of the new topic"), max_length=TOPIC_CHARS_MAX)
    records = forms.BooleanField(label=_("With the messages that it has now"), required=False)

    def clean_name(self) -> str:
        return checked_topic_name(self.cleaned_data["name"])


def checked_topic_name(name: str) -> str:
    """Returns the name if it is valid for a topic. Raises `ValidationError`, with a valid suggestion."""
    if is_valid_topic_name(name):
        return name
    suggestion = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "." for letter in name
    )
    if is_valid_topic_name(suggestion):
        raise forms.ValidationError(
            _("Use letters, digits, dots, dashes or underscores: %(fixed)s"), params={"fixed": suggestion}
        )
    raise forms.ValidationError(_("Use letters, digits, dots, dashes or underscores."))


class PartitionsForm(forms.Form):
    partitions = forms.IntegerField(label=_("Partitions, total"), min_value=1, max_value=PARTITIONS_PER_TOPIC_MAX)


class AllowListForm(forms.Form):
    produce = forms.CharField(
        label=_("May produce"), widget=forms.Textarea, required=False, max_length=ALLOW_LIST_CHARS_MAX,
        help_text=_("One address or network (10.0.0.0/8) a line. Empty: from anywhere."),
    )  # fmt: skip
    consume = forms.CharField(
        label=_("May consume"), widget=forms.Textarea, required=False, max_length=ALLOW_LIST_CHARS_MAX,
        help_text=_("One address or network (10.0.0.0/8) a line. Empty: from anywhere."),
    )  # fmt: skip
    administer = forms.CharField(
        label=_("May administer"), widget=forms.Textarea, required=False, max_length=ALLOW_LIST_CHARS_MAX,
        help_text=_(
            "Delete the topic or its records, change its configuration, add partitions. Empty: addresses that may both "
            "produce and consume."
        ),
    )  # fmt: skip


class EntityForm(forms.Form):
    """The entity whose quota is removed. A Kafka client may have set it, so its names are not checked."""

    KINDS = (("none", _("not named")), ("default", _("any (default)")), ("name", _("by name")))

    user_kind = forms.ChoiceField(choices=KINDS)
    user = forms.CharField(required=False, strip=False)
    client_id_kind = forms.ChoiceField(choices=KINDS)
    client_id = forms.CharField(required=False, strip=False)

    def part(self, part: str) -> EntityPart | None:
        """Returns the part `user` or `client_id` of the entity: a name, the default, or None if it is not named."""
        chosen_kind = self.cleaned_data[f"{part}_kind"]
        if chosen_kind == "none":
            return None
        return EntityPart(name=None if chosen_kind == "default" else self.cleaned_data[part])


class QuotaForm(EntityForm):
    """One entity and its limits. The service decides which entities and limits are allowed."""

    user_kind = forms.ChoiceField(label=_("User"), choices=EntityForm.KINDS, initial="none")
    user = forms.CharField(label=_("User name"), max_length=ENTITY_NAME_CHARS_MAX, required=False)
    client_id_kind = forms.ChoiceField(label=_("Client"), choices=EntityForm.KINDS, initial="default")
    client_id = forms.CharField(label=_("Client id"), max_length=ENTITY_NAME_CHARS_MAX, required=False)
    produce_mb_s = forms.DecimalField(label=_("Produce"), min_value=0, max_digits=12, decimal_places=6, required=False)
    consume_mb_s = forms.DecimalField(label=_("Consume"), min_value=0, max_digits=12, decimal_places=6, required=False)
    request_percent = forms.DecimalField(
        label=_("Request time"), min_value=0, max_digits=12, decimal_places=4, required=False,
        help_text=_("Percent of the time of each broker. Requests wait over it."),
    )  # fmt: skip
    partitions_per_s = forms.DecimalField(
        label=_("Partition changes"), min_value=0, max_digits=12, decimal_places=4, required=False,
        help_text=_("Partitions created, added or deleted a second. Newer clients are refused over it, others wait."),
    )  # fmt: skip

    def clean(self) -> dict[str, object]:
        values = super().clean() or {}
        for part in ("user", "client_id"):
            if values.get(f"{part}_kind") == "name" and not values.get(part):
                self.add_error(part, _("Say which one, or choose any."))
        if values.get("user_kind") == "none" and values.get("client_id_kind") == "none":
            self.add_error("user_kind", _("Name a user, a client id, or both."))
        limits = ("produce_mb_s", "consume_mb_s", "request_percent", "partitions_per_s")
        if all(values.get(name) is None for name in limits) and not self.errors:
            self.add_error("produce_mb_s", _("Give at least one limit."))
        return values


class AddressForm(forms.Form):
    """The address whose limit of new connections is removed."""

    KINDS = (("default", _("each without a limit of its own")), ("name", _("one address")))

    ip_kind = forms.ChoiceField(label=_("Addresses"), choices=KINDS, initial="default")
    ip = forms.CharField(label=_("Address"), max_length=ADDRESS_CHARS_MAX, required=False)

    def clean(self) -> dict[str, object]:
        values = super().clean() or {}
        if values.get("ip_kind") == "name" and not values.get("ip") and "ip" not in self.errors:
            self.add_error("ip", _("Say which one."))
        return values

    @property
    def address(self) -> str | None:
        """Address that is limited; None stands for each address without a limit of its own."""
        return self.cleaned_data["ip"] if self.cleaned_data["ip_kind"] == "name" else None


class AddressQuotaForm(AddressForm):
    connections_per_s = forms.IntegerField(
        label=_("New connections"), min_value=0, max_value=CONNECTION_CREATION_RATE_MAX
    )


class ExplainForm(forms.Form):
    user = forms.CharField(label=_("User"), max_length=ENTITY_NAME_CHARS_MAX, required=False)
    client_id = forms.CharField(label=_("Client id"), max_length=ENTITY_NAME_CHARS_MAX, required=False)
