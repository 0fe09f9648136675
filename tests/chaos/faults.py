"""Faults of brokers while producers go on. Each fault reports its action in one line."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable

from brokers.contract import documents, paths
from tests.testkit.engine import BrokerProcess, EngineCluster

PrintLine = Callable[[str], None]


def sleep(seconds: float) -> None:
    """Waits for the full time: the length of a fault, or the time between two faults."""
    threading.Event().wait(seconds)


class Faults:
    """Random faults. `between_s` and `away_s` bound the time between two faults and the length of one."""

    def __init__(
        self,
        cluster: EngineCluster,
        random_: random.Random,
        print_line: PrintLine,
        *,
        between_s: tuple[float, float],
        away_s: tuple[float, float],
    ) -> None:
        self._cluster = cluster
        self._random = random_
        self._print_line = print_line
        self._between_s = between_s
        self._away_s = away_s
        self.count = 0
        self.controller_count = 0

    def wait(self) -> None:
        sleep(self._random.uniform(*self._between_s))

    def kill(self, broker: BrokerProcess | None = None, role: str = "") -> None:
        """Kills `broker`, by default a random one, with SIGKILL, and starts it again. `role` is printed."""
        broker = broker or self._random_broker()
        away_s = self._random.uniform(*self._away_s)
        self._report(broker, f"kill -9{f' as {role}' if role else ''}, away {away_s:.1f} s")
        broker.kill()
        sleep(away_s)
        broker.start()
        broker.wait_until_ready()

    def pause(self) -> None:
        """Stops a random broker with SIGSTOP for a while: other brokers consider it dead, and it then continues."""
        broker = self._random_broker()
        away_s = self._random.uniform(*self._away_s)
        self._report(broker, f"stopped {away_s:.1f} s")
        assert broker.process is not None
        broker.process.send_signal(signal.SIGSTOP)
        try:
            sleep(away_s)
        finally:
            broker.process.send_signal(signal.SIGCONT)

    def restart_all(self) -> None:
        """Restarts all brokers one after the other, each when the one before is ready."""
        for broker in self._cluster.brokers:
            began_s = time.monotonic()
            self._report(broker, "restarted")
            code = broker.stop(30)
            broker.start()
            broker.wait_until_ready()
            self._print_line(f"  exit code {code}, ready again after {time.monotonic() - began_s:.1f} s")

    def controller(self) -> BrokerProcess | None:
        """Returns the broker that is controller; None if there is no controller."""
        controller_id = self._controller_id()
        return next((broker for broker in self._cluster.brokers if broker.settings.broker_id == controller_id), None)

    def _random_broker(self) -> BrokerProcess:
        return self._random.choice(self._cluster.brokers)

    def _report(self, broker: BrokerProcess, action: str) -> None:
        self.count += 1
        is_controller = self._controller_id() == broker.settings.broker_id
        self.controller_count += is_controller
        self._print_line(f"broker {broker.settings.broker_id}{' (controller)' if is_controller else ''}: {action}")

    def _controller_id(self) -> int | None:
        if not self._cluster.zookeeper.exists(paths.CONTROLLER):
            return None
        return documents.controller_from_json(self._cluster.zookeeper.get(paths.CONTROLLER)[0])
