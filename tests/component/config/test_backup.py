"""Backup and restore with a real PostgreSQL and a real ZooKeeper: of one moment, complete, or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from kazoo.client import KazooClient

from brokers.contract import paths
from brokers.contract.zookeeper_access import CLUSTERS_ROOT, TreeAccess, read_credentials
from brokers.infra.zookeeper import kazoo_acl
from config.backup.archive import BackupDirectory
from config.backup.backing_up import BackupResult, back_up
from config.backup.errors import BackupRefused
from config.backup.manifest import DATABASE_FILE, MANIFEST_FILE, TREE_FILE
from config.backup.restoring import RestoreOrder, restore
from config.embedded.process import StartFailed, wait_until
from config.embedded.redis import EmbeddedRedis
from config.environment import BASE_DIR, Environment
from config.supervisor import services
from config.supervisor.options import UpOptions
from config.supervisor.state import RESTORE_FILE, AlreadyRunning, StateDirectory, write_private_json
from tests.testkit.stack import FOREIGN_VARIABLES, processes_of
from tests.testkit.waiting import eventually

START_TIMEOUT_S = 60.0
CLUSTER = paths.chroot("cl-1")
STATE = f"{CLUSTER}{paths.partition_state('ins-1.orders', 0)}"
DOCUMENTS = {
    CLUSTER: b"",
    f"{CLUSTER}/cluster": b"",
    f"{CLUSTER}{paths.CLUSTER_ID}": b'{"id": "x"}',
    f"{CLUSTER}/brokers": b"",
    f"{CLUSTER}{paths.TOPICS}": b"",
    f"{CLUSTER}{paths.topic('ins-1.orders')}": b'{"partitions": {"0": [1]}}',
    f"{CLUSTER}{paths.partitions('ins-1.orders')}": b"",
    f"{CLUSTER}{paths.partition('ins-1.orders', 0)}": b"",
    f"{CLUSTER}/ckafka": b"",
    f"{CLUSTER}{paths.INSTANCES}": b"",
    f"{CLUSTER}{paths.instance('ins-1')}": b'{"generation": 3}',
    f"{CLUSTER}{paths.CHANGES}": b"",
}
SCHEMA = """
CREATE TABLE django_migrations (app text, name text);
INSERT INTO django_migrations VALUES ('tenants', '0001_initial');
CREATE TABLE brokers_cluster (name text, zookeeper text, state text);
CREATE TABLE debits (id int PRIMARY KEY);
CREATE TABLE credits (id int PRIMARY KEY REFERENCES debits);
"""
MIGRATIONS = [("tenants", "0001_initial")]
PASSWORD = "on-no-command-line"


@pytest.fixture(autouse=True)
def nothing_is_external(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FOREIGN_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@dataclass
class Product:
    """A state directory with its PostgreSQL and ZooKeeper, without the product's programs."""

    state: StateDirectory
    addresses: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def serving(self) -> Iterator[Product]:
        """Runs both services, started in the way of `up`."""
        plan = services.plan(UpOptions(state_dir=self.state.root), self.state)
        self.addresses = plan.addresses
        self.state.write_addresses(plan.addresses)
        started = [item for item in plan.embedded if not isinstance(item, EmbeddedRedis)]
        try:
            for item in started:
                item.start()
            for item in started:
                wait_until(item.is_ready, child=item.child, timeout_s=START_TIMEOUT_S)
            yield self
        finally:
            for item in started:
                item.child.stop()

    @contextmanager
    def database(self) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self.addresses["DATABASE_URL"]) as link:
            yield link

    @contextmanager
    def tree(self) -> Iterator[KazooClient]:
        """Returns a session with both identities."""
        known = [read_credentials(Path(self.addresses[name])) for name in (services.CONTROL_FILE, services.BROKER_FILE)]
        client = KazooClient(hosts=self.addresses["ZOOKEEPER_URL"], auth_data=[item.auth for item in known])
        client.start(timeout=START_TIMEOUT_S)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def fill(self) -> None:
        with self.database() as link:
            link.execute(SCHEMA)
            link.execute("INSERT INTO debits VALUES (0)")
        with self.tree() as client:
            for path, data in DOCUMENTS.items():
                client.create(path, data, acl=self.acl(path))
            body = {"leader": 1, "leader_epoch": 4, "controller_epoch": 1, "isr": [1]}
            client.create(STATE, json.dumps(body).encode(), acl=self.acl(STATE))
            client.create(f"{CLUSTER}{paths.CHANGES}/change_", b"{}", sequence=True, acl=self.acl(CLUSTER))

    def acl(self, path: str) -> Any:
        names = (services.BROKER_FILE, services.CONTROL_FILE)
        broker, control = (read_credentials(Path(self.addresses[name])).digest for name in names)
        return kazoo_acl(TreeAccess(broker=broker, control=control).absolute_acl(path))

    def debits(self) -> set[int]:
        with self.database() as link:
            return {row[0] for row in link.execute("SELECT id FROM debits")}

    def environment(self, monkeypatch: pytest.MonkeyPatch) -> Environment:
        """Returns the addresses and secrets for a command on this state directory."""
        monkeypatch.setenv("PENSTOCK_STATE_DIR", str(self.state.root))
        return Environment.read()


