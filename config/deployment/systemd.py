"""systemd units: a service for each role, with an empty example of its settings file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from config.deployment.layout import (
    NOTE,
    PREFIX,
    SETTINGS_DIR,
    STATE_DIR,
    DeploymentOrder,
    example,
    fixed_variables,
    stop_seconds,
)
from config.deployment.roles import OPEN_FILES, Installation, ProgramRole

# Restrictions that all our programs tolerate. `MemoryDenyWriteExecute` is missing: Java and libffi generate code at run
# time.
HARDENING: Final = (
    "NoNewPrivileges=yes", "CapabilityBoundingSet=", "AmbientCapabilities=", "PrivateTmp=yes", "PrivateDevices=yes",
    "ProtectSystem=strict", "ProtectHome=yes", "ProtectClock=yes", "ProtectControlGroups=yes", "ProtectHostname=yes",
    "ProtectKernelLogs=yes", "ProtectKernelModules=yes", "ProtectKernelTunables=yes", "ProtectProc=invisible",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK", "RestrictNamespaces=yes", "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes", "LockPersonality=yes", "RemoveIPC=yes", "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service", "SystemCallErrorNumber=EPERM",
)  # fmt: skip
RESTART_S: Final = 2


def files(order: DeploymentOrder) -> dict[str, str]:
    """Returns the units and examples of settings, by the name of the file."""
    result = {f"{PREFIX}-{role.name}.service": unit(role, order) for role in order.roles}
    return result | {f"{role.name}.env.example": example(role) for role in order.roles}


def unit(role: ProgramRole, order: DeploymentOrder) -> str:
    installation = Installation(python=order.python, code=order.code, state_dir=STATE_DIR, host="%H")
    required = " ".join(variable.name for variable in role.required)
    # A settings file without required variables may be missing.
    file = f"{'' if required else '-'}{SETTINGS_DIR}/{role.name}.env"
    environment = (f'Environment="{name}={value}"' for name, value in fixed_variables(role).items())
    lines = [
        f"# {NOTE}",
        f"# {SETTINGS_DIR}/{role.name}.env has to set: {required or 'nothing'}",
        "[Unit]",
        f"Description=Penstock {role.name}: {role.title}",
        "Wants=network-online.target",
        "After=network-online.target",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=exec",
        f"User={order.user}",
        f"Group={order.user}",
        "UMask=0077",
        f"WorkingDirectory={order.code}",
        f"StateDirectory={PurePosixPath(STATE_DIR).name}",
        "StateDirectoryMode=0700",
        *environment,
        f"EnvironmentFile={file}",
        f"ExecStart={_command(role.command(installation))}",
        "Restart=always",
        f"RestartSec={RESTART_S}",
        # The main process ends its own children in order; any that remain are killed.
        "KillMode=mixed",
        f"TimeoutStopSec={stop_seconds(role)}",
        f"LimitNOFILE={OPEN_FILES}",
        *([f"Nice={role.niceness}"] if role.niceness else []),
        *HARDENING,
        *([f"ReadWritePaths={' '.join(order.data_dirs)}"] if role.uses_host_network and order.data_dirs else []),
        "",
        "[Install]",
        "WantedBy=multi-user.target",
        "",
    ]
    return "\n".join(lines)


def _command(arguments: Sequence[str]) -> str:
    """Returns a command line. Our words have neither spaces nor quotes; systemd would expand a `%` or a `$` in them."""
    return " ".join(arguments)
