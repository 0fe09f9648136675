"""Descriptors for logs are reserved: a log that cannot be opened takes its disk offline (LOG-3)."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from brokers.engine.config import CONNECTIONS_MAX
from brokers.engine.lifecycle import RESERVED_DESCRIPTORS, limit_connections
from brokers.engine.partitions.log_flusher import FLUSHED_LOGS_MAX
from brokers.engine.storage.files import OPEN_FILES_MAX

# Of a log that is flushed: two segments, their indexes, epochs, its id, its directory.
OPENED_PER_FLUSH = 12


@pytest.mark.parametrize(
    ("descriptors", "granted"),
    [(1_000, 500), (4_096, 2_096), (CONNECTIONS_MAX, CONNECTIONS_MAX - RESERVED_DESCRIPTORS)],
)
def test_connections_leave_descriptors_for_the_logs(descriptors: int, granted: int) -> None:
    with capture_logs() as written:
        assert limit_connections(descriptors, CONNECTIONS_MAX) == granted
    assert [line["event"] for line in written] == ["connections_limited"]


def test_where_there_is_room_for_all_connections_all_are_granted() -> None:
    with capture_logs() as written:
        assert limit_connections(CONNECTIONS_MAX + RESERVED_DESCRIPTORS, CONNECTIONS_MAX) == CONNECTIONS_MAX
    assert written == []


def test_the_kept_descriptors_are_enough_for_the_logs() -> None:
    assert RESERVED_DESCRIPTORS > OPEN_FILES_MAX + FLUSHED_LOGS_MAX * OPENED_PER_FLUSH
