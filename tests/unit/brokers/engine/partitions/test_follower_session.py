"""What a leader remembers of a follower's requests (WIRE-30, REP-10)."""

from __future__ import annotations

from pathlib import Path

from brokers.engine.partitions.follower_session import FollowerSession
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records import error_codes

NOW_MS = 1_700_000_000_000
TOPIC_ID = b"t" * 16
KEY = (TOPIC_ID, 0)
REPLICA = 2


def test_a_partition_that_was_deleted_and_made_again_is_found_again(tmp_path: Path) -> None:
    """REP-32: a move took the replica away from this broker, the next one brought it back, to lead."""
    table = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c"))
    table.recover(NOW_MS)
    session = FollowerSession(1, REPLICA, 7)
    before = table.become_follower(
        "t", 0, TOPIC_ID, 5, {}, leader=REPLICA, replicas=(1, REPLICA), isr=(REPLICA,), now_ms=NOW_MS
    )
    assert not session.asks(KEY, (0, 6, 0, -1, 0, 1_000), before, NOW_MS)
    line = session.lines[KEY]
    assert line.code == error_codes.UNKNOWN_LEADER_EPOCH
    assert line.partition is None, "what was refused is looked for anew"

    table.delete("t", 0, now_ms=NOW_MS)
    after = table.become_leader("t", 0, TOPIC_ID, 6, {}, now_ms=NOW_MS, replicas=(1, REPLICA), isr=(1,))
    session.asks(KEY, (0, 6, 0, -1, 0, 1_000), after, NOW_MS)
    assert (line.code, line.partition) == (0, after)
    table.close()
