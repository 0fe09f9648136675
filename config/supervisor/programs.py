"""The programs of the product that are ours: web, worker with beat, agent, pipeline.

Their commands are those of `config.deployment.roles`. Web and worker are given the whole environment, for a mail
backend or another one of an operator's choice may read any variable; agent and pipeline only what they use.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from functools import partial

from brokers.infra.child_environment import agent_variables, pipeline_variables
from config.deployment.roles import AGENT, HTTP_PORT, PIPELINE, WEB, WORKER, Place, Role
from config.embedded.niceness import give_way
from config.embedded.process import Child
from config.environment import BASE_DIR, PROCESS_VARIABLE
from config.supervisor.state import StateDirectory


def web(state: StateDirectory, environment: Mapping[str, str], *, http_port: int) -> Child:
    """gunicorn with the settings and the worker of `config.web`."""
    return _child(WEB, state, dict(environment), http_port=http_port)


def worker(state: StateDirectory, environment: Mapping[str, str]) -> Child:
    """Celery worker with beat inside: one import of Django instead of two."""
    return _child(WORKER, state, dict(environment))


def pipeline(state: StateDirectory, environment: Mapping[str, str]) -> Child:
    """Celery worker of the usage pipeline's own queue: its one process keeps a warm Spark session.

    Usage is a matter of minutes, an acknowledgement one of milliseconds: where both want a core, brokers come first.
    """
    child = _child(PIPELINE, state, pipeline_variables(environment))
    child.before_exec = partial(give_way, PIPELINE.niceness)
    return child


def agent(state: StateDirectory, environment: Mapping[str, str], *, host: str, name: str = "agent") -> Child:
    """The agent of a host; it owns the broker processes and stops them before it ends."""
    child = _child(AGENT, state, agent_variables(environment), host=host, name=name)
    child.stop_signal = signal.SIGTERM
    return child


def _child(
    role: Role,
    state: StateDirectory,
    environment: dict[str, str],
    *,
    http_port: int = HTTP_PORT,
    host: str = "",
    name: str = "",
) -> Child:
    place = Place(python=sys.executable, code=str(BASE_DIR), state_dir=str(state.root), host=host, http_port=http_port)
    return Child(
        name=name or role.name,
        command=tuple(role.command(place)),
        log_file=state.log_file(name or role.name),
        environment={**environment, **role.fixed, PROCESS_VARIABLE: role.name},
        directory=BASE_DIR,
        stop_timeout_s=role.stop_timeout_s,
    )
