"""Restore of a backup into a state directory and its services, or into the services that the environment points at.

Nothing is changed before the whole backup is checked. From the first change to the last the state directory contains a
note, with which `manage.py up` does not start. A restore that fails is undone.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from brokers.contract.zookeeper_tls import zookeeper_tls
from config.backup import database, zookeeper_epoch
from config.backup.archive import BackupDirectory
from config.backup.errors import BackupRefused
from config.backup.manifest import DATABASE_FILE, STATE_FOLDER, TREE_FILE, Manifest
from config.backup.tree import Identities, Tree, connected
from config.backup.tree_file import moved_ahead, read_nodes
from config.embedded.postgres import EmbeddedPostgres
from config.embedded.process import wait_until
from config.embedded.zookeeper import EmbeddedZooKeeper
from config.environment import ZOOKEEPER_CA_FILE, ZOOKEEPER_CONTROL_CERTIFICATE_FILE
from config.supervisor import services
from config.supervisor.options import UpOptions
from config.supervisor.state import RESTORE_FILE, SHAPE_FILE, StateDirectory, write_private_json

LEFTOVERS_GRACE_PERIOD_S: Final = 5.0
REPLACED_SUFFIX: Final = ".replaced"
SECRETS: Final = "secrets"
ZOOKEEPER: Final = "zookeeper"
# Key of the note in the state directory.
IS_CHECKED: Final = "is_checked"

ReportProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOrder:
    """Options of one restore. `known_migrations` are those of the installed code."""

    backup: Path
    state_dir: Path
    replace: bool = False
    sha256: str | None = None
    known_migrations: Iterable[tuple[str, str]] = ()
    # Called before a failed restore is undone, so that a second Ctrl-C does not interrupt the undo.
    before_undo: Callable[[], None] = lambda: None


def restore(order: RestoreOrder, report: ReportProgress) -> Manifest:
    """Restores a stopped product to the state of a backup.

    Raises:
        BackupRefused: the backup is damaged or newer than the code, or the target is in use or not empty.
        StartFailed: a service does not start.
    """
    archive = BackupDirectory(order.backup)
    manifest = archive.verify(order.sha256)
    _refuse_newer(manifest, order.known_migrations)
    report(f"The backup of {manifest.made_at} is whole: {len(manifest.files)} files")
    state = StateDirectory(order.state_dir)
    state.prepare()
    with state.lock():
        state.run_processes().end(grace_period_s=LEFTOVERS_GRACE_PERIOD_S)
        # A killed restore had found the target empty or had the permission to replace it: this one may continue it.
        is_allowed = order.replace or bool(state.restore_note().get(IS_CHECKED))
        _refuse_other_state(archive, manifest, state, replace=is_allowed)
        with _Target(state, archive, manifest, replace=is_allowed, before_undo=order.before_undo) as target:
            target.restore(report)
    return manifest


def _refuse_newer(manifest: Manifest, known: Iterable[tuple[str, str]]) -> None:
    unknown = manifest.unknown_migrations(known)
    if unknown:
        raise BackupRefused(
            f"The backup is of a newer Penstock ({manifest.penstock}): migration {unknown[-1]} is unknown here.",
            f"Install Penstock {manifest.penstock} or later, and restore with that. Nothing was changed.",
        )


def _refuse_other_state(archive: BackupDirectory, manifest: Manifest, state: StateDirectory, *, replace: bool) -> None:
    """Refuses a state directory with other secrets than the backup's: it belongs to another product."""
    if replace:
        return
    for name in manifest.state_files:
        file = state.root / name
        if file.exists() and not _is_same(file, archive.directory / STATE_FOLDER / name):
            raise _not_empty(f"{file} is another one than that of the backup")


def _not_empty(what: str) -> BackupRefused:
    return BackupRefused(
        f"{what}: the target is not empty.",
        "Name another --state-dir, or say --replace: what is there is lost then, except for logs. Nothing was changed.",
    )


