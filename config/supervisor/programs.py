"""Programs of the product: web, worker with beat, agent, pipeline.

Their commands are defined in `config.deployment.roles`. Web and worker get the whole environment, because a configured
mail backend may read any variable; agent and pipeline get only what they use.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from functools import partial

from brokers.infra.child_environment import agent_variables, pipeline_variables
from config.deployment.roles import (
    AGENT_WITH_DATABASE,
    HTTP_PORT,
    PIPELINE,
    WEB,
    WORKER,
    Installation,
    ProgramRole,
)
from config.embedded.niceness import lower_priority
from config.embedded.process import Child
from config.environment import BASE_DIR, PROCESS_VARIABLE
from config.supervisor.state import StateDirectory


def web(state: StateDirectory, environment: Mapping[str, str], *, http_port: int) -> Child:
    """Returns gunicorn with the settings and the worker of `config.web`."""
    return _child(WEB, state, dict(environment), http_port=http_port)


def worker(state: StateDirectory, environment: Mapping[str, str]) -> Child:
    """Returns a Celery worker with embedded beat, which saves importing Django twice."""
    return _child(WORKER, state, dict(environment))


def pipeline(state: StateDirectory, environment: Mapping[str, str]) -> Child:
    """Returns a Celery worker of the usage pipeline's queue: its single process keeps a warm Spark session.

    Usage may lag minutes, acknowledgements only milliseconds; so brokers have precedence on the CPU.
    """
    child = _child(PIPELINE, state, pipeline_variables(environment))
    child.before_exec = partial(lower_priority, PIPELINE.niceness)
    return child


def agent(state: StateDirectory, environment: Mapping[str, str], *, host: str, name: str = "agent") -> Child:
    """Returns the agent of a host; it owns the broker processes and stops them before it ends."""
    child = _child(AGENT_WITH_DATABASE, state, agent_variables(environment), host=host, name=name)
    child.stop_signal = signal.SIGTERM
    return child


def _child(
    role: ProgramRole,
    state: StateDirectory,
    environment: dict[str, str],
    *,
    http_port: int = HTTP_PORT,
    host: str = "",
    name: str = "",
) -> Child:
    installation = Installation(
        python=sys.executable, code=str(BASE_DIR), state_dir=str(state.root), host=host, http_port=http_port
    )
    return Child(
        name=name or role.name,
        command=tuple(role.command(installation)),
        log_file=state.log_file(name or role.name),
        environment={**environment, **role.fixed, PROCESS_VARIABLE: role.process or role.name},
        directory=BASE_DIR,
        stop_timeout_s=role.stop_timeout_s,
    )
