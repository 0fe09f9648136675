"""Serializers of message endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers

from instances.messages import content, files, limits, start
from instances.messages.interfaces import (
    ABORT,
    ABORTED,
    COMMIT,
    COMMITTED,
    DAMAGED,
    OPEN,
    OTHER_MARKER,
    TOO_LARGE,
    NewMessage,
    SendResult,
)
from instances.messages.patterns import SEARCHED_BYTES_MAX
from instances.messages.record_filter import RecordFilter, UnusableFilter, texts_from
from instances.messages.value_filter import PROGRAM_CHARS_MAX
from instances.services.messages import MessagePage, ShownMessage
from instances.topics.limits import PARTITIONS_PER_TOPIC_MAX
from tenants.api.strict import Choice, Instant, Integer, StrictSerializer, Text
from tenants.limits import PAGE_TOKEN_CHARS_MAX

CREATE_TIME, APPEND_TIME = "create", "log_append"
START_CHARS_MAX = 64


class StreamQuery(StrictSerializer):
    """Filters of messages, and the format in which they are shown."""

    partition = serializers.IntegerField(
        required=False, min_value=0, max_value=PARTITIONS_PER_TOPIC_MAX, help_text="One partition; all without it."
    )
    contains = Text(
        required=False, max_length=limits.FILTER_CHARS_MAX, help_text="Text that is in the key or the value, as it is."
    )
    key_contains = Text(required=False, max_length=limits.FILTER_CHARS_MAX, help_text="Text that is in the key.")
    header_contains = Text(
        required=False,
        max_length=limits.FILTER_CHARS_MAX,
        help_text="Text that is in one of the headers, each written as `name: value`.",
    )
    matches = Text(
        required=False,
        max_length=limits.FILTER_CHARS_MAX,
        help_text="Regular expression of RE2 that is found in the key or the value; `^` and `$` are its ends. It looks "
        f"into the first {SEARCHED_BYTES_MAX:,} bytes, and into fewer if it repeats much.",
    )
    key_matches = Text(
        required=False, max_length=limits.FILTER_CHARS_MAX, help_text="Regular expression that is found in the key."
    )
    jq = Text(
        required=False,
        max_length=PROGRAM_CHARS_MAX,
        help_text="Filter of JSON, Avro and Protobuf values by a part of jq: paths, comparisons, `and`, `or`, `not`, "
        "`select`, `length`, `has`, `contains`, `startswith`, `endswith`, `test`, and `$key`, `$headers`, "
        "`$partition`, `$offset`, `$timestamp`. A message matches if any output is neither false nor null.",
    )
    decode = Choice(
        required=False,
        choices=content.SHOWN_AS,
        help_text="How keys and values are shown; `auto` takes the topic's schemas, else JSON, text or hex. Bytes that "
        "do not have the format are shown as hex, and `format` says so.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        try:
            RecordFilter(texts_from(attrs))
        except UnusableFilter as error:
            raise serializers.ValidationError({error.name: str(error)}) from None
        return attrs


class MessageQuery(StreamQuery):
    start = Text(
        required=False,
        max_length=START_CHARS_MAX,
        help_text="`newest` (the default; reads towards older messages), `oldest`, `offset:N`, or "
        "`time:2026-01-31T12:00:00Z`: the first message that is not older.",
    )
    limit = serializers.IntegerField(
        required=False, min_value=1, max_value=limits.PAGE_MESSAGES_MAX, help_text="Messages at most; 50 without it."
    )
    page_token = Text(
        required=False, max_length=PAGE_TOKEN_CHARS_MAX, help_text="`next_page_token` of the page before."
    )

    def validate_start(self, text: str) -> str:
        try:
            start.parse(text)
        except start.WrongStart as error:
            raise serializers.ValidationError(str(error)) from None
        return text


class FileQuery(MessageQuery):
    form = Choice(
        required=False,
        choices=files.FILE_FORMATS,
        help_text="`jsonl` (the default): a message a line, as `list_messages` answers it. `csv`: texts that a "
        "spreadsheet would run as a formula begin with an apostrophe. `zip`: the values as they are stored, up to "
        f"{limits.PAGE_SHOWN_BYTES_MAX:,} bytes, and the messages as JSON lines. `value`: the value of the first "
        "message, as it is stored.",
    )


class ContentOut(serializers.Serializer):
    """A key, a value or a header's value, with its bytes shown as text."""

    format = serializers.ChoiceField(
        choices=content.SHOWN_FORMATS,
        help_text="`null`: there are no bytes at all; of a value, that is a tombstone. `avro` and `protobuf`: `data` "
        "is JSON. `masked`: the caller may see nothing of it.",
    )
    data = serializers.CharField(allow_null=True)
    bytes = serializers.IntegerField(help_text="Size of what is stored.")
    truncated = serializers.BooleanField(
        help_text=f"`data` is the beginning alone: more than {limits.SHOWN_BYTES_MAX:,} bytes, or with `limit=1` "
        f"{limits.SHOWN_BYTES_ALONE_MAX:,}."
    )
    schema_id = serializers.IntegerField(allow_null=True, help_text="Id in Confluent's header, of what has one.")
    problem = serializers.SerializerMethodField(
        help_text="Why no schema shows it: `no_schema`, `damaged` (it is not of the schema) or `too_large`."
    )
    masked = serializers.BooleanField(source="is_masked", help_text="The topic masks fields of it from the caller.")

    def get_problem(self, shown: content.Content) -> str | None:
        return shown.problem or None


