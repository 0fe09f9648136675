"""Working off the usage of every cluster; `tasks` has it run by beat. Spark is started when it is needed."""

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

# A backlog is worked off in bounded runs; a task gives up its turn after this many.
RUNS_PER_TASK_MAX = 20
# The second is how a Celery worker that is asked to stop ends a task of its pool.
ASKED_TO_END = (signal.SIGTERM, signal.SIGQUIT)
EXIT_BY_SIGNAL = 128
SECONDS_PER_MINUTE = 60


def apply_everywhere() -> None:
    """One cluster after the other; what is the matter with one keeps no other waiting.

    What nobody foresaw is raised in the end, the first of it, when every cluster has had its turn.
    """
    # Imported where it is used: every worker loads this module, one of them runs Spark.
    from confluent_kafka import KafkaException

    from billing.pipeline import job
    from billing.pipeline.sink import PipelineBusy

    unforeseen: Exception | None = None
    for cluster in selectors.usage_sources():
        try:
            _catch_up(cluster)
        except KafkaException as trouble:
            # Brokers that do not answer are the world's trouble: the next run begins where this one did, and the other
            # clusters' tenants do not wait for it.
            log.warning("usage.unreachable", cluster_id=cluster.cluster_id, reason=str(trouble))
        except PipelineBusy:
            log.info("usage.busy", cluster_id=cluster.cluster_id)
        except job.UsageLost as lost:
            # The other clusters' tenants are billed all the same; this one needs an operator
            # (docs/how-to/troubleshoot.md).
            log.error("usage.lost", cluster_id=cluster.cluster_id, reason=str(lost))
        except Exception as failure:  # a range that Spark's workers could not read comes as an exception of Spark's own
            log.error("usage.failed", cluster_id=cluster.cluster_id, reason=type(failure).__name__)
            unforeseen = unforeseen or failure
    if unforeseen is not None:
        raise unforeseen


def _catch_up(cluster: Cluster) -> None:
    from billing.pipeline import job

    for _ in range(RUNS_PER_TASK_MAX):
        report = job.run(
            spark_session, cluster, dsn.conninfo(), lake=open_lake(settings.LAKE_URL),
            spark_from_records=settings.SPARK_FROM_RECORDS,
        )  # fmt: skip
        if report.records:
            log.info(
                "usage.applied",
                cluster_id=cluster.cluster_id,
                records=report.records,
                minute_rows=report.minute_rows,
                left_out=report.left_out,
            )
        if report.caught_up:
            return


def spark_session() -> SparkSession:
    """That of this process, which ends at once from now on when it is asked to."""
    from billing.pipeline import spark

    _end_at_once_when_asked_to()
    local_dir = settings.STATE_DIR / "spark"
    local_dir.mkdir(parents=True, exist_ok=True)
    return spark.session(master=settings.SPARK_MASTER, local_dir=str(local_dir))


def give_spark_back() -> None:
    """Ends Spark and its Java when nothing needed them for a while."""
    from billing.pipeline import spark

    if spark.give_back_after(settings.SPARK_KEPT_MINUTES * SECONDS_PER_MINUTE):
        log.info("spark.given_back")


def _end_at_once_when_asked_to() -> None:
    """What has a session may end at any point, and has to.

    Celery would raise SystemExit, but Python leaves no call into Java before Java answers, and a run that waits for
    brokers that have stopped has no answer.
    """
    if threading.current_thread() is threading.main_thread():
        for number in ASKED_TO_END:
            signal.signal(number, _end_at_once)


def _end_at_once(number: int, _frame: object) -> None:
    os._exit(EXIT_BY_SIGNAL + number)
