"""Processes the usage backlog of every cluster; `tasks` schedules it by beat. Spark is started on demand."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

import structlog
from django.conf import settings

from billing import dsn, selectors
from billing.lake.address import open_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from billing.pipeline.cluster import Cluster

log = structlog.get_logger(__name__)

# A backlog is processed in runs of limited size; a task ends after this number of runs, so that other tasks can run.
RUNS_PER_TASK_MAX = 20
# A stopping Celery worker sends SIGQUIT to the processes of its pool.
ASKED_TO_END = (signal.SIGTERM, signal.SIGQUIT)
EXIT_BY_SIGNAL = 128
SECONDS_PER_MINUTE = 60


def apply_everywhere() -> None:
    """Processes the clusters one after the other; a failure of one does not delay the others.

    The first unexpected exception is raised after all clusters were processed.
    """
    # Imported here because every worker loads this module, but only one runs Spark.
    from confluent_kafka import KafkaException

    from billing.pipeline import job
    from billing.pipeline.sink import PipelineBusy

    unforeseen: Exception | None = None
    for cluster in selectors.usage_sources():
        try:
            _catch_up(cluster)
        except KafkaException as trouble:
            # Unreachable brokers are an external fault: the next run begins where this one did, and the other clusters
            # are processed meanwhile.
            log.warning("usage.unreachable", cluster_id=cluster.cluster_id, reason=str(trouble))
        except PipelineBusy:
            log.info("usage.busy", cluster_id=cluster.cluster_id)
        except job.UsageLost as lost:
            # The other clusters are billed nevertheless; this one needs an operator (docs/how-to/troubleshoot.md).
            log.error("usage.lost", cluster_id=cluster.cluster_id, reason=str(lost))
        except Exception as failure:  # Spark raises its own type for a range its workers cannot read
            log.error("usage.failed", cluster_id=cluster.cluster_id, reason=type(failure).__name__)
            unforeseen = unforeseen or failure
    if unforeseen is not None:
        raise unforeseen


def _catch_up(cluster: Cluster) -> None:
    from billing.pipeline import job

    spark_from_records = settings.SPARK_FROM_RECORDS
    with job.Runs(spark_session, cluster, dsn.conninfo(), lake=open_lake(settings.LAKE_URL)) as runs:
        for _ in range(RUNS_PER_TASK_MAX):
            report = runs.run(spark_from_records)
            if report.records:
                # A record has the values of up to a thousand counters. The backlog is assumed to have as many values
                # per record as this run.
                spark_from_records = settings.SPARK_FROM_RECORDS * report.records // report.values
                log.info(
                    "usage.applied",
                    cluster_id=cluster.cluster_id,
                    records=report.records,
                    values=report.values,
                    minute_rows=report.minute_rows,
                    left_out=report.left_out,
                )
            if report.caught_up:
                return


def spark_session() -> SparkSession:
    """Returns the Spark session of this process. From now on, the process exits immediately on `ASKED_TO_END`."""
    from billing.pipeline import spark

    _end_at_once_when_asked_to()
    local_dir = settings.STATE_DIR / "spark"
    local_dir.mkdir(parents=True, exist_ok=True)
    return spark.session(master=settings.SPARK_MASTER, local_dir=str(local_dir))


def give_spark_back() -> None:
    """Stops Spark and its JVM after they were idle for `SPARK_KEPT_MINUTES`."""
    from billing.pipeline import spark

    if spark.give_back_after(settings.SPARK_KEPT_MINUTES * SECONDS_PER_MINUTE):
        log.info("spark.given_back")


def _end_at_once_when_asked_to() -> None:
    """Installs signal handlers that end the process immediately.

    Celery would raise SystemExit; but Python handles it only after a call into Java has returned, and a run that waits
    for stopped brokers does not return.
    """
    if threading.current_thread() is threading.main_thread():
        for number in ASKED_TO_END:
            signal.signal(number, _end_at_once)


def _end_at_once(number: int, _frame: object) -> None:
    os._exit(EXIT_BY_SIGNAL + number)
