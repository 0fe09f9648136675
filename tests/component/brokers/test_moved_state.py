"""State directories that are moved, copied or restored elsewhere: brokers keep their logs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from brokers.models import Broker
from brokers.operations.seed import seed_fleet

pytestmark = pytest.mark.django_db


def start(state: Path) -> dict[int, list[str]]:
    """Returns the rows after a start on this state directory."""
    seed_fleet(brokers=2, data_root=state / "brokers", control_secret_file=state / "secret")
    return dict(Broker.objects.values_list("number", "data_dirs"))


def own(state: Path, number: int) -> str:
    return str(state / "brokers" / str(number) / "data")


def write_logs(state: Path) -> None:
    for number in (1, 2):
        directory = Path(own(state, number))
        directory.mkdir(parents=True)
        (directory / "meta.properties").write_text(f"version=0\nbroker.id={number}\n")


def test_brokers_use_the_logs_of_the_state_directory_they_are_started_on(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    start(first)
    write_logs(first)
    shutil.copytree(first, second)
    assert start(second) == {1: [own(second, 1)], 2: [own(second, 2)]}
    assert start(first) == {1: [own(first, 1)], 2: [own(first, 2)]}


def test_directories_somebody_chose_and_logs_that_did_not_come_along_stay_where_they_are(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    start(first)
    assert start(second) == {1: [own(first, 1)], 2: [own(first, 2)]}
    disks = ["/disk1/kafka", own(first, 1)]
    Broker.objects.filter(number=1).update(data_dirs=disks)
    write_logs(second)
    assert start(second) == {1: ["/disk1/kafka", own(second, 1)], 2: [own(second, 2)]}
