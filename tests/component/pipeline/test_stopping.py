"""Stops of a worker in the middle of a run: it ends at once with its Java; an idle worker has no Java."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from billing.usage_backlog import EXIT_BY_SIGNAL
from config.embedded.java import Java
from config.environment import BASE_DIR
from tests.testkit.engine import eventually

BEGUN_WITHIN_S, END_WITHIN_S = 60, 10
# SIGQUIT as a process of Celery's pool has it; then a call into Java that has no answer.
RUN = """
import pathlib, signal, sys, time
import django
django.setup()
signal.signal(signal.SIGQUIT, lambda *_: sys.exit(1))
from billing import usage_backlog
def stand_still(file):
    pathlib.Path(file).touch()
    time.sleep(600)
usage_backlog.spark_session().sparkContext.parallelize(sys.argv[1:]).map(stand_still).collect()
"""


def test_a_run_without_an_answer_ends_when_celery_asks_it_to(java: Java, tmp_path: Path) -> None:
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "config.settings", "PENSTOCK_STATE_DIR": str(tmp_path),
        "JAVA_HOME": str(java.spark_home), "SPARK_MASTER": "local[1]",
    }  # fmt: skip
    begun = tmp_path / "begun"
    command = [sys.executable, "-c", RUN, str(begun)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment, cwd=BASE_DIR) as process:
        try:
            eventually(begun.exists, "the call is under way", BEGUN_WITHIN_S)
            below = psutil.Process(process.pid).children(recursive=True)

            process.send_signal(signal.SIGQUIT)

            assert process.wait(END_WITHIN_S) == EXIT_BY_SIGNAL + signal.SIGQUIT
            eventually(lambda: not any(child.is_running() for child in below), "its Java ends", END_WITHIN_S)
        finally:
            process.kill()


GIVE_BACK = """
import django, psutil
django.setup()
from billing import usage_backlog
from billing.pipeline import spark

def javas():
    return [each for each in psutil.Process().children(recursive=True) if each.name() == "java"]

assert not spark.stop_session_after(0) and not javas()
for _ in range(2):
    assert usage_backlog.spark_session().range(7).count() == 7
    (java,) = javas()
    assert not spark.stop_session_after(0), "it was used since the last look"
    assert not spark.stop_session_after(600) and java.is_running()
    assert spark.stop_session_after(0)
    assert not javas() and not java.is_running()
    assert not spark.stop_session_after(0)
print("given back")
"""


def test_java_ends_after_a_while_without_work_and_starts_again_with_new_work(java: Java, tmp_path: Path) -> None:
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "config.settings", "PENSTOCK_STATE_DIR": str(tmp_path),
        "JAVA_HOME": str(java.spark_home), "SPARK_MASTER": "local[1]",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", GIVE_BACK], capture_output=True, text=True, env=environment, cwd=BASE_DIR, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.stdout.endswith("given back\n"), done.stderr[-3_000:]
