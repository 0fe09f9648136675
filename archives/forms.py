"""Forms of archives. The forms use megabytes; all other code uses bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from django import forms
from django.utils.translation import gettext_lazy as _

from archives.columns import SCHEMA_CHARS_MAX
from archives.limits import BYTES_PER_S_MAX, INTERVAL_MINUTES_MAX, RUN_AFTER_BYTES_MAX
from archives.models import (
    ARCHIVE_URL_CHARS_MAX,
    INTERVAL_MINUTES,
    NAME_CHARS_MAX,
    SECRET_CHARS_MAX,
    Archive,
    OnTrouble,
    ValueFormat,
)
from instances.naming import TOPIC_NAME_LENGTH_MAX

MB = 1_000_000
# Form fields in megabytes and the REST fields in bytes that they set.
BYTES_FIELD_BY_MB_FIELD = {"run_after_mb": "run_after_bytes", "mb_per_s_max": "bytes_per_s_max"}
SECRET_FIELDS = ("secret_access_key", "password", "database_password")
BUCKET_CREDENTIALS = ("access_key_id", "secret_access_key")
DATABASE_CREDENTIALS = ("database_user", "database_password")


class ArchiveChangeForm(forms.Form):
    """Schedule, rate and credentials of an archive.

    An empty secret leaves the stored one unchanged. The form of an existing archive only has the credentials that its
    kind of address needs.
    """

    interval_minutes = forms.IntegerField(
        label=_("Every, minutes"), min_value=1, max_value=INTERVAL_MINUTES_MAX, initial=INTERVAL_MINUTES
    )
    run_after_mb = forms.IntegerField(
        label=_("Or after, MB"), min_value=1, max_value=RUN_AFTER_BYTES_MAX // MB, required=False,
        help_text=_("As soon as the topic has taken so much since the last run. Empty: by time alone."),
    )  # fmt: skip
    mb_per_s_max = forms.IntegerField(
        label=_("At most, MB/s"), min_value=1, max_value=BYTES_PER_S_MAX // MB, required=False,
        help_text=_("All partitions together. Empty: as fast as the instance lets it read."),
    )  # fmt: skip
    on_gap = forms.ChoiceField(
        label=_("Records that were deleted before"), choices=OnTrouble.choices, initial=OnTrouble.FAIL
    )
    on_bad_record = forms.ChoiceField(
        label=_("Records that cannot be filed"), choices=OnTrouble.choices, initial=OnTrouble.SKIP
    )
    access_key_id = forms.CharField(
        label=_("Access key"), max_length=NAME_CHARS_MAX, required=False, help_text=_("For s3: addresses.")
    )
    secret_access_key = forms.CharField(
        label=_("Secret key"), max_length=SECRET_CHARS_MAX, required=False, strip=False, widget=forms.PasswordInput,
        help_text=_("It is not shown again."),
    )  # fmt: skip
    database_user = forms.CharField(
        label=_("User of the database"), max_length=NAME_CHARS_MAX, required=False,
        help_text=_("For postgresql: addresses."),
    )  # fmt: skip
    database_password = forms.CharField(
        label=_("Password of the database"), max_length=SECRET_CHARS_MAX, required=False, strip=False,
        widget=forms.PasswordInput, help_text=_("It is not shown again."),
    )  # fmt: skip
    username = forms.CharField(
        label=_("User of the instance"), max_length=NAME_CHARS_MAX, required=False,
        help_text=_("Where every route asks for a user."),
    )  # fmt: skip
    password = forms.CharField(
        label=_("Password"), max_length=SECRET_CHARS_MAX, required=False, strip=False, widget=forms.PasswordInput,
        help_text=_("It is not shown again."),
    )  # fmt: skip

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of the service, with sizes in bytes."""
        values = dict(self.cleaned_data)
        for name, bytes_field in BYTES_FIELD_BY_MB_FIELD.items():
            megabytes = values.pop(name)
            values[bytes_field] = None if megabytes is None else megabytes * MB
        return values

    def changes(self) -> dict[str, Any]:
        """Returns the arguments of the service, without empty secrets, which leave the stored ones unchanged."""
        values = self.arguments()
        # A secret whose user or key id is empty is removed together with it.
        user_by_secret = {
            "secret_access_key": values.get("access_key_id"),
            "password": values["username"],
            "database_password": values.get("database_user"),
        }
        return {
            name: value
            for name, value in values.items()
            if name not in SECRET_FIELDS or value or not user_by_secret[name]
        }

    def remove_unused_credentials(self, archive: Archive) -> None:
        """Removes the fields for credentials of other kinds of addresses."""
        is_bucket = not archive.is_on_our_disks and not archive.is_in_database
        for name in (
            *(() if is_bucket else BUCKET_CREDENTIALS),
            *(() if archive.is_in_database else DATABASE_CREDENTIALS),
        ):
            del self.fields[name]


def values_of(archive: Archive) -> dict[str, Any]:
    """Returns the initial values of the form. Sizes below a megabyte that were set by REST are rounded up."""
    fields = ArchiveChangeForm.base_fields
    initial_values = {
        name: getattr(archive, name)
        for name in fields
        if name not in BYTES_FIELD_BY_MB_FIELD and name not in SECRET_FIELDS
    }
    for name, bytes_field in BYTES_FIELD_BY_MB_FIELD.items():
        size = getattr(archive, bytes_field)
        initial_values[name] = None if size is None else -(-size // MB)
    return initial_values


class ArchiveForm(ArchiveChangeForm):
    """New archive: topic, destination and format of the values."""

    instance_id = forms.ChoiceField(label=_("Instance"), choices=())
    topic = forms.CharField(label=_("Topic"), max_length=TOPIC_NAME_LENGTH_MAX)
    url = forms.CharField(
        label=_("Address"), max_length=ARCHIVE_URL_CHARS_MAX,
        help_text=_(
            "s3://bucket/path?region=… or file:name. The files lie below it in a folder of the archive's id. Or a"
            " table: postgresql://host:5432/database?schema=public&table=name."
        ),
    )  # fmt: skip
    value_format = forms.ChoiceField(label=_("Values as"), choices=ValueFormat.choices, initial=ValueFormat.RAW)
    value_schema = forms.CharField(
        label=_("Columns"), max_length=SCHEMA_CHARS_MAX, required=False, widget=forms.Textarea(attrs={"rows": 4}),
        help_text=_(
            'For JSON: [{"name": "id", "type": "integer"}]; types are string, integer, number, boolean, timestamp and'
            " json. For Avro: the schema of the record. The bytes are archived as well."
        ),
    )  # fmt: skip
    field_order = (
        "instance_id", "topic", "url", *BUCKET_CREDENTIALS, *DATABASE_CREDENTIALS, "username", "password",
        "value_format", "value_schema", "interval_minutes", "run_after_mb", "mb_per_s_max", "on_gap", "on_bad_record",
    )  # fmt: skip

    def __init__(self, *args: Any, instances: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cast(forms.ChoiceField, self.fields["instance_id"]).choices = list(instances.items())

    def clean_value_schema(self) -> Any:
        schema_text = self.cleaned_data["value_schema"]
        try:
            return json.loads(schema_text) if schema_text else None
        except (ValueError, RecursionError):
            raise forms.ValidationError(_("That is no JSON.")) from None
