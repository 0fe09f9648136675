"""The steps of the pipeline a second time, as DataFrames of Spark: what those on Arrow columns are compared with."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (its name in every Spark text)

from billing.pipeline.schema import CLOCK, COUNTER_NAMES, MINUTE_KEY, MINUTE_NAMES
from brokers.contract.usage import COUNTER_KEY

MS_PER_MINUTE = 60_000
# A minute has so much at most: sums of what brokers may say do not outgrow 64 bits.
MINUTE_MAX = 2**62


def well_formed(events: DataFrame) -> DataFrame:
    """Drops records that are no usage events, or not to be counted. One whose clock was wrong has another time."""
    return events.where(F.col("problem").isNull() | (F.col("problem") == CLOCK))


def distinct_reports(events: DataFrame) -> DataFrame:
    """One row per key and sequence; of repeats the largest counter, which is the latest.

    Reports of one counter are brought together once, for this step and for those behind it.
    """
    return (
        events.repartition(*COUNTER_KEY)
        .groupBy(*COUNTER_KEY, "sequence")
        .agg(F.max("at_ms").alias("at_ms"), F.max("bytes").alias("bytes"), F.max("requests").alias("requests"))
        .select(*COUNTER_KEY, "sequence", "at_ms", "bytes", "requests")
    )


def increments(reports: DataFrame, counters: DataFrame) -> DataFrame:
    """Returns what each report adds to the one before it; before the first one stands the stored counter, or zero.

    `counters` has the columns of `schema.COUNTER`. Reports below the stored sequence are old news. One that is said
    again under the stored sequence counts as far as it is larger: it was appended in part, and said again later. A
    counter never falls within one broker incarnation; should one, it adds nothing.
    """
    stored = counters.select(
        *COUNTER_KEY,
        F.col("sequence").alias("stored_sequence"),
        F.col("bytes").alias("stored_bytes"),
        F.col("requests").alias("stored_requests"),
    )
    in_order = Window.partitionBy(*COUNTER_KEY).orderBy("sequence")
    is_larger = (F.col("bytes") > F.col("stored_bytes")) | (F.col("requests") > F.col("stored_requests"))
    is_unseen = (
        F.col("stored_sequence").isNull()
        | (F.col("sequence") > F.col("stored_sequence"))
        | ((F.col("sequence") == F.col("stored_sequence")) & is_larger)
    )

    def added(name: str) -> Column:
        before = F.coalesce(F.lag(name).over(in_order), F.col(f"stored_{name}"), F.lit(0))
        return F.greatest(F.col(name) - before, F.lit(0))

    return (
        reports.join(F.broadcast(stored), on=[*COUNTER_KEY], how="left")
        .where(is_unseen)
        .select(
            *COUNTER_KEY,
            "sequence",
            "at_ms",
            "bytes",
            "requests",
            added("bytes").alias("added_bytes"),
            added("requests").alias("added_requests"),
        )
    )


def minutes(rows: DataFrame) -> DataFrame:
    """Increments summed per UTC minute; a report made on the stroke of a minute belongs to the one that just ended."""
    minute_ms = F.floor((F.col("at_ms") - 1) / MS_PER_MINUTE) * MS_PER_MINUTE
    return (
        rows.withColumn("minute_ms", minute_ms.cast("long"))
        .groupBy(*MINUTE_KEY)
        .agg(_sum("added_bytes").alias("bytes"), _sum("added_requests").alias("requests"))
        .where((F.col("bytes") > 0) | (F.col("requests") > 0))
        .select(*MINUTE_NAMES)
    )


def _sum(name: str) -> Column:
    most = F.lit(MINUTE_MAX)
    return F.least(F.coalesce(F.try_sum(name), most), most)


def last_counters(rows: DataFrame) -> DataFrame:
    """The highest report per key: the stored counter of the next run. Gives `schema.COUNTER`."""
    return (
        rows.groupBy(*COUNTER_KEY)
        .agg(
            F.max("sequence").alias("sequence"),
            F.max_by("bytes", "sequence").alias("bytes"),
            F.max_by("requests", "sequence").alias("requests"),
        )
        .select(*COUNTER_NAMES)
    )
