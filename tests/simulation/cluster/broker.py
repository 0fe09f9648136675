"""A simulated broker: a host with its disk, which stays, and a process on it, which is started and ends.

The engine's parts are assembled as in `brokers.engine.assembly`, without sockets, threads and billing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Final, cast

from brokers.contract.documents import BrokerDocument
from brokers.engine.assembly.coordination import Coordination
from brokers.engine.assembly.handover import hand_over
from brokers.engine.assembly.replication import Replication
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.image import BrokerInfo, ClusterImage
from brokers.engine.cluster.session import ClusterSession
from brokers.engine.cluster.store import ClusterStore
from brokers.engine.cluster.watcher import ClusterWatcher
from brokers.engine.config import REPLICATION_BYTES_PER_S_MAX, EngineConfig
from brokers.engine.controller.loop import ControllerLoop
from brokers.engine.controller.placement import Placer
from brokers.engine.coordinators.settings import CoordinatorSettings, from_overrides
from brokers.engine.handlers.services import (
    NEVER_MS,
    AccessServices,
    AccountingServices,
    BrokerServices,
    CoordinatorServices,
    MetadataServices,
    StorageServices,
)
from brokers.engine.handlers.transactions.transactions import BlockProducerIds
from brokers.engine.partitions import topic_bounds
from brokers.engine.partitions.table import NoUsableDirectory, PartitionTable, StorageSettings
from brokers.engine.replication.interfaces import LinkOwner
from brokers.engine.throttling.accounting import AccountingRegistry
from quotas.rates import SAMPLE_SETTINGS
from tests.simulation.cluster.clock import ProcessClock, ProcessLoop, World
from tests.simulation.cluster.connections import Accepted, Dialled
from tests.simulation.cluster.disks import Disks, ProcessDisk, after_power_cut
from tests.simulation.cluster.network import Network
from tests.simulation.cluster.zookeeper import SESSION_TIMEOUT_MS, Ensemble, SessionTree

CLUSTER_ID: Final = "simulated"
LAG_MS_MAX: Final = 500
MAINTENANCE_S: Final = 2.0
FLUSH_S: Final = 7.0
HIGH_WATERMARK_S: Final = 1.5
HAND_OVER_S: Final = 1.0
FRAME_BYTES_MAX: Final = 1 << 20


class SimulationContext:
    """Context that all brokers of a run share.

    With `coordination` they coordinate groups and transactions, and detect that they were paused.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        ensemble: Ensemble,
        disks: Disks,
        dice: random.Random,
        coordination: CoordinatorSettings | None = None,
    ) -> None:
        self.world = world
        self.network = network
        self.ensemble = ensemble
        self.disks = disks
        self.dice = dice
        self.coordination = coordination
        self.segment_bytes_min = 1
        self.hosts: dict[int, Host] = {}

    def find(self, place: int) -> Process | None:
        return self.hosts[place].process


def _config(broker_id: int, data_dir: Path, *, notices_pauses: bool) -> EngineConfig:
    """Makes the part of a broker's configuration that is simulated, which excludes listeners and quotas."""
    return EngineConfig(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        zookeeper="",
        session_timeout_ms=SESSION_TIMEOUT_MS if notices_pauses else NEVER_MS,
        data_dirs=(data_dir,),
        bind_host="",
        internal_host="",
        internal_port=0,
        admin_port=0,
        rack=None,
        control_secret="",
        overrides={},
        connections_max=0,
        connections_per_instance_max=0,
        connections_per_address_max=0,
        creations_per_s_max=0,
        creations_per_instance_per_s_max=0,
        connections_idle_ms_max=0,
        frame_bytes_max=FRAME_BYTES_MAX,
        fetch_bytes_max=FRAME_BYTES_MAX,
        quota_burst_ms=-1,
        quota_window=SAMPLE_SETTINGS,
        controller_quota_window=SAMPLE_SETTINGS,
        quota_callback=None,
        retention_interval_ms=0,
        controlled_shutdown_timeout_ms=0,
        replica_lag_ms_max=LAG_MS_MAX,
        leader_throttle_bytes_per_s=REPLICATION_BYTES_PER_S_MAX,
        follower_throttle_bytes_per_s=REPLICATION_BYTES_PER_S_MAX,
    )


