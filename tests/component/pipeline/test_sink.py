"""Writes to real PostgreSQL (`billing.pipeline.sink`): rows, counters and offsets atomically."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from billing import dsn
from billing.models import UsageCounter, UsageDay, UsageHour, UsageMinute, UsageOffset
from billing.pipeline import schema, sink
from brokers.contract.usage import COUNTER_KEY

pytestmark = pytest.mark.django_db(transaction=True)

CLUSTER = "cl-aaaaaaaa"
KEY = ("orders", "ANONYMOUS", "etl", "produce")


def minute_table(*rows):
    return schema.table(schema.columns(schema.MINUTE_NAMES), rows)


def counter_table(*rows):
    return schema.table(schema.COUNTER, rows)


def key_table(*rows):
    return schema.table(schema.columns(COUNTER_KEY), rows)


def commit(connection, *, start, stop, minute_bytes=0, counter=(1, 0), before_commit=None):
    sequence, total = counter
    sink.commit(
        connection,
        cluster_id=CLUSTER,
        start={0: start},
        stop={0: stop},
        minutes=minute_table(*([("ins-aaaaaaaa", 60_000, *KEY, minute_bytes, 1)] if minute_bytes else [])),
        counters=counter_table((1, 7, "ins-aaaaaaaa", *KEY, sequence, total, 1)),
        before_commit=before_commit,
    )


def stored():
    return (
        list(UsageMinute.objects.values_list("bytes", flat=True)),
        list(UsageCounter.objects.values_list("sequence", "bytes")),
        list(UsageOffset.objects.values_list("partition", "next_offset")),
    )


def test_two_runs_add_up_in_the_same_minute():
    with sink.exclusive(dsn.conninfo(), CLUSTER) as connection:
        commit(connection, start=0, stop=5, minute_bytes=100, counter=(1, 100))
        commit(connection, start=5, stop=9, minute_bytes=50, counter=(2, 150))
        assert sink.stored_offsets(connection, CLUSTER) == {0: 9}
        keys = key_table((1, 8, "ins-aaaaaaaa", *KEY), (1, 7, "ins-aaaaaaaa", *KEY), (1, 7, "ins-bbbbbbbb", *KEY))
        found = sink.stored_counters(connection, CLUSTER, keys)
        assert [tuple(row.values()) for row in found.to_pylist()] == [(None,) * 3, (2, 150, 1), (None,) * 3]
        assert sink.stored_counters(connection, "cl-bbbbbbbb", keys).column("sequence").null_count == 3
        assert sink.stored_counters(connection, CLUSTER, keys.slice(0, 0)).num_rows == 0
    assert stored() == ([150], [(2, 150)], [(0, 9)])


def test_a_run_that_dies_before_its_commit_leaves_nothing():
    class Killed(Exception):
        pass

    def die():
        raise Killed

    with sink.exclusive(dsn.conninfo(), CLUSTER) as connection:
        commit(connection, start=0, stop=5, minute_bytes=100, counter=(1, 100))
        with pytest.raises(Killed):
            commit(connection, start=5, stop=9, minute_bytes=50, counter=(2, 150), before_commit=die)
    assert stored() == ([100], [(1, 100)], [(0, 5)])


def test_a_run_planned_from_other_offsets_writes_nothing():
    with sink.exclusive(dsn.conninfo(), CLUSTER) as connection:
        commit(connection, start=0, stop=5, minute_bytes=100, counter=(1, 100))
        with pytest.raises(sink.OffsetsMoved, match="stored 5, planned 0"):
            commit(connection, start=0, stop=5, minute_bytes=100, counter=(1, 100))
    assert stored() == ([100], [(1, 100)], [(0, 5)])


def test_an_old_counter_never_replaces_a_later_one():
    with sink.exclusive(dsn.conninfo(), CLUSTER) as connection:
        commit(connection, start=0, stop=5, counter=(9, 900))
        commit(connection, start=5, stop=6, counter=(3, 300))
    assert stored()[1] == [(9, 900)]


def test_only_one_run_of_a_cluster_works_at_a_time_and_a_dead_one_frees_its_place():
    with sink.exclusive(dsn.conninfo(), CLUSTER) as first:
        with pytest.raises(sink.PipelineBusy), sink.exclusive(dsn.conninfo(), CLUSTER):
            pass
        with sink.exclusive(dsn.conninfo(), "cl-bbbbbbbb"):
            pass
        with psycopg.connect(dsn.conninfo(), autocommit=True) as other:
            # It answers when the process has gone, and its locks with it.
            other.execute("SELECT pg_terminate_backend(%s, 10000)", (first.info.backend_pid,))
        with sink.exclusive(dsn.conninfo(), CLUSTER) as second:
            assert sink.stored_offsets(second, CLUSTER) == {}


def test_levels_are_sums_of_hours_and_no_minutes():
    with sink.exclusive(dsn.conninfo(), CLUSTER) as connection:
        for number in range(2):
            sink.commit(
                connection,
                cluster_id=CLUSTER,
                start={0: number},
                stop={0: number + 1},
                minutes=minute_table(
                    ("ins-aaaaaaaa", 60_000 * number, "", "", "", "partitions", 180, 1),
                    ("ins-aaaaaaaa", 60_000 * number, *KEY, 7, 1),
                ),
                counters=counter_table((1, 7, "ins-aaaaaaaa", "", "", "", "partitions", number, 180 * number, 1)),
            )
    assert set(UsageHour.objects.values_list("direction", "bytes")) == {("partitions", 360), ("produce", 14)}
    assert set(UsageMinute.objects.values_list("direction", flat=True)) == {"produce"}


def test_days_and_hours_are_the_sums_of_their_minutes_in_whatever_runs_they_came():
    drawn = random.Random(5)
    names = [(f"t{number % 3}", f"u{number % 2}", "etl", ("produce", "consume")[number % 2]) for number in range(6)]
    end = 0
    with sink.exclusive(dsn.conninfo(), CLUSTER) as connection:
        for _ in range(4):
            at = {(drawn.randrange(3 * 24 * 60), drawn.choice(names)) for _ in range(200)}
            minutes = [("ins-aaaaaaaa", minute * 60_000, *key, drawn.randrange(1, 10**9), 1) for minute, key in at]
            sink.commit(
                connection, cluster_id=CLUSTER, start={0: end}, stop={0: end + 1}, minutes=minute_table(*minutes),
                counters=counter_table(),
            )  # fmt: skip
            end += 1
    by_day, by_hour = Counter(), Counter()
    for row in UsageMinute.objects.values_list("minute", "topic", "user", "client_id", "direction", "bytes"):
        by_day[row[0].astimezone(UTC).date(), *row[1:5]] += row[5]
        by_hour[row[0].replace(minute=0), row[4]] += row[5]
    days = UsageDay.objects.values_list("day", "topic", "user", "client_id", "direction", "bytes")
    assert {row[:5]: row[5] for row in days} == by_day
    assert {row[:2]: row[2] for row in UsageHour.objects.values_list("hour", "direction", "bytes")} == by_hour
    assert len(by_day) == 3 * len(names)


@pytest.mark.parametrize("is_analyzed", [False, True])
def test_each_stored_counter_is_looked_up_in_the_index(is_analyzed):
    """The planner knows little of a new cluster: it once expected a few counters, and compared them with all keys."""
    names = [f"t{number}" for number in range(6_000)]
    keys = [(1, 7, "ins-aaaaaaaa", name, "u", "c", "produce") for name in names]
    with sink.exclusive(dsn.conninfo(), CLUSTER) as connection:
        counters = counter_table(*((*key, 5, 100, 1) for key in keys[:4_000]))
        sink.commit(connection, cluster_id=CLUSTER, start={}, stop={0: 1}, minutes=minute_table(), counters=counters)
        if is_analyzed:
            connection.execute("ANALYZE billing_usagecounter")
        with connection.transaction():
            found = sink.stored_counters(connection, CLUSTER, key_table(*keys[2_000:]))
            scans = connection.execute(
                "SELECT seq_scan, idx_scan, idx_tup_fetch FROM pg_stat_xact_all_tables"
                " WHERE relname = 'billing_usagecounter'"
            ).fetchone()
            keys_read = connection.execute(
                "SELECT seq_scan FROM pg_stat_xact_all_tables WHERE relname = 'key_in'"
            ).fetchone()
    assert found.column("sequence").null_count == 2_000
    sequential, looks, fetched = scans
    # A look for each key that fetches the counter alone, and one read of the keys.
    assert (sequential, fetched, keys_read) == (0, 2_000, (1,))
    assert looks >= 4_000


@given(
    st.lists(
        st.tuples(*[st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=8)] * 3),
        min_size=1, max_size=20, unique=True,
    )
)  # fmt: skip
@example([("\n\\.\n", "\t\\N", '\\"'), ("\\.", "\\\\", "\r\n"), ("\\N", "", "\x7f\u2028")])
def test_names_of_any_characters_are_stored_and_found_as_they_are(names):
    keys = [(1, 7, "ins-aaaaaaaa", *name, "produce") for name in names]
    with sink.exclusive(dsn.conninfo(), CLUSTER) as connection:
        connection.execute("TRUNCATE billing_usagecounter, billing_usageoffset")
        counters = counter_table(*((*key, 5, 100 + number, number) for number, key in enumerate(keys)))
        sink.commit(
            connection, cluster_id=CLUSTER, start={}, stop={0: 1}, minutes=minute_table(), counters=counters
        )  # fmt: skip
        found = sink.stored_counters(connection, CLUSTER, key_table(*keys))
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (5, 100 + number, number) for number in range(len(keys))
    ]
    assert set(UsageCounter.objects.values_list("topic", "user", "client_id")) == set(names)
