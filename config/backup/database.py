"""Dump and restore of PostgreSQL by its own tools. A dump is loaded beside the present database, and then replaces
it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from brokers.infra.child_environment import system_variables
from config.backup.errors import BackupRefused
from config.embedded.postgres import postgres_binaries

CONNECT_TIMEOUT_S: Final = 10
SCHEMA: Final = "public"
# Name of the replaced schema until the restored one is complete.
REPLACED: Final = "penstock_replaced"
_MAJOR: Final = 10_000  # of `server_version_num`
_LAST_LINES: Final = 5


def server_version(url: str) -> int:
    """Returns the major version of the server. Raises `BackupRefused` if it does not accept us."""
    with connected(url) as link:
        return link.info.server_version // _MAJOR


def dump(url: str, target: Path) -> None:
    """Writes the database to an existing file, in the custom format of `pg_restore`.

    Raises:
        BackupRefused: there is no `pg_dump` that is as new as the server, or it fails.
    """
    tool = _tool("pg_dump", server_version(url))
    options = ["--format=custom", "--no-owner", "--no-privileges", f"--exclude-schema={REPLACED}"]
    _run([tool, *options, f"--file={target}"], url)


def is_empty(url: str) -> bool:
    """True if the database has no table."""
    with connected(url) as link:
        row = link.execute("SELECT 1 FROM pg_tables WHERE schemaname IN (%s, %s) LIMIT 1", (SCHEMA, REPLACED))
        return row.fetchone() is None


def other_sessions(url: str) -> int:
    """Returns the number of other clients that are connected to the database."""
    with connected(url) as link:
        row = link.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        ).fetchone()
    return int(row[0]) if row else 0


def load(url: str, source: Path, *, made_by: int) -> None:
    """Loads a dump beside the present database. `commit_load` makes it final, `revert_load` undoes it.

    Raises:
        BackupRefused: the server is older than the one of the dump, or refuses it. Nothing was changed then.
    """
    server = server_version(url)
    if server < made_by:
        raise BackupRefused(
            f"The backup is of PostgreSQL {made_by}, and this server is PostgreSQL {server}.",
            f"Point DATABASE_URL at PostgreSQL {made_by} or later.",
        )
    tool = _tool("pg_restore", made_by)
    with connected(url) as link:
        if _has_schema(link, REPLACED):  # an earlier restore was killed here; the schema it loaded is incomplete
            link.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        else:
            link.execute(f"ALTER SCHEMA {SCHEMA} RENAME TO {REPLACED}")
        link.execute(f"CREATE SCHEMA {SCHEMA}")
    try:
        _run([tool, "--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error", str(source)], url)
    except BaseException:
        revert_load(url)
        raise


def commit_load(url: str) -> None:
    """Drops the schema that the loaded dump replaces."""
    with connected(url) as link:
        link.execute(f"DROP SCHEMA IF EXISTS {REPLACED} CASCADE")


def revert_load(url: str) -> None:
    """Puts back the schema that was in place before `load`."""
    with connected(url) as link:
        if _has_schema(link, REPLACED):
            link.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
            link.execute(f"ALTER SCHEMA {REPLACED} RENAME TO {SCHEMA}")


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection]:
    """Yields a connection whose transaction is committed at the end of the block. Raises `BackupRefused`."""
    try:
        with psycopg.connect(url, connect_timeout=CONNECT_TIMEOUT_S) as link:
            yield link
    except psycopg.Error as error:
        raise BackupRefused(
            f"PostgreSQL refused: {' '.join(str(error).split()) or type(error).__name__}.",
            "Is the product's PostgreSQL running, and DATABASE_URL right? Its user has to own the database.",
        ) from error


def _has_schema(link: psycopg.Connection, name: str) -> bool:
    return link.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (name,)).fetchone() is not None


def _tool(name: str, version: int) -> str:
    """Returns the path of a PostgreSQL tool that is not older than the server: ours, otherwise the one in PATH."""
    candidates = [str(postgres_binaries() / name), shutil.which(name)]
    for candidate in filter(None, candidates):
        if _version_of(candidate) >= version:
            return candidate
    raise BackupRefused(
        f"There is no {name} for PostgreSQL {version}.",
        f"Install PostgreSQL {version}'s client programs and put them in PATH.",
    )


def _version_of(tool: str) -> int:
    result = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False, env=system_variables())
    match = re.search(r"\(PostgreSQL\) (\d+)", result.stdout)
    return int(match[1]) if match else 0


def _run(command: list[str], url: str) -> None:
    """Runs a tool. The password is in its environment, because other accounts can read command lines."""
    parts = conninfo_to_dict(url)
    password = parts.pop("password", None)
    environment = system_variables() | {"LC_ALL": "C"}
    environment |= {name: value for name, value in os.environ.items() if name.startswith("PG")}
    if password is not None:
        environment["PGPASSWORD"] = str(password)
    result = subprocess.run(
        [*command, "--no-password", f"--dbname={make_conninfo('', **parts)}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        check=False,
    )
    if result.returncode != 0:
        last = " ".join(result.stderr.decode("utf-8", "replace").splitlines()[-_LAST_LINES:])
        raise BackupRefused(
            f"{Path(command[0]).name} failed: {last or f'exit code {result.returncode}'}",
            "See to what it names, and run the command again.",
        )
