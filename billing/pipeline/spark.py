"""Spark session of this process: started for a large run, kept while there is work, stopped afterwards."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from brokers.infra.child_environment import as_spark_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
CODE_ROOT = Path(__file__).resolve().parents[2]
# For a heap of 512 MB. Java's default collector uses threads that compete with Spark for cores.
LOCAL_JAVA_OPTIONS = "-XX:+UseSerialGC"
JAVA_STOP_S = 20.0

log = structlog.get_logger(__name__)


class _Use:
    """Last use of the session by this process."""

    is_new = False
    quiet_since_s: float | None = None


def session(*, master: str, local_dir: str) -> SparkSession:
    """Returns the process's session on `master` (`local[*]`, or any Spark cluster); scratch files go to `local_dir`.

    Tasks use this interpreter instead of the one in PATH, and this code, which the hosts of a cluster have at the same
    paths. A local session listens on loopback only. On a cluster, hosts connect to the driver: it listens on
    SPARK_LOCAL_IP, without it on the address that Spark finds. `spark-defaults.conf` in SPARK_CONF_DIR has the secret
    by which they authenticate each other.
    """
    _Use.is_new = True
    is_local = master.startswith("local")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it logs every closed connection, even at interpreter exit
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.appName("penstock-usage")
        .master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.local.dir", local_dir)
        .config("spark.sql.warehouse.dir", f"{local_dir}/warehouse")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
    )
    if is_local:
        builder = builder.config("spark.driver.bindAddress", LOOPBACK)
        builder = builder.config("spark.driver.extraJavaOptions", LOCAL_JAVA_OPTIONS)
    else:
        builder = builder.config("spark.executorEnv.PYTHONPATH", str(CODE_ROOT))
        builder = builder.config("spark.executor.memory", "512m")
    with as_spark_driver():
        spark_session = builder.getOrCreate()
    if not is_local and spark_session.sparkContext.getConf().get("spark.authenticate", "false") != "true":
        log.warning("spark.unauthenticated", master=master)
    return spark_session


def stop_session_after(quiet_s: float) -> bool:
    """Stops the session and its JVM after they were idle for this time; returns True if it did.

    It must be called repeatedly between runs by the thread that runs them: the time counts from the first call after
    the last use.
    """
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    if _Use.is_new or _Use.quiet_since_s is None:
        _Use.is_new, _Use.quiet_since_s = False, time.monotonic()
        return False
    if SparkContext._gateway is None or time.monotonic() - _Use.quiet_since_s < quiet_s:
        return False
    stop_session()
    return True


def stop_session() -> None:
    """Stops the session of this process, if any, and its JVM. The next run may start another one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is None:
        return
    gateway.shutdown()
    java: subprocess.Popen[bytes] = gateway.proc
    if java.stdin is not None:
        java.stdin.close()  # Java exits when its stdin closes
    try:
        java.wait(JAVA_STOP_S)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()
