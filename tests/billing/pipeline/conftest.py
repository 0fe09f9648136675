"""One Spark session for all pipeline tests: starting it is the expensive part."""

import pytest

from billing.pipeline import spark as pipeline_spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory, java_home):
    session = pipeline_spark.session(master="local[2]", local_dir=str(tmp_path_factory.mktemp("spark")))
    yield session
    session.stop()
