"""Programs of an installation started one by one, as a service manager would, each from a source tree of its own.

with Programs(tmp_path) as programs:
    programs.prepare(BASE_DIR)                      # services, secrets, tables, an operator and the demo tenant
    programs.start("web", BASE_DIR)
    programs.start("agent-with-database", BASE_DIR, host="east")  # its brokers end with it
    programs.stop("agent-with-database", host="east")
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from config.deployment.roles import ROLES, Installation
from config.embedded.java import find_java
from config.embedded.postgres import EmbeddedPostgres
from config.embedded.process import Child, free_port, wait_until
from config.embedded.redis import EmbeddedRedis
from config.embedded.zookeeper import EmbeddedZooKeeper
from config.environment import PROCESS_VARIABLE
from tests.testkit.stack import environment as own_environment
from tests.testkit.tenancy import Caller
from tests.testkit.waiting import eventually

START_TIMEOUT_S: Final = 60.0
PREPARE_TIMEOUT_S: Final = 200.0
# Works in trees from before `manage.py prepare`: the functions are those of `manage.py up`.
PREPARE: Final = """
import json
from billing.services import ensure_default_plans
from config.environment import state_dir
from config.supervisor import schema, seed, services
from config.supervisor.state import StateDirectory
quiet = lambda text: None
state = StateDirectory(state_dir())
state.prepare()
services.ensure_secrets(state)
schema.migrate(quiet)
ensure_default_plans()
ensure_accounts = getattr(seed, "ensure_accounts", None) or seed.people  # its name in 0.1
made = ensure_accounts(state, with_demo=True, say=quiet)
print(json.dumps({"operator": made.operator_token, "tenant": made.tenant.token}))
"""


class Programs:
    """Embedded services with data below `home`, and the programs that run beside them. A context manager."""

    def __init__(self, home: Path) -> None:
        self.state_dir = home / "state"
        self._logs = home / "logs"
        self._logs.mkdir(parents=True)
        self.http_port = free_port()
        self.api_url = f"http://127.0.0.1:{self.http_port}/api/v1/"
        java = find_java(home / "java")
        self.zookeeper = EmbeddedZooKeeper(
            home / "zookeeper", port=free_port(), java=java, log_file=self._logs / "zookeeper.log"
        )
        self._postgres = EmbeddedPostgres(home / "postgres", log_file=self._logs / "postgres.log", durable=False)
        redis = EmbeddedRedis(home / "redis", password=secrets.token_hex(8), log_file=self._logs / "redis.log")
        self._services = (self.zookeeper, self._postgres, redis)
        self._environment = own_environment() | {
            "PENSTOCK_STATE_DIR": str(self.state_dir),
            "PENSTOCK_PUBLIC_URL": f"http://127.0.0.1:{self.http_port}",
            "PENSTOCK_NATIVE": "0",
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "DATABASE_URL": self._postgres.url,
            "REDIS_URL": redis.url,
            "ZOOKEEPER_URL": self.zookeeper.address,
            "JAVA_HOME": str(java.spark_home),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
            "PYTHONWARNINGS": "ignore",
        }
        self._children: dict[tuple[str, str], Child] = {}

    def __enter__(self) -> Programs:
        try:
            for service in self._services:
                service.start()
            for service in self._services:
                wait_until(service.is_ready, child=service.child, timeout_s=START_TIMEOUT_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.request_stop()
        for child in self._children.values():
            child.wait_stopped()
        for service in self._services:
            service.child.stop()

    def prepare(self, code: Path) -> tuple[Caller, Caller]:
        """Creates what the programs need. Returns the operator and the demo tenant as callers of the API."""
        tokens = json.loads(self.command(code, "shell", "-v", "0", "-c", PREPARE).splitlines()[-1])
        return Caller(api_url=self.api_url, token=tokens["operator"]), Caller(
            api_url=self.api_url, token=tokens["tenant"]
        )

    def command(self, code: Path, *words: str) -> str:
        """Returns the output of a command of `manage.py` in a tree. Raises AssertionError if it fails."""
        process = subprocess.run(
            [sys.executable, "manage.py", *words], cwd=code, env=self._environment_of(code), capture_output=True,
            text=True, check=False, timeout=PREPARE_TIMEOUT_S,
        )  # fmt: skip
        assert process.returncode == 0, f"{words}: {process.stdout}\n{process.stderr}"
        return process.stdout

    def start(self, role: str, code: Path, *, host: str = "", before: Sequence[str] = ()) -> None:
        """Starts a program. `before` are words in front of its command, such as `ip netns exec NAME`."""
        program = ROLES[role]
        installation = Installation(
            python=sys.executable, code=str(code), state_dir=str(self.state_dir), host=host, http_port=self.http_port
        )
        child = Child(
            name=f"{role}-{host}" if host else role,
            command=(*before, *program.command(installation)),
            log_file=self._logs / f"{role}{host and '-'}{host}.log",
            environment=self._environment_of(code) | dict(program.fixed) | {PROCESS_VARIABLE: program.process or role},
            directory=code,
            stop_timeout_s=program.stop_timeout_s + 10.0,
        )
        child.start()
        self._children[role, host] = child
        if role == "web":
            caller = Caller(api_url=self.api_url, token="")

            def answers() -> bool:
                assert child.is_running, child.log_tail()
                return bool(caller.call("GET", "/plans")[0])

            eventually(answers, within_s=START_TIMEOUT_S, what="web to answer")

    def stop(self, role: str, *, host: str = "") -> None:
        """Stops a program; an agent stops its brokers first. Fails the test if it has to be killed."""
        child = self._children.pop((role, host))
        assert child.stop(), f"{child.name} did not stop: {child.log_tail()}"

    def log_tails(self, lines: int = 12) -> str:
        """Returns the end of every log, for a failing test's report."""
        tails = []
        for file in sorted((*self._logs.glob("*.log"), *self.state_dir.rglob("broker.log"))):
            last = file.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
            tails.append("\n".join([f"--- {file.name}", *last]))
        return "\n".join(tails)

    def _environment_of(self, code: Path) -> dict[str, str]:
        """Returns the environment with the tree as the place of imports, for the brokers of an agent, too."""
        return self._environment | {"PYTHONPATH": str(code)}
