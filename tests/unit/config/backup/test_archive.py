"""Files of a backup: private to their owner, complete, and verified to the last byte."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from config.backup.archive import BackupDirectory
from config.backup.errors import BackupRefused
from config.backup.limits import SECRET_FILE_BYTES_MAX
from config.backup.manifest import DATABASE_FILE, MANIFEST_FILE, TREE_FILE
from tests.unit.config.backup.test_manifest import WHOLE

SECRETS = {"secrets/secret_key": b"k", "secrets/tls/ca.pem": b"certificate", "shape.json": b'{"port_base": 1}'}


@pytest.fixture()
def state_dir(tmp_path: Path) -> Path:
    state = tmp_path / "state"
    for name, content in SECRETS.items():
        file = state / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    (state / "secrets" / ".secret_key.17").write_bytes(b"a draft of a start that was killed")
    (state / "run.json").write_bytes(b"{}")
    return state


@pytest.fixture()
def made(tmp_path: Path, state_dir: Path) -> tuple[BackupDirectory, str]:
    """A complete backup and the checksum of its manifest."""
    archive = BackupDirectory(tmp_path / "backup")
    archive.prepare()
    for name in (DATABASE_FILE, TREE_FILE):
        with archive.create(name) as stream:
            stream.write(name.encode() * 3)
    archive.copy_state(state_dir)
    return archive, archive.complete(replace(WHOLE, files=archive.entries()))


def test_a_whole_backup_is_accepted_and_has_what_belongs_to_the_state(made: tuple[BackupDirectory, str]) -> None:
    archive, sha256 = made
    manifest = archive.verify(sha256)
    assert sorted(manifest.state_files) == sorted(SECRETS)
    for name, content in SECRETS.items():
        assert (archive.directory / "state" / name).read_bytes() == content


def test_only_its_owner_may_read_a_backup(made: tuple[BackupDirectory, str]) -> None:
    archive, _ = made
    paths = [archive.directory, *archive.directory.rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()} == {0o600}


def _flip(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 0x80
    file.write_bytes(raw)


def _link(file: Path) -> None:
    elsewhere = file.with_name("elsewhere")
    file.rename(elsewhere)
    file.symlink_to(elsewhere)


@pytest.mark.parametrize("name", [DATABASE_FILE, TREE_FILE, "state/secrets/tls/ca.pem"])
@pytest.mark.parametrize("change", [_flip, Path.unlink, _link, lambda file: file.write_bytes(file.read_bytes() + b"x")])
def test_a_file_that_was_changed_is_refused(
    made: tuple[BackupDirectory, str], name: str, change: Callable[[Path], object]
) -> None:
    archive, _ = made
    change(archive.directory / name)
    with pytest.raises(BackupRefused, match=f"{name} is not the file that was backed up"):
        archive.verify()


def test_a_backup_that_was_made_up_whole_is_refused_by_the_checksum_of_its_manifest(
    made: tuple[BackupDirectory, str],
) -> None:
    archive, sha256 = made
    forged = replace(archive.verify(), made_at="2020-01-01T00:00:00Z")
    (archive.directory / MANIFEST_FILE).write_bytes(forged.to_json())
    assert archive.verify() == forged
    with pytest.raises(BackupRefused, match="not the backup that was meant"):
        archive.verify(sha256)


def test_without_its_manifest_a_directory_is_no_backup(made: tuple[BackupDirectory, str]) -> None:
    archive, _ = made
    (archive.directory / MANIFEST_FILE).unlink()
    with pytest.raises(BackupRefused, match="interrupted"):
        archive.verify()


def test_a_backup_that_is_given_up_leaves_an_empty_directory(made: tuple[BackupDirectory, str]) -> None:
    archive, _ = made
    archive.discard()
    assert list(archive.directory.iterdir()) == []
    archive.prepare()


def test_a_directory_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "somebody's").touch()
    with pytest.raises(BackupRefused, match="not empty"):
        BackupDirectory(tmp_path).prepare()
    assert [path.name for path in tmp_path.iterdir()] == ["somebody's"]


def test_a_file_is_never_written_over_another_one(made: tuple[BackupDirectory, str]) -> None:
    with pytest.raises(FileExistsError):
        made[0].create(TREE_FILE)


def test_a_file_too_large_for_a_secret_is_refused(tmp_path: Path, state_dir: Path) -> None:
    (state_dir / "secrets" / "core").write_bytes(bytes(SECRET_FILE_BYTES_MAX + 1))
    with pytest.raises(BackupRefused, match="no secret of Penstock's"):
        BackupDirectory(tmp_path / "backup").copy_state(state_dir)
