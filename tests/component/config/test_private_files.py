"""Files on disk are private to their owner, also in a state directory of an earlier version."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from brokers.engine.lifecycle import make_directories_private
from config.embedded.process import Child, StartFailed
from config.embedded.sockets import SOCKET_PATH_BYTES_MAX, make_private, socket_directory
from config.supervisor.state import StateDirectory
from tests.testkit.waiting import eventually


def open_to_others(top: Path) -> list[Path]:
    """Returns the files that others than their owner may access. Links are left out: their targets decide."""
    return [path for path in (top, *top.rglob("*")) if not path.is_symlink() and path.stat().st_mode & 0o077]


def test_a_state_directory_of_an_earlier_version_is_closed_and_keeps_all_it_has(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    segment = state.root / "brokers" / "1" / "data" / "t-0" / "00000000000000000000.log"
    launcher = state.root / "java" / "bin" / "java"
    outside = tmp_path / "outside"
    for file in (segment, launcher, state.root / "celerybeat-schedule.dat", state.root / "supervisor.lock", outside):
        file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        file.write_bytes(b"kept")
        file.chmod(0o644)
    launcher.chmod(0o755)
    (state.root / "brokers" / "elsewhere").symlink_to(outside)
    state.prepare()
    state.tighten()
    assert not open_to_others(state.root)
    assert segment.read_bytes() == b"kept"
    assert os.access(launcher, os.X_OK)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644


def test_a_persons_own_files_in_a_state_directory_keep_their_modes(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.root.mkdir()
    script = state.root / "backup.sh"
    script.touch(mode=0o755)
    script.chmod(0o755)
    state.prepare()
    state.tighten()
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    assert stat.S_IMODE(state.root.stat().st_mode) == 0o700


def test_a_directory_of_all_users_is_no_state_directory(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(StartFailed, match="shared by all users") as refusal:
        StateDirectory(tmp_path).prepare()
    assert "--state-dir" in refusal.value.next_step
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777


def test_files_of_a_child_are_private_under_any_umask_of_its_parent(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        made = tmp_path / "made"
        child = Child(
            name="maker",
            command=(sys.executable, "-c", f"open({str(made)!r}, 'w'); print('x')"),
            log_file=tmp_path / "logs" / "maker.log",
        )
        child.start()
        eventually(lambda: child.exit_code == 0)
    finally:
        os.umask(before)
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert stat.S_IMODE(child.log_file.stat().st_mode) == 0o600


def test_a_broker_closes_log_directories_that_an_earlier_one_left_open(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_directories_private([tmp_path, tmp_path / "missing"])
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_a_socket_lies_beside_its_data_or_where_its_path_is_short_enough(tmp_path: Path) -> None:
    near, far = tmp_path / "redis", tmp_path / ("deep" * 30) / "redis"
    assert socket_directory(near, "redis.sock") == near / "socket"
    elsewhere = socket_directory(far, "redis.sock")
    assert len(os.fsencode(elsewhere / "redis.sock")) <= SOCKET_PATH_BYTES_MAX
    assert elsewhere == socket_directory(far, "redis.sock")
    assert elsewhere != socket_directory(far.parent / "postgres", "redis.sock")


def test_a_sockets_directory_that_somebody_else_made_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(StartFailed, match="belongs to somebody else"):
        make_private(tmp_path / "link")
    if os.geteuid() == 0:
        (tmp_path / "theirs").mkdir()
        os.chown(tmp_path / "theirs", 65_534, 65_534)
        with pytest.raises(StartFailed, match="belongs to somebody else"):
            make_private(tmp_path / "theirs")
        make_private(tmp_path / "theirs", (65_534, 65_534))
    make_private(tmp_path / "new")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
