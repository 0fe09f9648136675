"""Paths, names and variables that the systemd, Compose and Kubernetes formats share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from config.deployment.roles import ProgramRole, Variable
from config.environment import PROCESS_VARIABLE

PREFIX: Final = "penstock"
STATE_DIR: Final = "/var/lib/penstock"
SETTINGS_DIR: Final = "/etc/penstock"
# Address to listen on inside a container; the engine decides which ports it publishes.
ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104
TEMPORARY: Final = "/tmp"  # noqa: S108 (a file system in memory, of one container)
# Name and number of the system user that programs run as; containers use only the number.
USER: Final = "penstock"
USER_ID: Final = 10_001
# Time between a program's own stop timeout and its kill.
KILL_MARGIN_S: Final = 10
NOTE: Final = "Written by `manage.py units`. Values are set elsewhere and only named here; secrets are in no unit."


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentOrder:
    """Order for a set of units. `data_dirs` are directories beside the state directory that brokers keep logs in."""

    roles: Sequence[ProgramRole]
    code: str
    user: str = USER
    data_dirs: Sequence[str] = ()

    @property
    def python(self) -> str:
        return f"{self.code}/.venv/bin/python"


def fixed_variables(role: ProgramRole) -> dict[str, str]:
    """Returns the variables whose values are fixed: the identity of a program and the places of its files."""
    return {
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PENSTOCK_STATE_DIR": STATE_DIR,
        # Compiled modules are in the state directory, because the code is not writable.
        "PENSTOCK_NATIVE_DIR": f"{STATE_DIR}/native",
        PROCESS_VARIABLE: role.process or role.name,
        "PYTHONUNBUFFERED": "1",
        **role.fixed,
    }


def stop_seconds(role: ProgramRole) -> int:
    return int(role.stop_timeout_s) + KILL_MARGIN_S


def example(role: ProgramRole) -> str:
    """Returns an empty settings file of a role: each variable that it reads, without a value."""
    lines = [f"# Settings of {PREFIX}-{role.name}: docs/reference/settings.md. For root alone (0600)."]
    if not role.variables:
        lines.append("# None is needed: the host joins by a token (docs/how-to/run-on-several-machines.md).")
    return "\n".join([*lines, *(_line(variable) for variable in role.variables), ""])


def _line(variable: Variable) -> str:
    return f"{'' if variable.is_required else '#'}{variable.name}="
