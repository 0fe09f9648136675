"""Limits of reading and sending messages through the control plane. Pure."""

from __future__ import annotations

from typing import Final

PAGE_MESSAGES_DEFAULT: Final = 50
PAGE_MESSAGES_MAX: Final = 500
# Partitions that one page reads; its token holds an offset for each of them and has to fit into an address.
PAGE_PARTITIONS_MAX: Final = 100
FILTER_CHARS_MAX: Final = 200
# Characters of keys, values and headers: a page ends before the message that exceeds them, never before its first.
PAGE_SHOWN_BYTES_MAX: Final = 4_000_000
# A longer key, value or header value is cut, and its full size is shown beside it; that of a page with `limit=1` is cut
# at the second limit.
SHOWN_BYTES_MAX: Final = 65_536
SHOWN_BYTES_ALONE_MAX: Final = 4_000_000
HEADERS_SHOWN_MAX: Final = 100
# Larger values are not parsed for path filters, and are hidden as a whole where one of their fields is masked.
JSON_PARSED_BYTES_MAX: Final = 1_000_000
MASKS_PER_TOPIC_MAX: Final = 50
MASKS_PER_INSTANCE_MAX: Final = 2_000
MASK_CHARS_MAX: Final = 250

# Work of one page: bytes that brokers send, bytes that these inflate to, records looked at, and the time of a web
# thread. A page that reaches one of them ends early, with the token of the next page.
READ_BYTES_MAX: Final = 8_000_000
INFLATED_BYTES_MAX: Final = 32_000_000
SCANNED_RECORDS_MAX: Final = 50_000
READ_S_MAX: Final = 1.5
# The same limits for a page with a filter, which may skip messages without decoding them. The time is less than a
# second, so that a page whose reader has left ends soon.
SCAN_READ_BYTES_MAX: Final = 32_000_000
SCAN_RECORDS_MAX: Final = 500_000
SCAN_S_MAX: Final = 0.9
# Bytes after which the console asks the user before it reads more pages.
SCAN_BYTES_MAX: Final = 100_000_000
# Bytes read ahead for the markers of transactions that are complete behind an open one.
MARKER_SCAN_BYTES_MAX: Final = 2_000_000
# Pages read at once by one web process, in all and for one tenant; other reads wait for `READ_WAIT_S_MAX`, and are then
# refused.
READS_AT_ONCE_MAX: Final = 3
READS_AT_ONCE_PER_TENANT_MAX: Final = 1
READ_WAIT_S_MAX: Final = 1.0

# Live messages: open streams of one web process, in all, of a tenant and of an instance. Each ends after
# `STREAM_S_MAX`, and its reader connects again, if still signed in. A step reads `STREAM_STEP_MESSAGES_MAX` messages.
STREAMS_MAX: Final = 100
STREAMS_PER_TENANT_MAX: Final = 6
STREAMS_PER_INSTANCE_MAX: Final = 3
# Steps of streams that read at once. Pages have another limit, so that a tenant with a stream can still read pages.
STREAM_READS_AT_ONCE_MAX: Final = 2
STREAM_S_MAX: Final = 60.0
STREAM_STEP_MESSAGES_MAX: Final = 100
STREAM_STEP_EVERY_S: Final = 1.0
# A step that did not reach the end of the topic is followed by the next one after this time.
STREAM_STEP_SOON_S: Final = 0.1
STREAM_HEARTBEAT_S: Final = 10.0

SENT_MESSAGES_MAX: Final = 100
SENT_BYTES_MAX: Final = 1_000_000
# A key is hashed to choose its partition, which takes time in proportion to its length.
SENT_KEY_CHARS_MAX: Final = 65_536
SENT_HEADERS_MAX: Final = 100
SENT_HEADER_KEY_CHARS_MAX: Final = 1_000
