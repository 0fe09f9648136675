"""The programs of the product that are ours: web, worker with beat, agent, pipeline.

Web and worker are given the whole environment, for a mail backend or another one of an operator's choice may read any
variable; agent and pipeline only what they use.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from functools import partial

from brokers.infra.child_environment import agent_variables, pipeline_variables
from config.embedded.niceness import give_way
from config.embedded.process import Child
from config.environment import BASE_DIR, PROCESS_VARIABLE
from config.supervisor.state import StateDirectory

WORKER_PROCESSES = 3
WEB_STOP_S = 5.0
WORKER_STOP_S = 15.0
AGENT_STOP_S = 20.0
# A tenth of the weight of what is not nice.
PIPELINE_NICENESS = 10
# Long enough for a task in hand, short enough for Ctrl-C: every task may be run again.
WORKER_SOFT_STOP_S = 3
WORKER_VARIABLES = {
    "REMAP_SIGTERM": "SIGQUIT",
    "PENSTOCK_WORKER_SOFT_STOP_S": str(WORKER_SOFT_STOP_S),
    "CELERY_SKIP_CHECKS": "1",  # `make check` runs them; a start need not import every page's code
}


def web(state: StateDirectory, environment: Mapping[str, str], *, http_port: int) -> Child:
    """gunicorn with the settings and the worker of `config.web`."""
    return Child(
        name="web",
        command=(
            sys.executable, "-m", "gunicorn", "-c", "python:config.web.server", "config.wsgi:application",
            "--bind", f"127.0.0.1:{http_port}",
        ),
        log_file=state.log_file("web"),
        environment=dict(environment) | {PROCESS_VARIABLE: "web"},
        directory=BASE_DIR,
        stop_timeout_s=WEB_STOP_S,
    )  # fmt: skip


def worker(state: StateDirectory, environment: Mapping[str, str]) -> Child:
    """Celery worker with beat inside: one import of Django instead of two."""
    return Child(
        name="worker",
        command=(
            sys.executable, "-m", "celery", "-A", "config.celery", "worker", "--beat",
            "--queues", "penstock",
            "--schedule", str(state.root / "celerybeat-schedule"), "--concurrency", str(WORKER_PROCESSES),
            "--loglevel", "INFO", "--without-gossip", "--without-mingle", "--hostname", "worker@penstock",
        ),
        log_file=state.log_file("worker"),
        environment=dict(environment) | WORKER_VARIABLES | {PROCESS_VARIABLE: "worker"},
        directory=BASE_DIR,
        stop_timeout_s=WORKER_STOP_S,
    )  # fmt: skip


def pipeline(state: StateDirectory, environment: Mapping[str, str]) -> Child:
    """Celery worker of the usage pipeline's own queue: its one process keeps a warm Spark session.

    Usage is a matter of minutes, an acknowledgement one of milliseconds: where both want a core, brokers come first.
    """
    return Child(
        name="pipeline",
        command=(
            sys.executable, "-m", "celery", "-A", "config.celery", "worker", "--queues", "pipeline",
            "--concurrency", "1", "--loglevel", "INFO", "--without-gossip", "--without-mingle",
            "--hostname", "pipeline@penstock",
        ),
        log_file=state.log_file("pipeline"),
        environment=pipeline_variables(environment) | WORKER_VARIABLES | {PROCESS_VARIABLE: "pipeline"},
        directory=BASE_DIR,
        stop_timeout_s=WORKER_STOP_S,
        before_exec=partial(give_way, PIPELINE_NICENESS),
    )  # fmt: skip


def agent(state: StateDirectory, environment: Mapping[str, str], *, host: str, name: str = "agent") -> Child:
    """The agent of a host; it owns the broker processes and stops them before it ends."""
    return Child(
        name=name,
        command=(sys.executable, str(BASE_DIR / "manage.py"), "agent", "--host", host),
        log_file=state.log_file(name),
        environment=agent_variables(environment) | {PROCESS_VARIABLE: "agent"},
        directory=BASE_DIR,
        stop_signal=signal.SIGTERM,
        stop_timeout_s=AGENT_STOP_S,
    )