def fresh(folder: Path) -> Product:
    state = StateDirectory(folder)
    state.prepare()
    return Product(state)


def says_nothing(_line: str) -> None:
    return None


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A running product with rows and documents."""
    made = fresh(tmp_path_factory.mktemp("product") / "state")
    with pytest.MonkeyPatch.context() as patch:
        for name in FOREIGN_VARIABLES:
            patch.delenv(name, raising=False)
        services.ensure_secrets(made.state)
        made.state.resolve_port_base(25_000)
        with made.serving():
            made.fill()
            yield made


@pytest.fixture()
def backup(product: Product, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, BackupResult]:
    directory = tmp_path / "backup"
    return directory, back_up(directory, product.environment(monkeypatch), says_nothing)


def wanted(directory: Path, target: Product, **more: Any) -> RestoreOrder:
    return RestoreOrder(backup=directory, state_dir=target.state.root, known_migrations=MIGRATIONS, **more)


def contents(folder: Path) -> dict[str, bytes]:
    """Returns every file of a state directory except logs, locks, and files that a server writes at each start."""
    changing = {"postgres", "logs", "java", "supervisor.lock", "ports.json"}
    files = (file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    return {
        name: file.read_bytes()
        for file in files
        if (name := file.relative_to(folder).as_posix()).split("/")[0] not in changing
    }


def test_a_restored_product_has_the_same_rows_documents_and_secrets(
    product: Product, backup: tuple[Path, BackupResult], tmp_path: Path
) -> None:
    directory, made = backup
    target = fresh(tmp_path / "target")
    restore(wanted(directory, target, sha256=made.sha256), says_nothing)
    assert contents(target.state.root / "secrets") == contents(product.state.root / "secrets")
    assert target.state.resolved_port_base(19_000) == 25_000
    with target.serving():
        assert target.debits() == product.debits()
        with target.database() as link:
            assert link.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'penstock%'").fetchall() == []
        with target.tree() as client:
            for path, data in DOCUMENTS.items():
                found, stat = client.get(path)
                assert found == data, path
                assert stat.czxid > made.manifest.newest_transaction
                assert {(acl.perms, acl.id) for acl in client.get_acls(path)[0]} == {
                    (acl.perms, acl.id) for acl in target.acl(path)
                }
            assert client.get_children(f"{CLUSTER}{paths.CHANGES}") == []
            assert json.loads(client.get(STATE)[0])["leader_epoch"] > 4
    assert not (target.state.root / RESTORE_FILE).exists()


def test_a_backup_beside_writers_is_of_one_moment(
    product: Product, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, must_stop, is_writing = product.environment(monkeypatch), threading.Event(), threading.Event()

    def write() -> None:
        with product.tree() as client, psycopg.connect(product.addresses["DATABASE_URL"], autocommit=True) as link:
            number = 1
            while not must_stop.is_set():
                with link.transaction():
                    link.execute("INSERT INTO debits VALUES (%s)", (number,))
                    link.execute("INSERT INTO credits VALUES (%s)", (number,))
                client.set(f"{CLUSTER}{paths.instance('ins-1')}", b'{"generation": %d}' % number)
                is_writing.set()
                number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert is_writing.wait(30)
        made = back_up(tmp_path / "backup", environment, says_nothing)
    finally:
        must_stop.set()
        writer.join()
        with product.tree() as client:
            client.set(f"{CLUSTER}{paths.instance('ins-1')}", DOCUMENTS[f"{CLUSTER}{paths.instance('ins-1')}"])
    target = fresh(tmp_path / "target")
    restore(wanted(tmp_path / "backup", target, sha256=made.sha256), says_nothing)
    with target.serving(), target.database() as link:
        debits, credits = (
            {row[0] for row in link.execute(f"SELECT id FROM {table}")} for table in ("debits", "credits")
        )
    assert debits - {0} == credits


@pytest.mark.parametrize("name", [DATABASE_FILE, TREE_FILE, "state/secrets/secret_key"])
def test_a_tampered_backup_changes_nothing(backup: tuple[Path, BackupResult], tmp_path: Path, name: str) -> None:
    directory, _ = backup
    content = (directory / name).read_bytes()
    (directory / name).write_bytes(bytes([content[0] ^ 1]) + content[1:])
    target = tmp_path / "target"
    with pytest.raises(BackupRefused, match="not the file that was backed up"):
        restore(RestoreOrder(backup=directory, state_dir=target, known_migrations=MIGRATIONS), says_nothing)
    assert not target.exists()


def test_a_newer_backup_is_refused_with_the_version_to_install(
    backup: tuple[Path, BackupResult], tmp_path: Path
) -> None:
    directory, made = backup
    with pytest.raises(BackupRefused, match=r"tenants\.0001_initial") as refusal:
        restore(RestoreOrder(backup=directory, state_dir=tmp_path / "target", known_migrations=[]), says_nothing)
    assert made.manifest.penstock in refusal.value.next_step
    assert not (tmp_path / "target").exists()


def test_a_running_product_is_not_restored_over(product: Product, backup: tuple[Path, BackupResult]) -> None:
    before = contents(product.state.root)
    with product.state.lock(), pytest.raises(AlreadyRunning):
        restore(wanted(backup[0], product, replace=True), says_nothing)
    assert contents(product.state.root) == before


@pytest.fixture()
def other(backup: tuple[Path, BackupResult], tmp_path: Path) -> Product:
    """A stopped product with different rows, documents and secrets."""
    result = fresh(tmp_path / "other")
    services.ensure_secrets(result.state)
    with result.serving():
        result.fill()
        with result.database() as link:
            link.execute("INSERT INTO debits VALUES (77)")
    return result


def test_a_target_that_holds_something_is_replaced_only_when_that_is_said(
    product: Product, backup: tuple[Path, BackupResult], other: Product
) -> None:
    before = contents(other.state.root)
    with pytest.raises(BackupRefused, match="not empty") as refusal:
        restore(wanted(backup[0], other), says_nothing)
    assert "--replace" in refusal.value.next_step
    assert contents(other.state.root) == before
    restore(wanted(backup[0], other, replace=True), says_nothing)
    assert contents(other.state.root / "secrets") == contents(product.state.root / "secrets")
    assert not list(other.state.root.glob("*.replaced"))
    with other.serving():
        assert other.debits() == product.debits()


def test_a_restore_that_fails_puts_everything_back(backup: tuple[Path, BackupResult], other: Product) -> None:
    directory, _ = backup
    (directory / DATABASE_FILE).write_bytes(b"no dump")
    (directory / MANIFEST_FILE).unlink()
    archive = BackupDirectory(directory)
    archive.complete(replace(backup[1].manifest, files=archive.entries()))
    before = contents(other.state.root / "secrets")
    with pytest.raises(BackupRefused, match="pg_restore failed"):
        restore(wanted(directory, other, replace=True), says_nothing)
    assert contents(other.state.root / "secrets") == before
    assert not (other.state.root / RESTORE_FILE).exists()
    assert not list(other.state.root.glob("*.replaced"))
    with other.serving(), other.tree() as client:
        assert 77 in other.debits()
        assert client.get(STATE)


def test_after_a_restore_that_was_killed_no_product_starts_until_it_was_run_again(
    product: Product, backup: tuple[Path, BackupResult], other: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_arguments: object) -> None:
        os._exit(9)

    pid = os.fork()
    if pid == 0:  # as far as both are loaded, and not a step further
        monkeypatch.setattr("config.backup.database.commit_load", kill)
        restore(wanted(backup[0], other, replace=True), says_nothing)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    eventually(lambda: not processes_of(other.state.root), within_s=30, what="its servers to end")
    with pytest.raises(StartFailed, match="interrupted") as refusal:
        other.state.require_whole()
    assert f"manage.py restore {backup[0]}" in refusal.value.next_step
    restore(wanted(backup[0], other), says_nothing)
    other.state.require_whole()
    with other.serving():
        assert other.debits() == product.debits()


@contextmanager
def backing_up(product: Product, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Runs `manage.py backup`, blocked in the middle of the dump by a lock on a table."""
    with psycopg.connect(product.addresses["DATABASE_URL"]) as link:
        link.execute("LOCK TABLE debits IN ACCESS EXCLUSIVE MODE")
        environment = {name: value for name, value in os.environ.items() if name not in FOREIGN_VARIABLES}
        address = product.addresses["DATABASE_URL"].replace("penstock@", f"penstock:{PASSWORD}@")
        process = subprocess.Popen(
            [sys.executable, "manage.py", "backup", str(directory), "--state-dir", str(product.state.root)],
            cwd=BASE_DIR,
            env=environment | {"DATABASE_URL": address},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            eventually(lambda: dumping(process.pid), within_s=60, what="pg_dump to wait for the lock")
            yield process
        finally:
            process.kill()
            process.communicate()


def dumping(pid: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children(recursive=True) if child.name() == "pg_dump"]


def test_an_interrupted_backup_leaves_nothing(product: Product, tmp_path: Path) -> None:
    directory = tmp_path / "backup"
    with backing_up(product, directory) as process:
        assert (directory / TREE_FILE).exists()
        (dump,) = dumping(process.pid)
        assert not [word for word in (*dump.cmdline(), *process.args) if PASSWORD in word]
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "Interrupted (SIGTERM)" in errors
        assert list(directory.iterdir()) == []


def test_a_backup_that_was_killed_does_not_pass_for_one(product: Product, tmp_path: Path) -> None:
    directory = tmp_path / "backup"
    with backing_up(product, directory) as process:
        process.kill()
        process.wait()
    with pytest.raises(BackupRefused, match="interrupted"):
        restore(wanted(directory, fresh(tmp_path / "target")), says_nothing)
    with pytest.raises(BackupRefused, match="not empty"):
        BackupDirectory(directory).prepare()


def test_services_that_are_in_use_elsewhere_are_refused(
    backup: tuple[Path, BackupResult], other: Product, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Services of one state directory, given as external ones to another, empty one."""
    target = fresh(tmp_path / "target")
    with other.serving():
        for name in ("DATABASE_URL", "ZOOKEEPER_URL", services.CONTROL_FILE, services.BROKER_FILE):
            monkeypatch.setenv(name, other.addresses[name])
        monkeypatch.setenv("PENSTOCK_STATE_DIR", str(target.state.root))
        asked = wanted(backup[0], target, replace=True)
        with other.database(), pytest.raises(BackupRefused, match="1 clients are connected"):
            restore(asked, says_nothing)
        with other.tree() as client:
            ids = f"{CLUSTER}{paths.BROKER_IDS}"
            client.create(ids, acl=other.acl(ids))
            client.create(f"{ids}/7", ephemeral=True, acl=other.acl(ids))
            with pytest.raises(BackupRefused, match="Brokers run: cl-1/7"):
                restore(asked, says_nothing)
        made = replace(backup[1].manifest, newest_transaction=1 << 60)
        (backup[0] / MANIFEST_FILE).unlink()
        BackupDirectory(backup[0]).complete(made)
        with pytest.raises(BackupRefused, match="transaction ids begin at"):
            restore(asked, says_nothing)
        assert 77 in other.debits()
        (backup[0] / MANIFEST_FILE).unlink()
        BackupDirectory(backup[0]).complete(replace(made, newest_transaction=0))
        restore(asked, says_nothing)
        assert 77 not in other.debits()
        with other.tree() as client:
            assert client.get(f"{CLUSTER}{paths.CLUSTER_ID}")[0] == DOCUMENTS[f"{CLUSTER}{paths.CLUSTER_ID}"]
            assert client.get_children(CLUSTERS_ROOT) == ["cl-1"]


def test_a_cluster_in_another_ensemble_is_not_silently_left_out(
    product: Product, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with product.database() as link:
        link.execute("INSERT INTO brokers_cluster VALUES ('far', 'zk9:2181', 'ready')")
    try:
        with pytest.raises(BackupRefused, match="Cluster far"):
            back_up(tmp_path / "backup", product.environment(monkeypatch), says_nothing)
    finally:
        with product.database() as link:
            link.execute("DELETE FROM brokers_cluster")
    assert list((tmp_path / "backup").iterdir()) == []


def test_a_product_that_does_not_run_is_not_backed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = fresh(tmp_path / "stopped")
    monkeypatch.setenv("DATABASE_URL", f"postgres://penstock@{str(tmp_path).replace('/', '%2F')}:5432/penstock")
    with pytest.raises(BackupRefused, match="PostgreSQL refused"):
        back_up(tmp_path / "backup", stopped.environment(monkeypatch), says_nothing)
    assert list((tmp_path / "backup").iterdir()) == []


def test_up_does_not_start_beside_a_restore_that_was_interrupted(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.prepare()
    write_private_json(state.root / RESTORE_FILE, {"backup": "/backup/monday"})
    done = subprocess.run(
        [sys.executable, "manage.py", "up", "--state-dir", str(state.root)],
        cwd=BASE_DIR, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "A restore into" in done.stderr
    assert f"manage.py restore /backup/monday --state-dir {state.root}" in done.stderr
