"""Plan of a run (`billing.pipeline.job.plan`): the offsets that it reads, and the cases in which it refuses."""

import pytest

from billing.models import UsageCounter, UsageMinute
from billing.pipeline import schema
from billing.pipeline.decoding import row_of
from billing.pipeline.job import RECORDS_PER_RUN_MAX, UsageLost, plan
from brokers.contract.usage import NAME_CHARACTERS_MAX, UsageEvent, counted_name


def test_a_partition_never_read_starts_where_its_log_starts():
    assert plan({}, {0: (5, 9), 1: (0, 0)}) == {0: (5, 9)}


def test_a_run_continues_at_the_stored_offset_and_skips_what_is_done():
    assert plan({0: 7, 1: 3}, {0: (5, 9), 1: (0, 3)}) == {0: (7, 9)}


def test_a_long_backlog_is_taken_in_bounded_pieces():
    assert plan({}, {0: (0, 10**9)}) == {0: (0, RECORDS_PER_RUN_MAX)}
    shared = plan({}, dict.fromkeys(range(4), (0, 10**9)))
    assert shared == dict.fromkeys(range(4), (0, RECORDS_PER_RUN_MAX // 4))


@pytest.mark.parametrize("available", [(8, 20), (0, 6)])
def test_offsets_that_vanished_stop_the_pipeline_instead_of_billing_too_little(available):
    with pytest.raises(UsageLost, match="stored offset 7"):
        plan({0: 7}, {0: available})


def test_a_name_no_table_can_hold_is_made_harmless():
    assert counted_name("a\x00b" + "x" * 1000) == "a�b" + "x" * (NAME_CHARACTERS_MAX - 3)
    assert counted_name("\udc80") == "?"


def test_a_usage_event_becomes_a_row_in_the_order_of_the_schema():
    event = UsageEvent(
        broker_id=1, broker_epoch=99, sequence=5, at_ms=10_000, instance_id="ins-aaaaaaaa", topic="orders",
        user="ANONYMOUS", client_id="etl", direction="consume", bytes=123, requests=4,
    )  # fmt: skip
    assert row_of(0, 1, event.to_json()) == (
        0, 1, 1, 99, 5, 10_000, "ins-aaaaaaaa", "orders", "ANONYMOUS", "etl", "consume", 123, 4, None, None,
    )  # fmt: skip


def test_spark_and_the_tables_have_the_columns_of_the_event():
    assert schema.spark_ddl(schema.EVENT) == (
        "partition int, offset long, broker_id int, broker_epoch long, sequence long, at_ms long, "
        "instance_id string, topic string, user string, client_id string, direction string, bytes long, requests long, "
        "problem string, detail string"
    )
    counter = [field.name for field in UsageCounter._meta.fields]
    minute = [field.name for field in UsageMinute._meta.fields]
    assert counter == ["id", "cluster_id", *schema.COUNTER_NAMES]
    assert minute == ["id", *("minute" if name == "minute_ms" else name for name in schema.MINUTE_NAMES)]
