"""Environments of child processes: each gets the variables that it uses, by name."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from brokers.agent.process import BrokerProcess
from brokers.infra.child_environment import (
    RUN_VARIABLE,
    agent_variables,
    as_spark_driver,
    broker_variables,
    java_variables,
    pipeline_variables,
    system_variables,
)
from config.supervisor import programs
from config.supervisor.state import StateDirectory
from tests.testkit.waiting import eventually

SECRETS = {
    "SECRET_KEY": "planted-key",
    "DATABASE_URL": "postgres://u:planted-database@h/d",
    "REDIS_URL": "redis://:planted-redis@h",
    "PGPASSWORD": "planted-libpq",
    "PENSTOCK_EMAIL_PASSWORD": "planted-mail",
    "PENSTOCK_OPERATOR_PASSWORD": "planted-operator",
    "AWS_SECRET_ACCESS_KEY": "planted-cloud",
}
ORDINARY = {"PATH": "/bin", "LC_ALL": "C.UTF-8", "PYTHONWARNINGS": "error", RUN_VARIABLE: "run-7"}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (SECRETS | ORDINARY).items():
        monkeypatch.setenv(name, value)


def planted(environment: dict[str, str]) -> set[str]:
    """Returns the secrets in a child's environment."""
    return {name for name in SECRETS if name in environment}


@pytest.mark.parametrize("made", [system_variables, java_variables, broker_variables])
def test_services_and_brokers_are_given_no_secret_and_are_found_by_their_run(made: object) -> None:
    environment = made()  # type: ignore[operator]
    assert not planted(environment)
    assert environment.items() >= ORDINARY.items()


def test_the_agent_is_given_the_database_and_the_pipeline_the_queue_and_the_bucket_of_the_lake_as_well() -> None:
    database = {"DATABASE_URL", "PGPASSWORD"}
    assert planted(agent_variables(os.environ)) == database
    assert planted(pipeline_variables(os.environ)) == database | {"REDIS_URL", "AWS_SECRET_ACCESS_KEY"}
    assert pipeline_variables({"PENSTOCK_LAKE_URL": "s3://bucket/lake"})["PENSTOCK_LAKE_URL"] == "s3://bucket/lake"


def test_programs_are_started_with_these(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    assert planted(dict(programs.agent(state, os.environ, host="h").environment or {})) == {
        "DATABASE_URL",
        "PGPASSWORD",
    }
    assert "REDIS_URL" in planted(dict(programs.pipeline(state, os.environ).environment or {}))
    web = programs.web(state, os.environ, http_port=1).environment or {}
    assert planted(dict(web)) == set(SECRETS)


def test_a_broker_that_an_agent_starts_has_no_secret_in_its_environment(tmp_path: Path) -> None:
    broker = BrokerProcess(directory=tmp_path, command=(sys.executable, "-c", "import signal; signal.pause()"))
    broker.start()
    try:
        file = Path(f"/proc/{broker.pid}/environ")
        eventually(lambda: RUN_VARIABLE.encode() in file.read_bytes())
        assert b"planted" not in file.read_bytes()
    finally:
        broker.kill()
        broker.wait(5)


def test_sparks_java_machine_inherits_neither_database_nor_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    before = dict(os.environ)
    with as_spark_driver():
        assert not planted(dict(os.environ))
        assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
        assert os.environ[RUN_VARIABLE] == "run-7"
    assert dict(os.environ) == before
