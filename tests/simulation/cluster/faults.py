"""Faults and operators' actions, each a verb of a run. A verb returns what it did, "" if it was not possible.

`kill -9` may hit any broker at any time: written data stays. A power cut and a failing fsync lose data that was not
flushed; the promises cover one such loss at a time, with the other replicas in sync.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from brokers.engine.cluster.election_plans import ElectionType
from tests.simulation.cluster.broker import Host, Process
from tests.simulation.cluster.clock import US_PER_MS
from tests.simulation.cluster.network import ZOOKEEPER

if TYPE_CHECKING:
    from tests.simulation.cluster.stage import Stage

# Weights of the verbs in the random choice.
WEIGHTS: Final = {
    "crash": 4, "torn_write": 3, "start": 24, "power_cut": 4, "fsync_error": 2, "pause": 4, "resume": 16,
    "one_way_partition": 5, "isolate": 2, "mend": 16, "slow_link": 2, "session_expiry": 4, "clock_jump": 2,
    "controller_kill": 2, "controlled_restart": 3, "reassignment": 3, "election": 2, "zookeeper_outage": 1, "flush": 3,
}  # fmt: skip


class Faults:
    """The verbs. `heal` ends all faults. Clocks jump by one of JUMPS_MS."""

    JUMPS_MS: tuple[int, ...] = (-3_600_000, -5_000, 700, 30_000, 3_600_000)

    def __init__(self, run: Stage) -> None:
        self._run = run
        self._dice: random.Random = run.dice
        # The broker that lost unflushed data and its incarnation, until no ISR has that incarnation.
        self._lossy: tuple[int, int] | None = None

    def do(self, verb: str) -> str:
        return str(getattr(self, verb)())

    # -- targets -------------------------------------------------------------------------------------------------------

    def _draw_host(self, is_suitable: Callable[[Host], bool]) -> Host | None:
        suitable_hosts = [host for host in self._run.hosts.values() if is_suitable(host)]
        return self._dice.choice(suitable_hosts) if suitable_hosts else None

    def _may_die(self, host: Host) -> bool:
        """True if a host may be killed; while one has lost data, the others must stay alive."""
        return host.process is not None and not self._is_lossy()

    def _is_lossy(self) -> bool:
        if self._lossy is None:
            return False
        id, incarnations = self._lossy
        host = self._run.hosts[id]
        process = host.process
        if process is None or host.incarnations <= incarnations or not process.is_listening:
            return True
        for state in self._run.states().values():
            if id in state.isr and process.session.broker_epoch not in state.isr_broker_epochs:
                return True
        self._lossy = None
        return False

    def _draw_losable_host(self) -> Host | None:
        """Returns a host that may lose unflushed data: others are in sync with all of it, and there is no fault."""
        run = self._run
        if (
            not run.power_may_be_cut
            or self._is_lossy()
            or run.network.cut
            or run.ensemble.is_down
            or not run.all_registered()
        ):
            return None
        if any(host.process is not None and host.process.is_leaving for host in run.hosts.values()):
            return None
        if any(len(state.isr) < 2 or state.leader < 0 for state in run.states().values()):
            return None
        if any(not run.is_same_incarnation(state) for state in run.states().values()):
            return None
        return self._draw_host(lambda host: host.is_running)

    # -- verbs ---------------------------------------------------------------------------------------------------------

    def crash(self) -> str:
        host = self._draw_host(self._may_die)
        if host is None:
            return ""
        host.kill()
        return f"b{host.id}"

    def torn_write(self) -> str:
        """Kills a process at one of its next disk operations; a write is done in half."""
        host = self._draw_host(lambda host: self._may_die(host) and host.is_running and host.disk.dies_in is None)
        if host is None:
            return ""
        host.disk.dies_in = self._dice.randint(0, 12)
        return f"b{host.id}, in {host.disk.dies_in} operations"

    def start(self) -> str:
        host = self._draw_host(lambda host: host.process is None)
        if host is None:
            return ""
        host.start()
        return f"b{host.id}"

    def power_cut(self) -> str:
        host = self._draw_losable_host()
        if host is None:
            return ""
        self._lossy = (host.id, host.incarnations)
        host.cut_power()
        return f"b{host.id}"

    def fsync_error(self) -> str:
        """Fails one fsync; the process ends, and unflushed data is lost."""
        host = self._draw_losable_host()
        if host is None or host.process is None:
            return ""
        self._lossy = (host.id, host.incarnations)
        host.disk.fails = True
        process = host.process
        process.loop.call_soon(process.flush)
        self._run.world.after(self._dice.randint(1, 200) * US_PER_MS, self._end_process, host, process)
        return f"b{host.id}"

    def _end_process(self, host: Host, process: Process) -> None:
        if host.process is process:
            host.cut_power()

    def pause(self) -> str:
        host = self._draw_host(lambda host: host.is_running and not self._is_lossy())
        if host is None:
            return ""
        host.pause()
        return f"b{host.id}"

    def resume(self) -> str:
        host = self._draw_host(lambda host: host.process is not None and host.process.loop.is_paused)
        if host is None:
            return ""
        messages_first = self._dice.random() < 0.5
        host.resume(messages_first=messages_first)
        return f"b{host.id}{', what lies in its sockets first' if messages_first else ''}"

    def one_way_partition(self) -> str:
        if self._is_lossy():
            return ""
        ids = list(self._run.hosts)
        source = self._dice.choice(ids)
        target = self._dice.choice([ZOOKEEPER, *(id for id in ids if id != source)])
        if self._dice.random() < 0.5:
            source, target = target, source
        self._run.network.sever(source, target)
        return f"from {source} to {target}"

    def isolate(self) -> str:
        """Isolates a broker from the other brokers, not from ZooKeeper."""
        if self._is_lossy():
            return ""
        ids = list(self._run.hosts)
        alone = self._dice.choice(ids)
        for other in ids:
            if other != alone:
                self._run.network.cut |= {(alone, other), (other, alone)}
        self._run.network.sever(alone, alone)
        return f"b{alone}"

    def mend(self) -> str:
        network = self._run.network
        if not network.cut and not network.slow_ms:
            return ""
        network.slow_ms.clear()
        network.mend()
        return "every way"

    def slow_link(self) -> str:
        source, target = self._dice.sample([ZOOKEEPER, *self._run.hosts], 2)
        delay_ms = self._run.network.slow_ms[source, target] = self._dice.choice((10, 100, 400))
        return f"from {source} to {target} by {delay_ms} ms"

    def session_expiry(self) -> str:
        host = self._draw_host(lambda host: host.process is not None and not self._is_lossy())
        if host is None or host.process is None or self._run.ensemble.is_down:
            return ""
        session = self._run.ensemble.session_of(host.process.tree)
        if not session:
            return ""
        declared_ms = self._dice.choice((0, 0, 30, 300))
        self._run.ensemble.expire(session, declared_ms)
        return f"b{host.id}, which hears of it after {declared_ms} ms"

    def clock_jump(self) -> str:
        host = self._draw_host(lambda host: True)
        assert host is not None
        jump_ms = self._dice.choice(self.JUMPS_MS)
        host.clock.jumped_ms += jump_ms
        return f"b{host.id} by {jump_ms} ms"

    def controller_kill(self) -> str:
        host = self._draw_host(lambda host: self._may_die(host) and host.process.controller.is_controller)  # type: ignore[union-attr]
        if host is None:
            return ""
        host.kill()
        return f"b{host.id}"

    def controlled_restart(self) -> str:
        host = self._draw_host(lambda host: host.is_running and not self._is_lossy())
        if host is None or host.process is None or not host.process.is_listening:
            return ""
        host.process.stop()
        return f"b{host.id}"

    def flush(self) -> str:
        host = self._draw_host(lambda host: host.is_running)
        if host is None or host.process is None:
            return ""
        process = host.process
        process.loop.call_soon(process.flush)
        return f"b{host.id}"

    def zookeeper_outage(self) -> str:
        run = self._run
        if run.ensemble.is_down:
            return ""
        for_ms = self._dice.choice((100, 500, 1_500))
        run.ensemble.stop()
        run.world.after(for_ms * US_PER_MS, run.ensemble.start)
        return f"for {for_ms} ms"

    # -- operators -----------------------------------------------------------------------------------------------------

    def reassignment(self) -> str:
        host = self._draw_host(lambda host: host.is_running and host.process.is_listening)  # type: ignore[union-attr]
        if host is None or host.process is None:
            return ""
        process = host.process
        name = self._run.some_topic()
        topic = process.current.image.topics.get(name)
        if topic is None:
            return ""
        index = self._dice.randrange(len(topic.partitions))
        target = tuple(self._dice.sample(list(self._run.hosts), 3)) if self._dice.random() < 0.8 else None
        work = process.store.reassign(process.current.image, {name: {index: target}})
        process.loop.call_soon(self._spawn, process, work)
        return f"of {name}-{index} to {target} through b{host.id}"

    def election(self) -> str:
        host = self._draw_host(lambda host: host.is_running and host.process.is_listening)  # type: ignore[union-attr]
        if host is None or host.process is None:
            return ""
        process = host.process
        name = self._run.some_topic()
        topic = process.current.image.topics.get(name)
        if topic is None:
            return ""
        index = self._dice.randrange(len(topic.partitions))
        work = process.store.elect_leaders(process.current.image, [(name, index)], ElectionType.PREFERRED)
        process.loop.call_soon(self._spawn, process, work)
        return f"of {name}-{index}'s preferred leader through b{host.id}"

    @staticmethod
    def _spawn(process: Process, work: Any) -> None:
        task = process.loop.create_task(work)

        def done(task: asyncio.Task[Any]) -> None:
            # Refused, or ZooKeeper is down, which an operator would see.
            if not task.cancelled():
                task.exception()

        task.add_done_callback(done)

    # -- the end -------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        run = self._run
        run.network.slow_ms.clear()
        run.network.mend()
        if run.ensemble.is_down:
            run.ensemble.start()
        for host in run.hosts.values():
            host.disk.dies_in = None
            host.resume(messages_first=False)
