"""Destination of an archive in a database: `postgresql://host:port/database?schema=…&table=…`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from archives.address import AddressRefused
from archives.tunnel import Networks

SCHEME: Final = "postgresql"
PORT: Final = 5432
SCHEMA: Final = "public"
VERIFY_FULL, REQUIRE = "verify-full", "require"
# Modes of libpq. Without TLS, rows and password would cross the Internet unencrypted. `require` encrypts, but accepts
# any certificate.
SSL_MODES: Final = (VERIFY_FULL, REQUIRE)
PARAMETERS: Final = frozenset({"schema", "table", "sslmode"})
# Table with the progress of archives, in the same schema as the tables that they load.
LOADS_TABLE: Final = "penstock_loads"

# PostgreSQL truncates longer identifiers.
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")
_DATABASE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}\Z")
# A comma would separate several hosts, a slash would name a socket.
_HOST: Final = re.compile(r"[A-Za-z0-9._:-]{1,253}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseAddress:
    """Table of a database, its server, and the mode of TLS, one of `SSL_MODES`."""

    host: str
    port: int
    database: str
    schema: str
    table: str
    ssl_mode: str

    @property
    def authority(self) -> str:
        """Host and port as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """Everything needed to connect to the destination in a Spark task."""

    address: DatabaseAddress
    user: str
    password: str = field(default="", repr=False)
    # Public networks that tenants may not reach, private networks that they may reach, and a file of CA certificates
    # (PEM) that are trusted instead of the system's.
    refused: Networks = ()
    private: Networks = ()
    ca_file: str = ""


def parse_database(url: str) -> DatabaseAddress:
    """Parses the address of a table. Raises `AddressRefused`."""
    try:
        parts = urlsplit(url)
        parameters = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True)
        host, port = parts.hostname or "", PORT if parts.port is None else parts.port
    except ValueError:
        raise AddressRefused("An address is postgresql://host:5432/database?schema=public&table=name.") from None
    if parts.scheme != SCHEME or not url.isascii() or any(character <= " " for character in url) or "#" in url:
        raise AddressRefused("It is not a URL.")
    if "@" in parts.netloc:
        raise AddressRefused("The address has no user. Name it in database_user.")
    if not _HOST.match(host) or not port:
        raise AddressRefused("The address must name one host, and its port if that is not 5432.")
    options = dict(parameters)
    if len(options) != len(parameters) or not options.keys() <= PARAMETERS:
        raise AddressRefused("Behind the path may be schema, table and sslmode, once each.")
    if not _DATABASE.match(database := parts.path.removeprefix("/")):
        raise AddressRefused("The name of the database must be 1 to 63 letters, digits and . _ -.")
    schema, table = options.get("schema", SCHEMA), options.get("table", "")
    if not _IDENTIFIER.match(schema) or not _IDENTIFIER.match(table):
        raise AddressRefused("Schema and table must be 1 to 63 letters, digits and _, and not begin with a digit.")
    if table == LOADS_TABLE:
        raise AddressRefused(f"{LOADS_TABLE} has the progress of archives. Name another table.")
    if (ssl_mode := options.get("sslmode", VERIFY_FULL)) not in SSL_MODES:
        raise AddressRefused("The sslmode must be verify-full or require.")
    return DatabaseAddress(host=host, port=port, database=database, schema=schema, table=table, ssl_mode=ssl_mode)
