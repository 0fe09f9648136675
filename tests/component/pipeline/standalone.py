"""Spark's own cluster manager as processes, in the network of this machine or in one of its own, and drivers of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyspark

from config.embedded.java import Java
from config.embedded.process import free_port
from config.environment import BASE_DIR
from tests.testkit.engine import eventually

SPARK_HOME = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
START_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Machine of a Spark cluster: its address, and how a command is run there."""

    address: str = LOOPBACK
    enter: Sequence[str] = ()
    variables: dict[str, str] = field(default_factory=dict)


@contextmanager
def other_host() -> Iterator[tuple[str, Host]]:
    """Creates a network namespace; yields this machine's address in the network between both, and the other host."""
    name = f"pst-{uuid.uuid4().hex[:6]}"
    number = os.getpid() % 250
    here, there = f"10.231.{number}.1", f"10.231.{number}.2"
    enter = ("ip", "netns", "exec", name)
    with ExitStack() as stack:
        _ip("netns", "add", name)
        stack.callback(_ip, "netns", "del", name)
        _ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
        stack.callback(_ip, "link", "del", f"{name}a")
        _ip("address", "add", f"{here}/24", "dev", f"{name}a")
        _ip("link", "set", f"{name}a", "up")
        for command in (("address", "add", f"{there}/24", "dev", f"{name}b"), ("link", "set", f"{name}b", "up")):
            subprocess.run([*enter, "ip", *command], check=True)
        subprocess.run([*enter, "ip", "link", "set", "lo", "up"], check=True)
        yield here, Host(address=there, enter=enter)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class Standalone:
    """A master and workers on one host."""

    def __init__(self, directory: Path, java: Java, stack: ExitStack, host: Host | None = None) -> None:
        self._host = host or Host()
        self._environment = {
            "PATH": os.environ["PATH"], "JAVA_HOME": str(java.spark_home), "SPARK_HOME": str(SPARK_HOME),
            "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": self._host.address, "SPARK_WORKER_DIR": str(directory),
            **self._host.variables,
        }  # fmt: skip
        self._directory, self._stack = directory, stack
        port = free_port()
        self.url = f"spark://{self._host.address}:{port}"
        self._log = directory / "spark.log"
        self._start("master.Master", "--host", self._host.address, "--port", str(port), "--webui-port", "0")
        eventually(lambda: "I have been elected leader" in self.log(), "the master leads", START_TIMEOUT_S)

    def add_worker(self) -> subprocess.Popen[bytes]:
        before = self.log().count("Successfully registered with master")
        worker = self._start(
            "worker.Worker", "--host", self._host.address, "--webui-port", "0", "--cores", "1", "--memory", "700m",
            self.url,
        )  # fmt: skip
        eventually(
            lambda: self.log().count("Successfully registered with master") > before, "the worker is in",
            START_TIMEOUT_S,
        )  # fmt: skip
        return worker

    def log(self) -> str:
        return self._log.read_text()

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [*self._host.enter, str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}",
                 *arguments],
                env=self._environment, cwd=self._directory, stdout=log, stderr=log,
            )  # fmt: skip
        self._stack.callback(lose, process)
        return process


def executors_of(worker: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Returns the running executors of a worker."""
    return [process for process in family_of(worker.pid) if EXECUTOR in " ".join(_command(process))]


def family_of(pid: int) -> list[psutil.Process]:
    """Returns the process with all that it started."""
    try:
        return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def commands_of(pid: int) -> str:
    """Returns the command lines of the process and of all that it started, as every user of the machine sees them."""
    return "\n".join(" ".join(_command(process)) for process in family_of(pid))


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def lose(process: subprocess.Popen[Any]) -> None:
    """Kills a process with all that it started, like the loss of a machine."""
    for each in family_of(process.pid):
        try:
            each.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    process.wait()


@contextmanager
def driver(
    directory: Path, java: Java, body: dict[str, Any], variables: dict[str, str], deadly: str = "never"
) -> Iterator[subprocess.Popen[str]]:
    """Starts a run of the pipeline that begins with a line on its standard input, and is killed at point `deadly`."""
    settings = directory / f"driver-{uuid.uuid4().hex[:6]}.json"
    settings.write_text(json.dumps(body))
    command = [sys.executable, "-m", "tests.component.pipeline.driver", str(settings), deadly]
    environment = os.environ | {"JAVA_HOME": str(java.spark_home)} | variables
    pipe = subprocess.PIPE
    with (
        (directory / "driver.log").open("ab") as log,
        subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=environment, cwd=BASE_DIR
        ) as process,
    ):
        try:
            yield process
        finally:
            lose(process)


def begin(process: subprocess.Popen[str], directory: Path) -> None:
    """Begins the run, and returns when a task of it is active."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "reading\n", (directory / "driver.log").read_text()[-3_000:]