class HeaderOut(serializers.Serializer):
    key = serializers.CharField(help_text="Bytes that are no UTF-8 are written as `\\xff`.")
    value = ContentOut()


class TransactionStateOut(serializers.Serializer):
    producer_id = serializers.IntegerField()
    state = serializers.ChoiceField(
        choices=(OPEN, COMMITTED, ABORTED),
        allow_null=True,
        help_text="null: it has ended, and how lies too far behind an open transaction to be read with this page.",
    )


class MessageOut(serializers.Serializer):
    """A stored message, or the marker that ends a transaction in this partition."""

    partition = serializers.IntegerField(source="record.partition")
    offset = serializers.IntegerField(source="record.offset")
    timestamp = serializers.SerializerMethodField(help_text="null: there is none, or no calendar has it.")
    timestamp_ms = serializers.IntegerField(source="record.timestamp_ms", help_text="Milliseconds since 1970, or -1.")
    timestamp_type = serializers.SerializerMethodField(help_text=f"`{CREATE_TIME}` or `{APPEND_TIME}`.")
    key = ContentOut()
    value = ContentOut()
    headers = serializers.SerializerMethodField()
    header_count = serializers.IntegerField(
        source="record.header_count",
        help_text=f"Headers of the message, of which {limits.HEADERS_SHOWN_MAX} are shown.",
    )
    transaction = TransactionStateOut(source="record.transaction", allow_null=True)
    marker = serializers.ChoiceField(
        source="record.marker",
        choices=(COMMIT, ABORT, OTHER_MARKER),
        allow_null=True,
        help_text="How a transaction ended; clients never see such a record. null: a message.",
    )

    def get_timestamp(self, shown: ShownMessage) -> str | None:
        instant = datetime_of(shown.record.timestamp_ms)
        return None if instant is None else instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def get_timestamp_type(self, shown: ShownMessage) -> str:
        return APPEND_TIME if shown.record.is_append_time else CREATE_TIME

    def get_headers(self, shown: ShownMessage) -> Any:
        return HeaderOut([{"key": key, "value": value} for key, value in shown.headers], many=True).data


class UnreadableOut(serializers.Serializer):
    """A batch whose messages are not shown."""

    partition = serializers.IntegerField()
    offset = serializers.IntegerField()
    last_offset = serializers.IntegerField()
    reason = serializers.ChoiceField(
        choices=(TOO_LARGE, DAMAGED),
        help_text=f"`{TOO_LARGE}`: it inflates to more than {limits.INFLATED_BYTES_MAX:,} bytes.",
    )


