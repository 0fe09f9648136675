"""Sources of settings: the environment first, then what a run stored, then loopback."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from config.environment import Environment, ensure_secret, positive, read_secret


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("DATABASE_URL", "REDIS_URL", "ZOOKEEPER_URL", "SECRET_KEY", "PENSTOCK_PUBLIC_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path))
    return tmp_path


def test_without_anything_addresses_are_on_loopback(state: Path) -> None:
    environment = Environment.read()
    assert environment.redis_url == "redis://127.0.0.1:6379/0"
    assert environment.zookeeper_url == "127.0.0.1:2181"
    assert not environment.secret_key_is_kept
    assert len(environment.secret_key) >= 50


def test_a_run_leaves_its_addresses_for_other_commands(state: Path) -> None:
    (state / "services.json").write_text(json.dumps({"REDIS_URL": "redis://127.0.0.1:7001/0"}))
    assert Environment.read().redis_url == "redis://127.0.0.1:7001/0"


def test_the_environment_wins_over_what_a_run_wrote(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (state / "services.json").write_text(json.dumps({"REDIS_URL": "redis://127.0.0.1:7001/0"}))
    monkeypatch.setenv("REDIS_URL", "redis://elsewhere:6379/1")
    assert Environment.read().redis_url == "redis://elsewhere:6379/1"


def test_credentials_of_our_zookeeper_are_not_shown_to_another_one(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"ZOOKEEPER_URL": "127.0.0.1:7002", "PENSTOCK_ZOOKEEPER_CONTROL_FILE": "/state/secrets/zookeeper_control"}
    (state / "services.json").write_text(json.dumps(own))
    assert Environment.read().zookeeper_control_file == "/state/secrets/zookeeper_control"
    monkeypatch.setenv("ZOOKEEPER_URL", "elsewhere:2181")
    assert Environment.read().zookeeper_control_file == ""
    monkeypatch.setenv("PENSTOCK_ZOOKEEPER_CONTROL_FILE", "/run/control")
    assert Environment.read().zookeeper_control_file == "/run/control"


def test_a_secret_is_made_once_and_only_its_owner_reads_it(state: Path) -> None:
    file = ensure_secret(state, "secret_key")
    first = file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert ensure_secret(state, "secret_key").read_text() == first
    assert read_secret(state, "secret_key") == first
    assert Environment.read().secret_key == first


@pytest.mark.parametrize("torn", ["", "\0\0\0", "[]"])
def test_addresses_torn_by_a_power_cut_are_as_if_nothing_had_run(state: Path, torn: str) -> None:
    (state / "services.json").write_text(torn)
    assert Environment.read().redis_url == "redis://127.0.0.1:6379/0"


@pytest.mark.parametrize("word", ["", "  ", "0.5", "48"])
def test_a_number_above_zero_is_read_or_its_default(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setenv("PENSTOCK_SESSION_IDLE_HOURS", word)
    assert positive("PENSTOCK_SESSION_IDLE_HOURS", 24) == (float(word) if word.strip() else 24)


@pytest.mark.parametrize("word", ["0", "-1", "never", "nan", "inf", "1e300"])
def test_another_one_says_what_to_write(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setenv("PENSTOCK_SESSION_IDLE_HOURS", word)
    with pytest.raises(ValueError, match="Write a number above zero, such as 24"):
        positive("PENSTOCK_SESSION_IDLE_HOURS", 24)
