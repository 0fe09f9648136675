"""Table of the programs of an installation: the command, variables, ports and privileges of each. Pure.

`manage.py up` and `manage.py units` take commands from here, so that what is deployed is what is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

WORKER_PROCESSES: Final = 3
WEB_STOP_S: Final = 5.0
WORKER_STOP_S: Final = 15.0
AGENT_STOP_S: Final = 20.0
# The pipeline gets a tenth of the CPU weight of a process with niceness 0.
PIPELINE_NICENESS: Final = 10
# Time for running tasks to end. It is short, because Ctrl-C waits for it; every task may be run again.
WORKER_SOFT_STOP_S: Final = 3
WORKER_VARIABLES: Final[Mapping[str, str]] = MappingProxyType({
    "REMAP_SIGTERM": "SIGQUIT",
    "PENSTOCK_WORKER_SOFT_STOP_S": str(WORKER_SOFT_STOP_S),
    "CELERY_SKIP_CHECKS": "1",  # `make check` runs them; a start need not import every page's code
})  # fmt: skip
HTTP_PORT: Final = 8_000
OPEN_FILES: Final = 65_536


class Variable(NamedTuple):
    """An environment variable that a person sets. The value of a secret is in no unit, manifest or example."""

    name: str
    is_required: bool = False
    is_secret: bool = False


DATABASE: Final = Variable("DATABASE_URL", is_required=True, is_secret=True)
QUEUE: Final = Variable("REDIS_URL", is_required=True, is_secret=True)
ZOOKEEPER: Final = Variable("ZOOKEEPER_URL", is_required=True)
SIGNING_KEY: Final = Variable("SECRET_KEY", is_required=True, is_secret=True)
PUBLIC_URL: Final = Variable("PENSTOCK_PUBLIC_URL", is_required=True)
LAKE: Final = Variable("PENSTOCK_LAKE_URL")
# Files in the directory of secrets, for a ZooKeeper ensemble that authenticates its clients.
ZOOKEEPER_FILES: Final = tuple(
    Variable(name)
    for name in (
        "PENSTOCK_ZOOKEEPER_CONTROL_FILE", "PENSTOCK_ZOOKEEPER_BROKER_FILE", "PENSTOCK_ZOOKEEPER_CA_FILE",
        "PENSTOCK_ZOOKEEPER_CONTROL_CERTIFICATE_FILE", "PENSTOCK_ZOOKEEPER_BROKER_CERTIFICATE_FILE",
    )
)  # fmt: skip
MAIL: Final = (
    Variable("PENSTOCK_EMAIL_HOST"), Variable("PENSTOCK_EMAIL_PORT"), Variable("PENSTOCK_EMAIL_TLS"),
    Variable("PENSTOCK_EMAIL_USER"), Variable("PENSTOCK_EMAIL_PASSWORD", is_secret=True),
    Variable("PENSTOCK_EMAIL_FROM"),
)  # fmt: skip
LAKE_KEYS: Final = (
    LAKE, Variable("AWS_REGION"), Variable("AWS_ENDPOINT_URL"), Variable("AWS_ACCESS_KEY_ID"),
    Variable("AWS_SECRET_ACCESS_KEY", is_secret=True),
)  # fmt: skip
# Variables that pages, REST API and tasks read.
CONTROL: Final = (DATABASE, QUEUE, ZOOKEEPER, SIGNING_KEY, PUBLIC_URL, *LAKE_KEYS, *ZOOKEEPER_FILES, *MAIL)


class Installation(NamedTuple):
    """Where a program runs: the interpreter of the installation, its code, its state, and the name of the machine.

    `host` is a placeholder that the service manager replaces by the machine's name, such as `%H`.
    """

    python: str
    code: str
    state_dir: str
    host: str
    bind: str = "127.0.0.1"
    http_port: int = HTTP_PORT


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRole:
    """One program of an installation. `fixed` has variables with their values, `variables` those that a person sets."""

    name: str
    title: str
    command: Callable[[Installation], Sequence[str]]
    variables: tuple[Variable, ...]
    fixed: Mapping[str, str] = field(default_factory=dict)
    # Name in logs and certificates, if it is not that of the role.
    process: str = ""
    stop_timeout_s: float = 10.0
    niceness: int = 0
    # True for agents: their brokers listen on ports of the host, and clients reach them at the host's own address.
    uses_host_network: bool = False
    # True if the command contains the name of the machine.
    names_host: bool = False
    # True if the program requests its certificates itself, and needs none of the installation's.
    has_own_certificates: bool = False
    listens_on: tuple[int, ...] = ()
    # True if only one may run: two of `beat` would enqueue every task twice, and web counts rates in its own memory.
    is_single: bool = True

    @property
    def required(self) -> tuple[Variable, ...]:
        return tuple(variable for variable in self.variables if variable.is_required)


def _web(installation: Installation) -> Sequence[str]:
    return (
        installation.python, "-m", "gunicorn", "-c", "python:config.web.server", "config.wsgi:application",
        "--bind", f"{installation.bind}:{installation.http_port}",
    )  # fmt: skip


def _worker(installation: Installation) -> Sequence[str]:
    return (
        installation.python, "-m", "celery", "-A", "config.celery", "worker", "--beat", "--queues", "penstock",
        "--schedule", f"{installation.state_dir}/celerybeat-schedule", "--concurrency", str(WORKER_PROCESSES),
        "--loglevel", "INFO", "--without-gossip", "--without-mingle", "--hostname", "worker@penstock",
    )  # fmt: skip


def _pipeline(installation: Installation) -> Sequence[str]:
    return (
        installation.python, "-m", "celery", "-A", "config.celery", "worker", "--queues", "pipeline",
        "--concurrency", "1", "--loglevel", "INFO", "--without-gossip", "--without-mingle",
        "--hostname", "pipeline@penstock",
    )  # fmt: skip


def _agent(installation: Installation) -> Sequence[str]:
    return installation.python, f"{installation.code}/manage.py", "agent", "--joined"


def _agent_with_database(installation: Installation) -> Sequence[str]:
    return installation.python, f"{installation.code}/manage.py", "agent", "--host", installation.host


WEB: Final = ProgramRole(
    name="web",
    title="console, REST API and operator panel",
    command=_web,
    variables=(
        *CONTROL, Variable("PENSTOCK_INTERNAL_SECURITY"), Variable("PENSTOCK_TRUSTED_PROXIES"),
        Variable("PENSTOCK_ALLOWED_HOSTS"),
        Variable("PENSTOCK_PAYMENTS_SECRETS", is_secret=True), Variable("PENSTOCK_PAYMENTS_LINK"),
    ),
    stop_timeout_s=WEB_STOP_S,
    listens_on=(HTTP_PORT,),
)  # fmt: skip
WORKER: Final = ProgramRole(
    name="worker",
    title="tasks and their schedule",
    command=_worker,
    variables=CONTROL,
    fixed=WORKER_VARIABLES,
    stop_timeout_s=WORKER_STOP_S,
)
PIPELINE: Final = ProgramRole(
    name="pipeline",
    title="usage and archives",
    command=_pipeline,
    variables=(
        DATABASE, QUEUE, ZOOKEEPER, *LAKE_KEYS, *ZOOKEEPER_FILES, Variable("SPARK_MASTER"), Variable("SPARK_LOCAL_IP"),
        Variable("SPARK_CONF_DIR"), Variable("JAVA_HOME"), Variable("PENSTOCK_ARCHIVE_ROOT"),
    ),
    fixed=WORKER_VARIABLES,
    stop_timeout_s=WORKER_STOP_S,
    niceness=PIPELINE_NICENESS,
)  # fmt: skip
AGENT: Final = ProgramRole(
    name="agent",
    title="brokers of this host",
    command=_agent,
    # None: the control plane sends the agent its addresses and secrets.
    variables=(),
    stop_timeout_s=AGENT_STOP_S,
    uses_host_network=True,
    has_own_certificates=True,
    is_single=False,
)
AGENT_WITH_DATABASE: Final = ProgramRole(
    name="agent-with-database",
    title="brokers of this host",
    command=_agent_with_database,
    variables=(DATABASE, ZOOKEEPER, *ZOOKEEPER_FILES, Variable("PENSTOCK_INTERNAL_SECURITY")),
    process="agent",
    stop_timeout_s=AGENT_STOP_S,
    uses_host_network=True,
    names_host=True,
    is_single=False,
)
# Roles of an installation on several machines.
DEFAULT_ROLES: Final = (WEB, WORKER, PIPELINE, AGENT)
ROLES: Final = {role.name: role for role in (*DEFAULT_ROLES, AGENT_WITH_DATABASE)}
