"""Backup of a product, which may run meanwhile: ZooKeeper first, then PostgreSQL, then secrets.

ZooKeeper comes first because its documents are derived from PostgreSQL's rows: an object that is created in between has
a row without documents, which the reconciler publishes, and never a document without a row.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from brokers.contract.version import VERSION
from brokers.contract.zookeeper_tls import zookeeper_tls
from config.backup import database
from config.backup.archive import BackupDirectory
from config.backup.errors import BackupRefused
from config.backup.manifest import DATABASE_FILE, TREE_FILE, Manifest, moment
from config.backup.tree import Identities, TreeReading, connected
from config.backup.tree_file import write_nodes
from config.environment import Environment

# Variables that point at secrets outside of the state directory, which a backup does not copy.
EXTERNAL_SECRET_VARIABLES: Final = (
    "SECRET_KEY", "PENSTOCK_TLS_DIR", "PENSTOCK_INTERNAL_TLS_DIR", "PENSTOCK_INTERNAL_CERTIFICATE_FILE",
    "PENSTOCK_CONTROL_SECRET_FILE", "PENSTOCK_ZOOKEEPER_CA_FILE", "PENSTOCK_ZOOKEEPER_CONTROL_CERTIFICATE_FILE",
    "PENSTOCK_ZOOKEEPER_BROKER_CERTIFICATE_FILE", "PENSTOCK_EMAIL_PASSWORD", "PENSTOCK_PAYMENTS_SECRETS",
)  # fmt: skip
_MIGRATIONS: Final = "SELECT app, name FROM django_migrations ORDER BY app, name"
_FOREIGN_TREES: Final = "SELECT name, zookeeper FROM brokers_cluster WHERE zookeeper <> '' AND state <> 'retired'"


@dataclass(frozen=True, slots=True)
class BackupResult:
    """A complete backup, and the checksum of its manifest."""

    manifest: Manifest
    sha256: str


def back_up(directory: Path, environment: Environment, say: Callable[[str], None]) -> BackupResult:
    """Writes a backup into a new directory, which is left empty if the backup fails or is interrupted.

    Raises:
        BackupRefused: with the reason and the next step.
    """
    archive = BackupDirectory(directory)
    archive.prepare()
    try:
        return _write(archive, environment, say)
    except BaseException:
        archive.discard()
        raise


def _write(archive: BackupDirectory, environment: Environment, say: Callable[[str], None]) -> BackupResult:
    made_at = moment(datetime.now(UTC))
    migrations = _migrations(environment.database_url)
    reading, newest, is_consistent = _read_tree(environment)
    with archive.create(TREE_FILE) as stream:
        write_nodes(stream, reading.nodes.values())
    say(f"ZooKeeper: {len(reading.nodes)} documents of {len(reading.clusters)} clusters")
    if not is_consistent:
        say("           they changed all the time while they were read: make another backup at a quieter time")
    archive.create(DATABASE_FILE).close()
    database.dump(environment.database_url, archive.directory / DATABASE_FILE)
    say(f"PostgreSQL: {(archive.directory / DATABASE_FILE).stat().st_size:,} bytes")
    archive.copy_state(environment.state_dir)
    entries = archive.entries()
    say(f"Secrets: {len(entries) - 2} files")
    manifest = Manifest(
        penstock=VERSION,
        made_at=made_at,
        postgresql=database.server_version(environment.database_url),
        migrations=migrations,
        clusters=reading.clusters,
        nodes=len(reading.nodes),
        newest_transaction=newest,
        is_consistent=is_consistent,
        outside=outside(environment),
        files=entries,
    )
    return BackupResult(manifest, archive.complete(manifest))


def outside(environment: Environment) -> tuple[str, ...]:
    """Returns the configured variables that point at secrets outside of the backup."""
    files = {
        "PENSTOCK_ZOOKEEPER_CONTROL_FILE": environment.zookeeper_control_file,
        "PENSTOCK_ZOOKEEPER_BROKER_FILE": environment.zookeeper_broker_file,
    }
    names = [name for name in EXTERNAL_SECRET_VARIABLES if os.environ.get(name)]
    names += [name for name, file in files.items() if file and not Path(file).is_relative_to(environment.state_dir)]
    return tuple(names)


def _read_tree(environment: Environment) -> tuple[TreeReading, int, bool]:
    identities = Identities.of_files(environment.zookeeper_control_file, environment.zookeeper_broker_file)
    tls = zookeeper_tls(environment.zookeeper_ca_file, environment.zookeeper_control_certificate_file)
    with connected(environment.zookeeper_url, identities, tls) as tree:
        reading, is_consistent = tree.read()
        return reading, tree.newest_transaction(), is_consistent


def _migrations(url: str) -> dict[str, tuple[str, ...]]:
    """Returns the migrations of the database, by app.

    Raises:
        BackupRefused: it is not a database of Penstock, or has clusters in other ZooKeeper ensembles.
    """
    with database.connected(url) as link:
        foreign = link.execute(_FOREIGN_TREES).fetchall()
        rows = link.execute(_MIGRATIONS).fetchall()
    if foreign:
        name, address = foreign[0]
        raise BackupRefused(
            f"Cluster {name} lies in a ZooKeeper of its own ({address}), which this backup would not have.",
            "Back up that ensemble by its own means; a backup is of one ensemble.",
        )
    result: dict[str, tuple[str, ...]] = {}
    for app, name in rows:
        result[app] = (*result.get(app, ()), name)
    return result
