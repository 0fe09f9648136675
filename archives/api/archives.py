"""REST resource of archives (`/archives`): topics that are copied to Parquet files or a table of the tenant."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from archives import access, services
from archives.limits import (
    BYTES_PER_S_MAX,
    BYTES_PER_S_MIN,
    INTERVAL_MINUTES_MAX,
    RUN_AFTER_BYTES_MAX,
    RUN_AFTER_BYTES_MIN,
)
from archives.models import (
    ARCHIVE_URL_CHARS_MAX,
    INTERVAL_MINUTES,
    NAME_CHARS_MAX,
    SECRET_CHARS_MAX,
    Archive,
    ArchiveFile,
    ArchivePartition,
    OnTrouble,
    ValueFormat,
)
from instances import access as instances_access
from instances.naming import TOPIC_NAME_LENGTH_MAX
from tenants.api.base import API_ROOT, ApiView, endpoint
from tenants.api.strict import Choice, Flag, Integer, StrictSerializer, Text
from tenants.choices import Scope


class ArchivePartitionOut(serializers.ModelSerializer[ArchivePartition]):
    """Progress of a partition: all offsets below `next_offset` are archived, skipped or missing. `unfit_values` counts
    values archived without columns, `loaded_rows` rows in a table of a database.
    """

    lag = serializers.IntegerField(help_text="Offsets between what is archived and the end as it was last seen.")

    class Meta:
        model = ArchivePartition
        fields = (
            "partition", "next_offset", "end_offset", "lag", "skipped_records", "missed_offsets", "unfit_values",
            "loaded_rows", "error", "updated_at",
        )  # fmt: skip


class ArchiveOut(serializers.ModelSerializer[Archive]):
    """Archive: a topic that is copied to Parquet files or a table."""

    value_schema = serializers.JSONField(allow_null=True, help_text="As it was given; null for raw values.")
    may_unmask = serializers.BooleanField(
        help_text="True if it may read a topic that has masks: its creator, or a member who ran it later, may unmask."
    )

    class Meta:
        model = Archive
        fields = (
            "id", "instance_id", "topic", "url", "state", "value_format", "value_schema", "interval_minutes",
            "run_after_bytes", "bytes_per_s_max", "on_gap", "on_bad_record", "username", "access_key_id",
            "database_user", "may_unmask", "error", "last_run_at", "next_run_at", "created_at",
        )  # fmt: skip


class ArchiveDetailOut(ArchiveOut):
    """Archive with the progress of its partitions."""

    partitions = ArchivePartitionOut(many=True)

    class Meta(ArchiveOut.Meta):
        fields = (*ArchiveOut.Meta.fields, "partitions")


class ArchiveFileOut(serializers.ModelSerializer[ArchiveFile]):
    """File that belongs to the archive; `path` is relative to the archive's folder."""

    class Meta:
        model = ArchiveFile
        fields = ("path", "partition", "first_offset", "last_offset", "rows", "bytes", "content_sum", "created_at")


def _interval_field(**options: Any) -> Integer:
    return Integer(min_value=1, max_value=INTERVAL_MINUTES_MAX, required=False, **options)


def _run_after_field() -> Integer:
    return Integer(
        min_value=RUN_AFTER_BYTES_MIN, max_value=RUN_AFTER_BYTES_MAX, required=False, allow_null=True,
        help_text="Also as soon as the topic has taken so many bytes since the last run; null: by time alone.",
    )  # fmt: skip


def _rate_field() -> Integer:
    return Integer(
        min_value=BYTES_PER_S_MIN, max_value=BYTES_PER_S_MAX, required=False, allow_null=True,
        help_text="At most so many bytes of records a second, all partitions together; null: what the instance gives.",
    )  # fmt: skip


def _policy_field(**options: Any) -> Choice:
    return Choice(choices=OnTrouble.choices, required=False, **options)


def _text_field(help_text: str, chars_max: int = NAME_CHARS_MAX) -> Text:
    return Text(max_length=chars_max, required=False, allow_blank=True, help_text=help_text)


class ArchiveIn(StrictSerializer):
    instance_id = Text(trim_whitespace=True, min_length=1, max_length=32)
    topic = Text(trim_whitespace=True, min_length=1, max_length=TOPIC_NAME_LENGTH_MAX)
    url = Text(
        trim_whitespace=True,
        min_length=1, max_length=ARCHIVE_URL_CHARS_MAX,
        help_text="`s3://bucket/path?region=…` or `file:name`; the files are below it in a folder of the archive's id."
        " Or `postgresql://host:5432/database?schema=public&table=name`.",
    )  # fmt: skip
    value_format = Choice(
        choices=ValueFormat.choices, default=ValueFormat.RAW,
        help_text="Which columns are made of values, in a struct `record`; null where a value does not fit.",
    )  # fmt: skip
    value_schema = serializers.JSONField(
        required=False, allow_null=True, default=None,
        help_text='For `json` a list of `{"name", "type"}` (string, integer, number, boolean, timestamp, json); for'
        " Avro the schema of a record without nested types.",
    )  # fmt: skip
    interval_minutes = _interval_field(default=INTERVAL_MINUTES)
    run_after_bytes = _run_after_field()
    bytes_per_s_max = _rate_field()
    on_gap = _policy_field(default=OnTrouble.FAIL, help_text="What if records were deleted before they were archived.")
    on_bad_record = _policy_field(default=OnTrouble.SKIP, help_text="What of batches that are damaged.")
    username = _text_field("The user of the instance it reads as, where a route asks for one.")
    password = _text_field("It is not shown again.", SECRET_CHARS_MAX)
    access_key_id = _text_field("For `s3:`.")
    secret_access_key = _text_field("For `s3:`. It is not shown again.", SECRET_CHARS_MAX)
    database_user = _text_field("For `postgresql:`.")
    database_password = _text_field("For `postgresql:`. It is not shown again.", SECRET_CHARS_MAX)