class _Target:
    """Services into which a backup is restored, from their start to their stop."""

    def __init__(
        self,
        state: StateDirectory,
        archive: BackupDirectory,
        manifest: Manifest,
        *,
        replace: bool,
        before_undo: Callable[[], None],
    ) -> None:
        self._state, self._archive, self._manifest, self._replace = state, archive, manifest, replace
        self._before_undo = before_undo
        self._stack = ExitStack()
        self._undo = ExitStack()

    def __enter__(self) -> _Target:
        return self

    def __exit__(self, failure: object, *_details: object) -> None:
        """Stops the started services, and undoes all changes if the restore failed."""
        if failure is not None:
            self._before_undo()
        try:
            self._undo.close()
        finally:
            self._stack.close()

    def restore(self, report: ReportProgress) -> None:
        state = self._state
        self._write_note(is_checked=False)
        self._place_state_files()
        plan = services.plan(UpOptions(state_dir=state.root), state)
        postgres = next((service for service in plan.embedded if isinstance(service, EmbeddedPostgres)), None)
        zookeeper = next((service for service in plan.embedded if isinstance(service, EmbeddedZooKeeper)), None)
        address = plan.addresses["DATABASE_URL"]
        if postgres is not None:
            self._serve(postgres)
        self._refuse_used_database(address)
        if zookeeper is not None:
            self._recreate_zookeeper(zookeeper)
        with self._tree(plan.addresses) as tree:
            self._refuse_used_tree(tree)
            self._write_note(is_checked=True)
            self._undo.callback(database.revert_load, address)
            database.load(address, self._archive.directory / DATABASE_FILE, made_by=self._manifest.postgresql)
            report("PostgreSQL is restored")
            tree.empty()
            with (self._archive.directory / TREE_FILE).open("rb") as stream:
                count = tree.write(map(moved_ahead, read_nodes(stream)))
            report(f"ZooKeeper is restored: {count} documents")
        self._undo.pop_all()
        database.commit_load(address)
        for name in (SECRETS, ZOOKEEPER):
            shutil.rmtree(self._replaced_path(name), ignore_errors=True)
        (state.root / RESTORE_FILE).unlink(missing_ok=True)

    def _write_note(self, *, is_checked: bool) -> None:
        """Writes the note of an unfinished restore, by which the next start detects a restore that was killed."""
        note = self._state.root / RESTORE_FILE
        write_private_json(note, {"backup": str(self._archive.directory), IS_CHECKED: is_checked or self._replace})
        self._undo.callback(note.unlink, missing_ok=True)

    def _serve(self, service: EmbeddedPostgres) -> None:
        service.start()
        self._stack.callback(service.child.stop)
        wait_until(service.is_ready, child=service.child, timeout_s=services.START_TIMEOUT_S)

    def _refuse_used_database(self, address: str) -> None:
        other_sessions = database.other_sessions(address)
        if other_sessions:
            raise BackupRefused(
                f"{other_sessions} clients are connected to the database.",
                "Stop web, worker, pipeline and agents on all machines. Nothing was changed.",
            )
        if not self._replace and not database.is_empty(address):
            raise _not_empty("The database has tables")

    def _refuse_used_tree(self, tree: Tree) -> None:
        brokers = tree.live_brokers()
        if brokers:
            raise BackupRefused(
                f"Brokers run: {', '.join(brokers[:5])}.",
                "Stop the agents of all machines, wait ten seconds, and run the command again. Nothing was changed.",
            )
        if not self._replace and tree.has_documents():
            raise _not_empty("ZooKeeper has documents")
        if tree.newest_transaction() <= self._manifest.newest_transaction:
            epoch = (self._manifest.newest_transaction >> zookeeper_epoch.EPOCH_BITS) + 1
            raise BackupRefused(
                f"ZooKeeper's transaction ids begin at {tree.newest_transaction():#x}, below the backup's"
                f" ({self._manifest.newest_transaction:#x}): brokers would be taken for earlier lives of themselves.",
                f"Restart its leader, {epoch} times at most, until the Zxid of `srvr` is above that: each election adds"
                " 0x100000000. Nothing was changed.",
            )

    @contextmanager
    def _tree(self, addresses: dict[str, str]) -> Iterator[Tree]:
        identities = Identities.of_files(
            addresses.get(services.CONTROL_FILE, ""), addresses.get(services.BROKER_FILE, "")
        )
        tls_files = (os.environ.get(name, "") for name in (ZOOKEEPER_CA_FILE, ZOOKEEPER_CONTROL_CERTIFICATE_FILE))
        with connected(addresses["ZOOKEEPER_URL"], identities, zookeeper_tls(*tls_files)) as tree:
            tree.ensure_root()
            yield tree

    def _recreate_zookeeper(self, server: EmbeddedZooKeeper) -> None:
        """Starts the embedded server with an empty directory; the previous one is put back if the restore fails."""
        if not self._replace and zookeeper_epoch.holds_data(server.directory):
            raise _not_empty(f"{server.directory} has data")
        directories = (server.directory, self._replaced_path(ZOOKEEPER))
        transactions = [zookeeper_epoch.newest_transaction(directory) for directory in directories]
        epoch = zookeeper_epoch.next_epoch([self._manifest.newest_transaction, *transactions], time.time())
        self._move_away(ZOOKEEPER)
        self._undo.callback(server.child.stop)
        zookeeper_epoch.begin(server, epoch)
        self._stack.callback(server.child.stop)

    def _place_state_files(self) -> None:
        """Copies the backup's secrets and addresses, with which services are started. Equal files are not replaced."""
        files = {name: (self._archive.directory / STATE_FOLDER / name) for name in self._manifest.state_files}
        is_resumed = self._replaced_path(SECRETS).exists()
        if not is_resumed and all(_is_same(self._state.root / name, file) for name, file in files.items()):
            return
        self._move_away(SECRETS)
        for name, file in files.items():
            target = self._state.root / name
            if name == SHAPE_FILE:
                self._undo.callback(_put_back, target, target.read_bytes() if target.is_file() else None)
            _place(target, file.read_bytes())

    def _replaced_path(self, name: str) -> Path:
        return self._state.root / f"{name}{REPLACED_SUFFIX}"

    def _move_away(self, name: str) -> None:
        """Moves a directory of the state directory away. If the restore fails, its replacement is deleted."""
        current, aside = self._state.root / name, self._replaced_path(name)
        if aside.exists():  # a restore was killed here: the first one set aside is the one to keep
            shutil.rmtree(current, ignore_errors=True)
        elif current.exists():
            current.rename(aside)

        def put_back() -> None:
            shutil.rmtree(current, ignore_errors=True)
            if aside.exists():
                aside.rename(current)

        self._undo.callback(put_back)


def _is_same(file: Path, expected: Path) -> bool:
    return file.is_file() and file.read_bytes() == expected.read_bytes()


def _put_back(file: Path, content: bytes | None) -> None:
    if content is None:
        file.unlink(missing_ok=True)
    else:
        _place(file, content)


def _place(file: Path, content: bytes) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
