"""Faults of brokers while producers go on. Each fault reports its action in one line."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable

from brokers.contract import documents, paths
from tests.testkit.engine import BrokerProcess, EngineCluster

Say = Callable[[str], None]


def last(seconds: float) -> None:
    """For a fault, or the time between two: it is as long as it is said to be, and nothing is hoped for."""
    threading.Event().wait(seconds)


class Faults:
    """Random faults. `between_s` and `away_s` bound the time between two faults and the length of one."""

    def __init__(
        self,
        cluster: EngineCluster,
        rolls: random.Random,
        say: Say,
        *,
        between_s: tuple[float, float],
        away_s: tuple[float, float],
    ) -> None:
        self._cluster = cluster
        self._rolls = rolls
        self._say = say
        self._between_s = between_s
        self._away_s = away_s
        self.count = 0
        self.controllers = 0

    def wait(self) -> None:
        last(self._rolls.uniform(*self._between_s))

    def kill(self, victim: BrokerProcess | None = None, role: str = "") -> None:
        """kill -9, and a start a moment later; of the broker given, in its role, or of any."""
        victim = victim or self._victim()
        away_s = self._rolls.uniform(*self._away_s)
        self._tell(victim, f"kill -9{f' as {role}' if role else ''}, away {away_s:.1f} s")
        victim.kill()
        last(away_s)
        victim.start()
        victim.wait_until_ready()

    def pause(self) -> None:
        """SIGSTOP: alive for the kernel, dead for its neighbours, and sure of itself when it wakes up."""
        victim = self._victim()
        away_s = self._rolls.uniform(*self._away_s)
        self._tell(victim, f"stopped {away_s:.1f} s")
        assert victim.process is not None
        victim.process.send_signal(signal.SIGSTOP)
        try:
            last(away_s)
        finally:
            victim.process.send_signal(signal.SIGCONT)

    def restart_all(self) -> None:
        """A rolling restart: the next one only once everybody is in sync again."""
        for broker in self._cluster.brokers:
            began_s = time.monotonic()
            self._tell(broker, "restarted")
            code = broker.stop(30)
            broker.start()
            broker.wait_until_ready()
            self._say(f"  exit code {code}, ready again after {time.monotonic() - began_s:.1f} s")

    def controlling(self) -> BrokerProcess | None:
        """The controller, if there is one."""
        id = self._controller()
        return next((broker for broker in self._cluster.brokers if broker.settings.broker_id == id), None)

    def _victim(self) -> BrokerProcess:
        return self._rolls.choice(self._cluster.brokers)

    def _tell(self, broker: BrokerProcess, what: str) -> None:
        self.count += 1
        is_controller = self._controller() == broker.settings.broker_id
        self.controllers += is_controller
        self._say(f"broker {broker.settings.broker_id}{' (controller)' if is_controller else ''}: {what}")

    def _controller(self) -> int | None:
        if not self._cluster.zookeeper.exists(paths.CONTROLLER):
            return None
        return documents.controller_from_json(self._cluster.zookeeper.get(paths.CONTROLLER)[0])