class ArchiveChange(StrictSerializer):
    is_paused = Flag(required=False)
    interval_minutes = _interval_field()
    run_after_bytes = _run_after_field()
    bytes_per_s_max = _rate_field()
    on_gap = _policy_field()
    on_bad_record = _policy_field()
    username = _text_field("The user of the instance it reads as.")
    password = _text_field("It is not shown again.", SECRET_CHARS_MAX)
    access_key_id = _text_field("For `s3:`.")
    secret_access_key = _text_field("For `s3:`. It is not shown again.", SECRET_CHARS_MAX)
    database_user = _text_field("For `postgresql:`.")
    database_password = _text_field("For `postgresql:`. It is not shown again.", SECRET_CHARS_MAX)


class ArchiveCollection(ApiView):
    tag = "Archives"

    @endpoint("list_archives", Scope.ARCHIVES_READ, page_item=ArchiveOut)
    def get(self, request: Request) -> Response:
        """List archives."""
        return self.page(access.archives_of(self.tenant), ArchiveOut, order=("created_at", "id"))

    @endpoint(
        "create_archive", Scope.ARCHIVES_WRITE, body=ArchiveIn, returns=ArchiveDetailOut, status=201,
        errors=(404, 409, 422),
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Create an archive.

        Every `interval_minutes` new records are copied, each exactly once, to Parquet files by the hour of their
        timestamps, or to a table of a PostgreSQL database. The archive reads as a client of the instance
        (`penstock-archive`), within its bandwidth and quotas.
        """
        body = dict(self.body)
        instance = instances_access.instance(self.actor, body.pop("instance_id"))
        archive = services.create(acting=self.actor, instance=instance, **body)
        return self.one(archive, ArchiveDetailOut, status=201, location=f"{API_ROOT}/archives/{archive.pk}")


class ArchiveDetail(ApiView):
    tag = "Archives"

    @endpoint("get_archive", Scope.ARCHIVES_READ, returns=ArchiveDetailOut)
    def get(self, request: Request, archive_id: str) -> Response:
        """Read an archive with the progress of each partition."""
        return self.one(access.archive(self.actor, archive_id), ArchiveDetailOut)

    @endpoint(
        "change_archive",
        Scope.ARCHIVES_WRITE,
        body=ArchiveChange,
        returns=ArchiveDetailOut,
        requires_if_match=True,
        errors=(409,),
    )
    def patch(self, request: Request, archive_id: str) -> Response:
        """Pause or resume an archive, or change its schedule, rate, policies and credentials."""
        archive = access.archive(self.actor, archive_id, lock=True)
        self.require_match(archive)
        return self.one(services.change(acting=self.actor, archive=archive, changes=self.body), ArchiveDetailOut)

    @endpoint("delete_archive", Scope.ARCHIVES_WRITE, status=204, requires_if_match=True)
    def delete(self, request: Request, archive_id: str) -> Response:
        """Delete an archive. Its files at `s3:` and its rows at `postgresql:` stay; files at `file:` are deleted."""
        archive = access.archive(self.actor, archive_id, lock=True)
        self.require_match(archive)
        services.delete(acting=self.actor, archive=archive)
        return self.nothing()


class ArchiveRun(ApiView):
    tag = "Archives"

    @endpoint("run_archive", Scope.ARCHIVES_WRITE, returns=ArchiveOut, errors=(409,))
    def post(self, request: Request, archive_id: str) -> Response:
        """Run an archive within half a minute, regardless of its schedule.

        While the topic has masks, this lets an archive without `may_unmask` read it, which takes `messages:unmask`.
        """
        archive = access.archive(self.actor, archive_id, lock=True)
        return self.one(services.run_now(acting=self.actor, archive=archive), ArchiveOut)


class ArchiveFileCollection(ApiView):
    tag = "Archives"

    @endpoint("list_archive_files", Scope.ARCHIVES_READ, page_item=ArchiveFileOut)
    def get(self, request: Request, archive_id: str) -> Response:
        """List the files of an archive. Other files in its folder belong to unfinished runs. A table has none."""
        archive = access.archive(self.actor, archive_id)
        return self.page(access.archive_files_of(archive), ArchiveFileOut, order=("id",))
