"""Periodic tasks go on after jumps of the clock and crashes of beat."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from celery.worker import state

from config.beat import EXIT_WITHOUT_BEAT, BeatWatch, Scheduler
from config.celery import app
from config.schedule import BEAT_SCHEDULE


@pytest.fixture()
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    monkeypatch.setattr(Scheduler, "producer", None)
    monkeypatch.setattr(Scheduler, "apply_entry", lambda *_args, **_options: None)
    made = Scheduler(app=app, schedule_filename=str(tmp_path / "schedule"))
    yield made
    made.close()


@pytest.mark.parametrize("has_ticked", [False, True])
def test_a_clock_set_back_delays_nothing_for_longer_than_its_interval(scheduler: Scheduler, has_ticked: bool) -> None:
    if has_ticked:
        scheduler.tick()
        scheduler._heap = [event._replace(time=event.time + 3_600) for event in scheduler._heap]
    for entry in scheduler.schedule.values():
        entry.last_run_at += timedelta(hours=1)
    assert scheduler.tick() <= min(entry["schedule"] for entry in BEAT_SCHEDULE.values())
    assert all(entry.last_run_at <= entry.default_now() for entry in scheduler.schedule.values())


def test_the_worker_uses_this_scheduler() -> None:
    assert app.conf.beat_scheduler == "config.beat:Scheduler"
    assert BeatWatch in app.steps["worker"]


@pytest.mark.parametrize(("is_alive", "wanted"), [(True, None), (False, EXIT_WITHOUT_BEAT)])
def test_a_worker_whose_beat_has_died_ends(is_alive: bool, wanted: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "should_stop", None)
    worker = SimpleNamespace(beat=SimpleNamespace(is_alive=lambda: is_alive))
    step = BeatWatch(worker)
    assert step.include_if(worker)
    step.check(worker)
    assert state.should_stop == wanted


def test_a_worker_without_beat_is_not_watched() -> None:
    worker = SimpleNamespace(beat=None)
    assert not BeatWatch(worker).include_if(worker)


def test_tasks_that_need_spark_go_to_the_worker_that_has_it() -> None:
    of_pipeline = {entry["task"] for entry in BEAT_SCHEDULE.values() if entry["options"]["queue"] == "pipeline"}
    assert of_pipeline == {"billing.run_usage_pipeline", "billing.run_archives", "billing.look_after_lake"}
    assert {entry["options"]["queue"] for entry in BEAT_SCHEDULE.values()} == {"pipeline", "penstock"}
