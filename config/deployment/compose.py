"""Compose file of roles, for a container engine on one machine or on each of several."""

from __future__ import annotations

from typing import Any, Final

import yaml

from config.deployment.layout import (
    ANY_ADDRESS,
    NOTE,
    PREFIX,
    STATE_DIR,
    TEMPORARY,
    USER_ID,
    DeploymentOrder,
    fixed_variables,
    stop_seconds,
)
from config.deployment.roles import OPEN_FILES, Installation, ProgramRole, Variable

FILE: Final = "compose.yaml"
IMAGE: Final = "${PENSTOCK_IMAGE:?an image with the code at its place}"
HOST_VARIABLE: Final = "PENSTOCK_HOST"
STATE_VOLUME: Final = "state"


def files(order: DeploymentOrder) -> dict[str, str]:
    """Returns the Compose file, and an example of the `.env` file with its variables, by the name of the file."""
    body = {
        "name": PREFIX,
        "services": {role.name: service(role, order) for role in order.roles},
        "volumes": {STATE_VOLUME: {}},
    }
    text = f"# {NOTE}\n" + yaml.safe_dump(body, sort_keys=False, width=120)
    return {FILE: text, ".env.example": _example(order)}


def service(role: ProgramRole, order: DeploymentOrder) -> dict[str, Any]:
    installation = Installation(
        python=order.python, code=order.code, state_dir=STATE_DIR, bind=ANY_ADDRESS, host=f"${{{HOST_VARIABLE}:?}}"
    )
    result: dict[str, Any] = {
        "image": IMAGE,
        "command": list(role.command(installation)),
        "working_dir": order.code,
        "user": f"{USER_ID}:{USER_ID}",
        "environment": fixed_variables(role) | {variable.name: _reference(variable) for variable in role.variables},
        "restart": "unless-stopped",
        "stop_grace_period": f"{stop_seconds(role)}s",
        "init": True,
        "read_only": True,
        "tmpfs": [TEMPORARY],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "ulimits": {"nofile": OPEN_FILES},
        "volumes": [f"{STATE_VOLUME}:{STATE_DIR}", *_data_volumes(role, order)],
    }
    if role.uses_host_network:
        result["network_mode"] = "host"
    elif role.listens_on:
        # A proxy in front of web terminates TLS; nothing else listens.
        result["ports"] = [f"127.0.0.1:{port}:{port}" for port in role.listens_on]
    return result


def _data_volumes(role: ProgramRole, order: DeploymentOrder) -> list[str]:
    return [f"{directory}:{directory}" for directory in order.data_dirs] if role.uses_host_network else []


def _reference(variable: Variable) -> str | None:
    """Returns the Compose expression for a required variable, which must be set; None passes on an optional variable
    if it is set.
    """
    return f"${{{variable.name}:?}}" if variable.is_required else None


def _example(order: DeploymentOrder) -> str:
    variables = {variable: None for role in order.roles for variable in role.variables}
    host = [f"{HOST_VARIABLE}="] if any(role.names_host for role in order.roles) else []
    lines = [f"{'' if variable.is_required else '#'}{variable.name}=" for variable in variables]
    return "\n".join(
        ["# For its owner alone (0600): docs/reference/settings.md.", "PENSTOCK_IMAGE=", *host, *lines, ""]
    )
