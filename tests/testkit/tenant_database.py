"""A tenant's PostgreSQL: a database of the tests' server with a user and a password, behind TLS on a TCP port."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from config.embedded.postgres import PORT, SOCKET_NAME, USER, EmbeddedPostgres
from tests.testkit.engine import eventually

DATABASE = "lake"
LOADER = "loader"
PASSWORD = "open sesame"
_AT_ONCE_BYTES = 65_536
_TLS_WANTED = struct.pack("!ii", 8, 80_877_103)


@dataclass(frozen=True, slots=True)
class TenantDatabase:
    """Address of the database for archives; `admin` connects to it without a password."""

    port: int
    socket_dir: Path

    def url(self, table: str, host: str = "127.0.0.1", **options: str) -> str:
        more = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://{host}:{self.port}/{DATABASE}?table={table}{more}"

    @contextmanager
    def admin(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(
            host=str(self.socket_dir), port=PORT, user=USER, dbname=DATABASE, autocommit=True
        ) as connection:
            yield connection

    def rows(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with self.admin() as connection:
            return connection.execute(query.encode(), arguments or None).fetchall()

    def execute(self, *commands: str, as_user: str = LOADER) -> None:
        with self.admin() as connection:
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(as_user)))
            for command in commands:
                connection.execute(command.encode())


def make_database(server: EmbeddedPostgres) -> None:
    """Creates the database and its user, who signs in by password, anew if an earlier module made them."""
    with psycopg.connect(
        host=str(server.socket_dir), port=PORT, user=USER, dbname="postgres", autocommit=True
    ) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(DATABASE)))
        connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(LOADER)))
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(LOADER), sql.Literal(PASSWORD))
        )
        connection.execute(
            sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(DATABASE), sql.Identifier(LOADER))
        )
        with (server.directory / "pg_hba.conf").open("a", encoding="utf-8") as access:
            access.write(f"local {DATABASE} {LOADER} scram-sha-256\n")
        connection.execute("SELECT pg_reload_conf()")

    def lets_in() -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(
                host=str(server.socket_dir), port=PORT, user=LOADER, password=PASSWORD, dbname=DATABASE
            ).close()
            return True
        return False

    eventually(lets_in, "the loader may sign in")


@contextmanager
def listening_over_tls(server: EmbeddedPostgres, certificate: Path, host: str = "127.0.0.1") -> Iterator[int]:
    """Port at which the server is reached over TLS, as PostgreSQL begins it: plain, after a request."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listener = socket.create_server((host, 0))

    def serve(plain: socket.socket) -> None:
        with contextlib.suppress(OSError), plain:
            if plain.recv(len(_TLS_WANTED), socket.MSG_WAITALL) != _TLS_WANTED:
                return
            plain.sendall(b"S")
            with (
                context.wrap_socket(plain, server_side=True) as outside,
                socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as inside,
            ):
                inside.connect(str(server.socket_dir / SOCKET_NAME))
                _pump(outside, inside)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _pump(outside: ssl.SSLSocket, inside: socket.socket) -> None:
    while True:
        # Decrypted data is not seen by select.
        ready = [outside] if outside.pending() else select.select([outside, inside], [], [])[0]
        for side in ready:
            data = side.recv(_AT_ONCE_BYTES)
            if not data:
                return
            (inside if side is outside else outside).sendall(data)