class MessagePageOut(serializers.Serializer):
    """One page, which may be short or empty without being the last: continue while there is a token."""

    messages = MessageOut(many=True)
    scanned = serializers.IntegerField(help_text="Messages looked at for this page.")
    reached = serializers.SerializerMethodField(help_text="Offset by partition at which the next page begins.")
    unavailable_partitions = serializers.ListField(
        child=serializers.IntegerField(), source="unavailable", help_text="Nobody leads these at the instant."
    )
    unreadable = UnreadableOut(many=True)
    next_page_token = serializers.CharField(source="next_token", allow_null=True)

    def get_reached(self, page: MessagePage) -> dict[str, int]:
        return {str(partition): offset for partition, offset in page.reached.items()}


class HeaderIn(StrictSerializer):
    key = Text(max_length=limits.SENT_HEADER_KEY_CHARS_MAX)
    value = Text(max_length=limits.SENT_BYTES_MAX, allow_blank=True, allow_null=True, help_text="UTF-8.")


class NewMessageIn(StrictSerializer):
    """A message to send. Without `value` it is a tombstone."""

    key = Text(required=False, max_length=limits.SENT_KEY_CHARS_MAX, allow_blank=True, allow_null=True)
    value = Text(required=False, max_length=limits.SENT_BYTES_MAX, allow_blank=True, allow_null=True)
    headers = serializers.ListField(child=HeaderIn(), required=False, max_length=limits.SENT_HEADERS_MAX)
    partition = Integer(
        required=False,
        min_value=0,
        max_value=PARTITIONS_PER_TOPIC_MAX,
        help_text="Without it the key decides, as in Kafka's own clients.",
    )
    timestamp = Instant(required=False, help_text="Now, without it.")
    key_format = Choice(required=False, choices=content.SENT_AS, help_text="`text` without it.")
    value_format = Choice(required=False, choices=content.SENT_AS, help_text="`text` without it; `json` is checked.")

    def validate_timestamp(self, instant: datetime) -> datetime:
        if start.to_ms(instant) < 0:
            raise serializers.ValidationError("Times begin with 1970.")
        return instant

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        for name in ("key", "value"):
            try:
                attrs[name] = content.to_bytes(attrs.get(name), attrs.pop(f"{name}_format", content.TEXT))
            except content.Unwritable as error:
                raise serializers.ValidationError({name: str(error)}) from None
        return attrs


class MessagesIn(StrictSerializer):
    messages = serializers.ListField(child=NewMessageIn(), min_length=1, max_length=limits.SENT_MESSAGES_MAX)


class SendResultOut(serializers.Serializer):
    """The position of a stored message. Results have the order in which the messages were sent."""

    partition = serializers.IntegerField()
    offset = serializers.IntegerField(allow_null=True, help_text="null with an `error`.")
    error = serializers.SerializerMethodField(help_text="Why this message alone was not stored.")

    def get_error(self, result: SendResult) -> dict[str, str] | None:
        if result.error is None:
            return None
        return {"code": result.error.code, "detail": result.error.detail or result.error.title}


class SendResultsOut(serializers.Serializer):
    results = SendResultOut(many=True)


def new_message(body: Mapping[str, Any]) -> NewMessage:
    """Returns the message to send from the validated fields of `NewMessageIn`."""
    instant = body.get("timestamp")
    return NewMessage(
        key=body["key"],
        value=body["value"],
        headers=[
            (header["key"], None if header["value"] is None else header["value"].encode())
            for header in body.get("headers", ())
        ],
        partition=body.get("partition"),
        timestamp_ms=None if instant is None else start.to_ms(instant),
    )


def datetime_of(timestamp_ms: int) -> datetime | None:
    """Returns a timestamp as datetime in UTC; None for -1 (no timestamp) and beyond the range of datetime."""
    if timestamp_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(timestamp_ms // 1000, UTC).replace(microsecond=timestamp_ms % 1000 * 1000)
    except (ValueError, OverflowError, OSError):
        return None