class _Tasks(dict[asyncio.Task[None], None]):
    """Tasks of `BrokerServices` in the order of their starts. A task that fails is a fault."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process

    def add(self, task: asyncio.Task[None]) -> None:
        self[task] = None

    def discard(self, task: asyncio.Task[None]) -> None:
        self.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._process.loop.faults.append(f"b{self._process.id} {error!r}")


class Process:
    """One process of a broker. `is_listening` is True from its registration to its stop, `has_ended` after its end."""

    def __init__(self, host: Host, context: SimulationContext) -> None:
        self.id = host.id
        self.host = host
        self.context = context
        self.is_listening = False
        self.is_silent = False
        self.has_ended = False
        self.has_stopped = False
        # True after a request to stop, when it hands over its leaderships.
        self.is_leaving = False
        self.fatal: str | None = None
        self.connections: dict[Accepted, None] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        self._controller_task: asyncio.Task[Any] | None = None
        loop = self.loop = ProcessLoop(context.world, f"b{host.id}", host.disk, self._on_disk_death)
        host.disk.process = loop
        self.clock = host.clock
        self._create_storage(random.Random(context.dice.getrandbits(32)))
        self._assemble()
        self._create_controller()
        loop.call_soon(self.spawn, self._run())

    def _create_storage(self, dice: random.Random) -> None:
        """Makes its storage and its view of the cluster."""
        loop, clock = self.loop, self.clock
        self.tree = SessionTree(self.context.ensemble, self.id, loop)
        self.table = PartitionTable(
            StorageSettings(
                roots=(self.host.disk.top / "data",),
                broker_id=self.id,
                cluster_id=CLUSTER_ID,
                defaults={topic_bounds.SEGMENT_BYTES.broker_key: str(self.context.segment_bytes_min)},
                # Retention with every maintenance.
                retention_interval_ms=0,
            )
        )
        self.store = ClusterStore(
            self.tree, assign_replicas=Placer(dice.randrange), now_ms=clock.now_ms, random_bytes=dice.randbytes
        )
        self.current = CurrentImage(ClusterImage(CLUSTER_ID))
        self.store.follow(self.current)
        self.watcher = ClusterWatcher(self.tree, self.current, follows_flow_master=False)
        self.services = BrokerServices(
            broker_id=self.id,
            loop=loop,
            clock=clock,
            frame_bytes_max=FRAME_BYTES_MAX,
            storage=StorageServices(self.table, FRAME_BYTES_MAX, readers=cast(Executor, None)),
            metadata=MetadataServices(self.current, self.store, topic_defaults={}),
            coordination=CoordinatorServices(
                BlockProducerIds(self.store, self.id), self.context.coordination or from_overrides({})
            ),
            access=AccessServices("a-secret"),
            accounting=AccountingServices(AccountingRegistry()),
            tasks=cast(Any, _Tasks(self)),
        )

    def _assemble(self) -> None:
        """Assembles the parts in the order of `assembly.broker`."""
        config = _config(self.id, self.host.disk.top / "data", notices_pauses=self.context.coordination is not None)
        self.replication = Replication(
            config,
            self.services,
            self.watcher,
            lambda: self.session.broker_epoch,
            self._connect,
            self._forget_deleted,
        )
        self.coordination = None
        if self.context.coordination is not None:
            self.coordination = Coordination(self.services, self._connect)

    def _create_controller(self) -> None:
        """Makes the controller and the registration."""
        clock = self.clock
        self.controller = ControllerLoop(
            store=self.store,
            watcher=self.watcher,
            current=self.current,
            broker_id=self.id,
            session_id=lambda: self.tree.session_id,
        )
        self.current.subscribe(lambda before, after: self.services.metadata.bump_version())
        self.session = ClusterSession(
            tree=self.tree,
            store=self.store,
            watcher=self.watcher,
            broker_id=self.id,
            cluster_id=CLUSTER_ID,
            document=BrokerDocument(host=f"b{self.id}", port=self.id, admin_port=self.id, timestamp_ms=clock.now_ms()),
            on_fatal=self._fail,
        )

    def _on_disk_death(self) -> None:
        if not self.has_ended:
            self.host.kill("in the middle of a write")

    def _connect(self, broker: BrokerInfo, owner: LinkOwner) -> Dialled:
        context = self.context
        return Dialled(context.network, self.id, self.loop, broker.port, context.find, owner, f"b{self.id}")

    async def _forget_deleted(self) -> bool:
        """Writes checkpoints of deleted partitions like `assembly.log_maintenance`, yielding where a thread would
        write.
        """
        batch = self.table.flusher.plan_checkpoints()
        if batch is None:
            return True
        await asyncio.sleep(0)
        batch.run()
        await asyncio.sleep(0)
        batch.finish()
        return batch.is_complete

    def _fail(self, reason: str) -> None:
        self.fatal = reason
        self.context.world.after(0, self.host.kill, f"ended itself: {reason}")

    def spawn(self, work: Any) -> None:
        """Starts a task like `lifecycle.Periodic`."""
        task = self.loop.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.remove(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.faults.append(f"b{self.id} {error!r}")
            raise error

    # -- life ----------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            self.table.recover(self.clock.now_ms())
        except NoUsableDirectory as error:
            self._fail(str(error))
            return
        try:
            await self.tree.start()
            await self.session.start()
        except ClusterError as error:
            self._fail(f"cannot join the cluster: {error}")
            return
        self.is_listening = True
        self._controller_task = self.loop.create_task(self.controller.run())
        self._controller_task.add_done_callback(self._on_controller_end)
        self.replication.start_periodic(cast(Any, self))
        if self.coordination is not None:
            self.coordination.start_periodic(cast(Any, self))
        self.every(MAINTENANCE_S, self._maintain)
        self.every(FLUSH_S, self.flush)
        self.every(HIGH_WATERMARK_S, self.keep_high_watermarks)

    def _on_controller_end(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.faults.append(f"b{self.id} controller: {error!r}")

    def every(self, interval_s: float, work: Callable[[], object]) -> None:
        def run_and_repeat() -> None:
            if not self.has_stopped:
                work()
                self.loop.call_later(interval_s, run_and_repeat)

        self.loop.call_later(interval_s, run_and_repeat)

    def _maintain(self) -> None:
        try:
            self.table.maintain(self.clock.now_ms())
        except NoUsableDirectory as failure:
            self._fail(f"no log directory is left: {failure}")

    def flush(self) -> None:
        batch = self.table.flusher.plan_flush()
        batch.run()
        batch.finish()

    def keep_high_watermarks(self) -> None:
        batch = self.table.flusher.plan_high_watermarks()
        if batch is not None:
            batch.run()
            batch.finish()

    def stop(self) -> None:
        """Stops the process like SIGTERM."""
        self.is_leaving = True
        self.loop.call_soon(self.spawn, self._stop())

    async def _stop(self) -> None:
        if self.has_stopped or not self.is_listening:
            return
        self.has_stopped = True
        await hand_over(self.session, self.current, self.id, HAND_OVER_S)
        self.is_listening = False
        if self.coordination is not None:
            self.coordination.close()
        for connection in tuple(self.connections):
            connection.close("the broker stops")
        self.replication.fetchers.close()
        if self._controller_task is not None:
            self._controller_task.cancel()
            await asyncio.gather(self._controller_task, return_exceptions=True)
            await self.controller.stop()
        me = asyncio.current_task(self.loop)
        for task in tuple(self._tasks):
            if task is not me:
                task.cancel()
        if self.coordination is not None:
            for task in tuple(self.services.tasks):
                task.cancel()
        await self.session.stop()
        self.table.close(broker_epoch=self.session.broker_epoch)
        self.tree.stop()
        self.context.world.after(0, self.host.end, "stopped")


class Host:
    """The machine of one broker id. `process` is None while none runs."""

    def __init__(self, id: int, home: Path, context: SimulationContext, note: Callable[[str], object]) -> None:
        self.id = id
        self.process: Process | None = None
        self.clock = ProcessClock(context.world)
        self.incarnations = 0
        self._home = home
        self._context = context
        self._note = note
        home.mkdir()
        (home / "0").mkdir()
        self.disk = ProcessDisk(home / "0")
        self._unplugged: list[Accepted] = []

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.process.loop.is_paused

    def start(self) -> None:
        if self.process is not None:
            return
        self.incarnations += 1
        self.disk.is_dead = False
        self.disk.dies_in = None
        self.disk.fails = False
        self._note(f"b{self.id} starts, life {self.incarnations}")
        for connection in self._unplugged:
            connection.reset()
        self._unplugged.clear()
        self.process = Process(self, self._context)

    def kill(self, reason: str = "killed") -> None:
        """Kills the process like `kill -9`: written data stays, and connections of peers are reset."""
        if self.process is None:
            return
        for connection in tuple(self.process.connections):
            connection.reset()
        self.end(reason)

    def end(self, reason: str) -> None:
        process = self.process
        if process is None:
            return
        self._note(f"b{self.id} is gone: {reason}")
        process.has_ended = True
        process.loop.end()
        self.process = None
        self.disk.end_process()
        self._context.ensemble.review()

    def cut_power(self) -> None:
        """Cuts the power: data that was not on disk may be lost, and peers do not notice the end of connections."""
        process = self.process
        if process is not None:
            self._unplugged += list(process.connections)
            self.end("without power")
        self.disk = after_power_cut(self.disk, self._context.dice, self._home / str(self.incarnations))

    def pause(self) -> None:
        if self.process is not None:
            self.process.loop.pause()
            self._context.ensemble.review()

    def resume(self, *, messages_first: bool) -> None:
        if self.process is not None and self.process.loop.is_paused:
            self.process.loop.resume(messages_first=messages_first)
            self._context.ensemble.review()
