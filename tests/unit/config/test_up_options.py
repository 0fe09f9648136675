"""The command line of `up`."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.supervisor.options import UpOptions, parse


def test_a_fleet_survives_the_way_into_the_background() -> None:
    options = UpOptions(state_dir=Path("/tmp/p").resolve(), clusters=2, hosts=3, brokers=1)
    assert parse(options.arguments()) == options
    assert "--hosts" not in UpOptions(state_dir=Path("/")).arguments()


def test_an_apache_kafka_survives_the_way_into_the_background() -> None:
    options = UpOptions(state_dir=Path("/tmp/p").resolve(), kafka=True)
    assert parse(options.arguments()) == options


@pytest.mark.parametrize("words", [["--hosts", "0"], ["--hosts", "9"], ["--clusters", "9"], ["--clusters", "two"]])
def test_a_fleet_has_bounds(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["up", *words])
    assert "is a number from 1 to 8" in capsys.readouterr().err
