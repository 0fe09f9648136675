"""Ready block: everything that a person, or a test, needs to use the started product."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from config.environment import BASE_DIR

WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyLogin:
    username: str
    password: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyTenant:
    slug: str
    token: str
    login: ReadyLogin


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslLogin:
    """User for Kafka clients, and the CA they trust if the route is encrypted."""

    mechanism: str
    username: str
    password: str = field(repr=False)
    security_protocol: str = "SASL_PLAINTEXT"
    ca_file: Path | None = None

    def as_json(self) -> dict[str, str | None]:
        return {
            "mechanism": self.mechanism,
            "username": self.username,
            "password": self.password,
            "security_protocol": self.security_protocol,
            "ca_file": None if self.ca_file is None else str(self.ca_file),
        }

    def options(self) -> str:
        """Returns options for the command line tools of kafka-python."""
        user, password = shlex.quote(self.username), shlex.quote(self.password)
        ca_option = "" if self.ca_file is None else f" -C {shlex.quote(f'ssl_cafile={self.ca_file}')}"
        return f" -S {self.security_protocol} -M {self.mechanism} -U {user} -P {password}{ca_option}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoInstance:
    """Demo instance; `sasl` is None if clients need no sign-in."""

    id: str
    bootstrap_servers: str
    topic: str
    sasl: SaslLogin | None = None
    is_on_kafka: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Content of the block. `tenant` and `instance` are None with `--no-demo`."""

    console_url: str
    operator: ReadyLogin
    operator_token: str
    tenant: ReadyTenant | None
    instance: DemoInstance | None
    # Address of the Apache Kafka of `--kafka`, for operators.
    kafka_bootstrap_servers: str | None = None

    @property
    def api_url(self) -> str:
        return f"{self.console_url}/api/v1/"

    def as_json(self) -> dict[str, Any]:
        """Returns the documented content of `--ready-file`."""
        tenant, instance = self.tenant, self.instance
        return {
            "console_url": self.console_url,
            "api_url": self.api_url,
            "operator": {
                "username": self.operator.username,
                "password": self.operator.password,
                "token": self.operator_token,
            },
            "tenant": None
            if tenant is None
            else {
                "slug": tenant.slug,
                "token": tenant.token,
                "username": tenant.login.username,
                "password": tenant.login.password,
            },
            "instance": None
            if instance is None
            else {
                "id": instance.id,
                "bootstrap_servers": instance.bootstrap_servers,
                "sasl": None if instance.sasl is None else instance.sasl.as_json(),
            },
        } | ({} if self.kafka_bootstrap_servers is None else {"kafka_bootstrap_servers": self.kafka_bootstrap_servers})

    def as_text(self, *, elapsed_s: float, state_dir: Path, is_in_background: bool = False) -> str:
        """Returns the block for people. `is_in_background` means that Ctrl-C does not reach the process."""
        lines = ["=" * WIDTH, f"Penstock is ready after {elapsed_s:.1f} s. State: {state_dir}", ""]
        lines.append(f"  Console      {self.console_url}/")
        if self.tenant is not None:
            lines.append(f"               {self.tenant.login.username}  /  {self.tenant.login.password}")
        lines.append(f"  Operator     {self.console_url}/operator/")
        lines.append(f"               {self.operator.username}  /  {self.operator.password}")
        lines.append(f"  API          {self.api_url}   (docs: {self.console_url}/api/docs/)")
        if self.tenant is not None:
            lines.append(f"               Authorization: Bearer {self.tenant.token}")
        lines.append(f"               Authorization: Bearer {self.operator_token}   (operator)")
        if self.instance is not None:
            lines += ["", f"  Kafka        {self.instance.id}", f"               {self.instance.bootstrap_servers}"]
            if self.instance.sasl is not None:
                sasl = self.instance.sasl
                lines.append(f"               {sasl.username}  /  {sasl.password}   ({sasl.mechanism})")
            if self.kafka_bootstrap_servers is not None:
                names = f"{self.instance.id}.…" if self.instance.is_on_kafka else "ins-….…"
                lines.append(f"               Apache Kafka behind it: {self.kafka_bootstrap_servers}, topics {names}")
            lines += ["", "  Try it, in another terminal:", ""]
            lines += [f"    {command}" for command in self.commands()]
        stop = f"Stop everything with: {down_command(state_dir)}" if is_in_background else "Ctrl-C stops everything."
        lines += ["", stop, "=" * WIDTH]
        return "\n".join(lines)

    def commands(self) -> list[str]:
        """Returns commands that produce two records to the demo topic and read them back with a stock client."""
        if self.instance is None:
            return []
        python = shlex.quote(_relative_path(Path(sys.executable)))
        target_options = f"-b {self.instance.bootstrap_servers.split(',')[0]} -t {self.instance.topic}"
        target_options += self.instance.sasl.options() if self.instance.sasl is not None else ""
        return [
            f"printf 'hello\\nworld\\n' | {python} -m kafka.producer {target_options}",
            f"{python} -m kafka.consumer {target_options} -C auto_offset_reset=earliest -C consumer_timeout_ms=3000",
        ]


def down_command(state_dir: Path) -> str:
    """Returns the command that stops the product of a state directory."""
    arguments = (
        _relative_path(Path(sys.executable)),
        _relative_path(BASE_DIR / "manage.py"),
        "down",
        "--state-dir",
        str(state_dir),
    )
    return shlex.join(arguments)


def _relative_path(program: Path) -> str:
    """Returns a relative path if the current directory is the clone, as after `make run`."""
    if Path.cwd() == BASE_DIR and program.is_relative_to(BASE_DIR):
        return os.path.relpath(program, BASE_DIR)
    return str(program)
