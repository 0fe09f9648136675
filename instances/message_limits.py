"""Limits of messages, their filters, streams and schemas, as `/limits` lists them."""

from __future__ import annotations

from instances.messages import limits as message_limits
from instances.messages import patterns
from instances.messages.schemas import limits as schema_limits
from instances.messages.value_filter import PROGRAM_CHARS_MAX, STEPS_MAX
from tenants.limits import Limit


def limits_of_messages() -> tuple[Limit, ...]:
    """Returns the limits in the order of `/limits`."""
    return *_message_limits(), *_schema_limits(), *_stream_limits()


def _schema_limits() -> tuple[Limit, ...]:
    return (
        Limit(
            "schema_chars_max", schema_limits.SCHEMA_CHARS_MAX, "characters", "A schema of a topic's keys or values."
        ),
        Limit("schema_types_max", schema_limits.SCHEMA_TYPES_MAX, "types", "Types and fields of one schema."),
        Limit("schema_depth_max", schema_limits.SCHEMA_DEPTH_MAX, "levels", "Nesting of the types of one schema."),
        Limit("schemas_per_topic_max", schema_limits.SCHEMAS_PER_TOPIC_MAX, "schemas", "Schemas of one topic."),
        Limit(
            "schemas_per_instance_max",
            schema_limits.SCHEMAS_PER_INSTANCE_MAX,
            "schemas",
            "Schemas of all topics together.",
        ),
        Limit(
            "decoded_bytes_max", schema_limits.DECODED_BYTES_MAX, "bytes", "Key or value that is decoded by a schema."
        ),
        Limit(
            "decoded_values_max",
            schema_limits.DECODED_VALUES_MAX,
            "values",
            "Fields and elements of a decoded key or value.",
        ),
        Limit(
            "decoded_chars_max",
            schema_limits.DECODED_CHARS_MAX,
            "characters",
            "Names and texts of a decoded key or value.",
        ),
        Limit("decoded_depth_max", schema_limits.DECODED_DEPTH_MAX, "levels", "Nesting of a decoded key or value."),
        Limit("masks_per_topic_max", message_limits.MASKS_PER_TOPIC_MAX, "masks", "Masked fields of one topic."),
        Limit("masks_per_instance_max", message_limits.MASKS_PER_INSTANCE_MAX, "masks", "Masked fields of all topics."),
        Limit("mask_chars_max", message_limits.MASK_CHARS_MAX, "characters", "Path of a masked field."),
    )


def _stream_limits() -> tuple[Limit, ...]:
    return (
        Limit(
            "message_streams_per_tenant_max",
            message_limits.STREAMS_PER_TENANT_MAX,
            "streams",
            "Streams of live messages of one tenant at once, by web process.",
        ),
        Limit(
            "message_streams_per_instance_max",
            message_limits.STREAMS_PER_INSTANCE_MAX,
            "streams",
            "Streams of live messages of one instance at once, by web process.",
        ),
        Limit(
            "message_stream_seconds_max",
            int(message_limits.STREAM_S_MAX),
            "seconds",
            "How long a stream of live messages lasts; its reader goes on with `Last-Event-ID`.",
        ),
        Limit(
            "message_stream_step_max",
            message_limits.STREAM_STEP_MESSAGES_MAX,
            "messages",
            "Messages of a stream at once.",
        ),
    )


def _message_pattern_limits() -> tuple[Limit, ...]:
    return (
        Limit(
            "message_pattern_chars_max",
            message_limits.FILTER_CHARS_MAX,
            "characters",
            "A text or regular expression that messages are filtered by.",
        ),
        Limit(
            "message_pattern_size_max",
            patterns.PROGRAM_SIZE_MAX,
            "instructions",
            "What such an expression compiles to: about one for each character and each repetition of it.",
        ),
        Limit(
            "message_pattern_searched_bytes_max",
            patterns.SEARCHED_BYTES_MAX,
            "bytes",
            "Part of a key or value that is searched for an expression; less for an expression of more than "
            f"{patterns.WORK_MAX // patterns.SEARCHED_BYTES_MAX} instructions.",
        ),
    )


def _message_page_limits() -> tuple[Limit, ...]:
    return (
        Limit("message_page_max", message_limits.PAGE_MESSAGES_MAX, "messages", "Messages in one page of a topic."),
        Limit(
            "message_page_partitions_max",
            message_limits.PAGE_PARTITIONS_MAX,
            "partitions",
            "Partitions that one page reads; of a topic with more, one is named.",
        ),
        Limit("message_page_read_bytes_max", message_limits.READ_BYTES_MAX, "bytes", "What brokers send for one page."),
        Limit(
            "message_page_inflated_bytes_max",
            message_limits.INFLATED_BYTES_MAX,
            "bytes",
            "What compressed batches of one page inflate to; a batch that is larger alone is not shown.",
        ),
        Limit(
            "message_page_scanned_max",
            message_limits.SCANNED_RECORDS_MAX,
            "messages",
            "Messages looked at for one page.",
        ),
        Limit(
            "message_page_milliseconds_max", int(message_limits.READ_S_MAX * 1000), "ms", "How long one page is read."
        ),
        Limit(
            "message_scan_read_bytes_max",
            message_limits.SCAN_READ_BYTES_MAX,
            "bytes",
            "What brokers send for one page with a filter.",
        ),
        Limit(
            "message_scan_scanned_max",
            message_limits.SCAN_RECORDS_MAX,
            "messages",
            "Messages looked at for one page with a filter.",
        ),
        Limit(
            "message_scan_milliseconds_max",
            int(message_limits.SCAN_S_MAX * 1000),
            "ms",
            "How long one page with a filter is read.",
        ),
        Limit(
            "message_shown_bytes_max",
            message_limits.SHOWN_BYTES_MAX,
            "bytes",
            "Part of a key, value or header that a page shows; a page with `limit=1` shows more.",
        ),
        Limit(
            "message_page_shown_bytes_max",
            message_limits.PAGE_SHOWN_BYTES_MAX,
            "bytes",
            "Keys, values and headers of one page.",
        ),
    )


def _message_limits() -> tuple[Limit, ...]:
    return (
        *_message_page_limits(),
        Limit("message_filter_chars_max", PROGRAM_CHARS_MAX, "characters", "A filter by path (`jq`)."),
        Limit(
            "message_filter_steps_max",
            STEPS_MAX,
            "steps",
            "Steps of such a filter for one message; a message that takes more does not match.",
        ),
        *_message_pattern_limits(),
        Limit(
            "message_parsed_bytes_max",
            message_limits.JSON_PARSED_BYTES_MAX,
            "bytes",
            "JSON that filters by path look into. A larger value with masked fields is hidden as a whole.",
        ),
        Limit(
            "sent_messages_max",
            message_limits.SENT_MESSAGES_MAX,
            "messages",
            "Messages in one request that sends them.",
        ),
        Limit("sent_key_chars_max", message_limits.SENT_KEY_CHARS_MAX, "characters", "Key of such a message."),
        Limit("sent_headers_max", message_limits.SENT_HEADERS_MAX, "headers", "Headers of such a message."),
    )
