"""One Spark session for all pipeline tests: starting it is the expensive part."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from billing.pipeline import spark as pipeline_spark
from config.embedded.java import Java

PLANTED = "planted-password-of-mail"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, java: Java) -> Iterator[SparkSession]:
    """A session as the pipeline makes it, on two local cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(java.spark_home))
        patch.setenv("MAIL_PASSWORD", PLANTED)
        session = pipeline_spark.session(master="local[2]", local_dir=str(tmp_path_factory.mktemp("spark")))
        yield session
        session.stop()
