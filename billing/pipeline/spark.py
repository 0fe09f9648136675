"""One Spark session per process, made on first use and kept: starting one costs seconds, a run on a warm one few."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from brokers.infra.child_environment import as_spark_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODE_ROOT = Path(__file__).resolve().parents[2]
# For a heap of 512 MB. Java's default collector has threads of its own, which want the cores that Spark works on.
LOCAL_JAVA_OPTIONS = "-XX:+UseSerialGC"


def session(*, master: str, local_dir: str) -> SparkSession:
    """The process's session on `master` (`local[*]`, or any Spark cluster); scratch files go to `local_dir`.

    Tasks run this interpreter (they would otherwise take PATH's) and this code, which hosts of a cluster have at the
    same paths. Nothing listens beyond loopback when local.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it logs every connection it closes, also at interpreter exit
    from pyspark.sql import SparkSession

    from billing.pipeline.source import UsageSource

    is_local = master.startswith("local")
    builder = (
        SparkSession.builder.appName("penstock-usage")
        .master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.bindAddress", "127.0.0.1" if is_local else "0.0.0.0")  # noqa: S104
        .config("spark.local.dir", local_dir)
        .config("spark.sql.warehouse.dir", f"{local_dir}/warehouse")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
    )
    if is_local:
        builder = builder.config("spark.driver.extraJavaOptions", LOCAL_JAVA_OPTIONS)
    else:
        builder = builder.config("spark.executorEnv.PYTHONPATH", str(CODE_ROOT))
        builder = builder.config("spark.executor.memory", "512m")
    with as_spark_driver():
        spark = builder.getOrCreate()
    spark.dataSource.register(UsageSource)
    return spark
