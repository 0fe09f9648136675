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

    from billing.pipeline.cluster import UsageSource

log = structlog.get_logger(__name__)

# A backlog is processed in runs of limited size; a task ends after this number of runs, so that other tasks can run.
RUNS_PER_TASK_MAX = 20
# A stopping Celery worker sends SIGQUIT to the processes of its pool.
TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGQUIT)
EXIT_BY_SIGNAL = 128
SECONDS_PER_MINUTE = 60


def process_all_clusters() -> None:
    """Processes the clusters one after the other; a failure of one does not delay the others.

    The first unexpected exception is raised after all clusters were processed.
    """
    # Imported here because every worker loads this module, but only one runs Spark.
    from confluent_kafka import KafkaException

    from billing.pipeline import job
    from billing.pipeline.sink import PipelineBusy

    first_failure: Exception | None = None
    for cluster in selectors.usage_sources():
        try:
            _process_backlog(cluster)
        except KafkaException as error:
            # Unreachable brokers are an external fault: the next run begins where this one did, and the other clusters
            # are processed meanwhile.
            log.warning("usage.unreachable", cluster_id=cluster.cluster_id, reason=str(error))
        except PipelineBusy:
            log.info("usage.busy", cluster_id=cluster.cluster_id)
        except job.UsageLost as error:
            # The other clusters are billed nevertheless; this one needs an operator (docs/how-to/troubleshoot.md).
            log.error("usage.lost", cluster_id=cluster.cluster_id, reason=str(error))
        except Exception as failure:  # Spark raises its own type for a range its workers cannot read
            log.error("usage.failed", cluster_id=cluster.cluster_id, reason=type(failure).__name__)
            first_failure = first_failure or failure
    if first_failure is not None:
        raise first_failure


def _process_backlog(cluster: UsageSource) -> None:
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
            if report.is_caught_up:
                return


def spark_session() -> SparkSession:
    """Returns the Spark session of this process, which exits immediately on `TERMINATION_SIGNALS` from now on."""
    from billing.pipeline import spark

    _exit_on_termination_signals()
    local_dir = settings.STATE_DIR / "spark"
    local_dir.mkdir(parents=True, exist_ok=True)
    return spark.session(master=settings.SPARK_MASTER, local_dir=str(local_dir))


def stop_idle_spark() -> None:
    """Stops Spark and its JVM after they were idle for `SPARK_KEPT_MINUTES`."""
    from billing.pipeline import spark

    if spark.stop_session_after(settings.SPARK_KEPT_MINUTES * SECONDS_PER_MINUTE):
        log.info("spark.given_back")


def _exit_on_termination_signals() -> None:
    """Installs signal handlers that end the process immediately.

    Celery would raise SystemExit; but Python handles it only after a call into Java has returned, and a run that waits
    for stopped brokers does not return.
    """
    if threading.current_thread() is threading.main_thread():
        for number in TERMINATION_SIGNALS:
            signal.signal(number, _exit_immediately)


def _exit_immediately(number: int, _frame: object) -> None:
    os._exit(EXIT_BY_SIGNAL + number)
