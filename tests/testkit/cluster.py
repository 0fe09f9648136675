"""One broker's share of the cluster's coordination, wired as the assembly wires it, over any tree.

member = Member(tree, broker_id=1)
await member.start()
await member.until(lambda image: image.controller_id == 1)
await member.create_topic("ins-7k2m9qxa", "orders", partitions=3)
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable

from brokers.contract import documents, paths
from brokers.contract.documents import BrokerDocument, InstanceDocument
from brokers.contract.own_topics import LED_BY_EACH_BROKER
from brokers.engine.cluster import topic_plans
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.image import ClusterImage, TopicImage
from brokers.engine.cluster.session import ClusterSession
from brokers.engine.cluster.store import ClusterStore
from brokers.engine.cluster.topic_plans import CreatedTopic, TopicSpec
from brokers.engine.cluster.tree import Create, NodeExists, Set, Tree
from brokers.engine.cluster.watcher import ClusterWatcher
from brokers.engine.controller.loop import ControllerLoop
from brokers.engine.controller.placement import Placer

CLUSTER_ID = "cl-test"
DEADLINE_S = 60.0


class Member:
    """A broker's coordination over a tree. `fatal` collects the session's last errors; `controls` False leaves the
    controller out.
    """

    def __init__(
        self,
        tree: Tree,
        *,
        broker_id: int,
        controls: bool = True,
        port: int | None = None,
        replication_factor_max: int = topic_plans.REPLICATION_FACTOR_MAX,
        registration_wait_s: float = 5.0,
        now_ms: Callable[[], int] = lambda: 1_000_000,
    ) -> None:
        self.tree = tree
        self.broker_id = broker_id
        self.fatal: list[str] = []
        self.current = CurrentImage(ClusterImage(CLUSTER_ID))
        self.store = ClusterStore(
            tree,
            assign_replicas=Placer(random.Random(broker_id).randrange),
            now_ms=now_ms,
            replication_factor_max=replication_factor_max,
        )
        self.store.follow(self.current)
        self.watcher = ClusterWatcher(tree, self.current, follows_flow_master=False)
        self.session = ClusterSession(
            tree=tree,
            store=self.store,
            watcher=self.watcher,
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            document=BrokerDocument(
                host="127.0.0.1", port=port or 24000 + broker_id, admin_port=24050 + broker_id, timestamp_ms=1
            ),
            on_fatal=self.fatal.append,
            registration_wait_s=registration_wait_s,
        )
        self.controller = ControllerLoop(
            store=self.store,
            watcher=self.watcher,
            current=self.current,
            broker_id=broker_id,
            session_id=lambda: tree.session_id,
        )
        self._controls = controls
        self._loop_task: asyncio.Task[None] | None = None

    @property
    def image(self) -> ClusterImage:
        return self.current.image

    async def start(self) -> None:
        await self.session.start()
        if self._controls:
            self._loop_task = asyncio.create_task(self.controller.run())

    async def stop(self) -> None:
        """Stops cleanly. Safe to call after `crash`."""
        await self.crash()
        await self.controller.stop()
        await self.session.stop()

    async def crash(self) -> None:
        """Cancels the controller task at any point."""
        if self._loop_task is not None:
            self._loop_task.cancel()
            await asyncio.gather(self._loop_task, return_exceptions=True)
            self._loop_task = None

    async def until(self, condition: Callable[[ClusterImage], bool], timeout_s: float = DEADLINE_S) -> ClusterImage:
        assert await self.current.wait_until(condition, timeout_s), "the image did not come in time"
        return self.image

    async def until_complete(self) -> ClusterImage:
        """Waits until every partition has a state, and the internal topics serve every live broker."""
        return await self.until(is_complete)

    async def create_topic(self, instance_id: str | None, name: str, **spec_fields: object) -> TopicImage:
        """Creates a topic and waits for leaders, in the way of the handler."""
        plan: CreatedTopic = await self.store.create_topic(self.image, TopicSpec(instance_id, name, **spec_fields))
        await self.until(lambda image: has_leaders(image, plan.internal_name))
        return self.image.topics[plan.internal_name]

    async def publish_instance(self, instance_id: str, brokers: Iterable[int], **fields: object) -> None:
        """Publishes an instance in the way of the reconciler, and waits until this member sees it."""
        document = instance_document(brokers, **fields)
        change = Create(paths.CHANGE_PREFIX, documents.change_to_json([f"instances/{instance_id}"]), sequence=True)
        try:
            await self.tree.commit([Create(paths.instance(instance_id), document.to_json()), change])
        except NodeExists:
            await self.tree.commit([Set(paths.instance(instance_id), document.to_json(), None), change])
        await self.until(
            lambda image: instance_id in image.instances and image.instances[instance_id].document == document
        )


def instance_document(brokers: Iterable[int], **fields: object) -> InstanceDocument:
    brokers = list(brokers)
    document_fields: dict[str, object] = {
        "generation": 1,
        "produce_bps": 1_000_000,
        "consume_bps": 1_000_000,
        "capacity_bytes": 1_000_000_000,
        "ports": {broker: 24_060 + broker for broker in brokers},
        "endpoints": {broker: f"127.0.0.1:{24_060 + broker}" for broker in brokers},
        **fields,
    }
    return InstanceDocument(**document_fields)  # type: ignore[arg-type]


def has_leaders(image: ClusterImage, internal_name: str) -> bool:
    return internal_name in image.topics and image.topics[internal_name].has_leaders


def is_complete(image: ClusterImage) -> bool:
    """True if there is a controller and it has nothing left to do about first states, `__usage` and `__audit`."""
    if image.controller_id == -1:
        return False
    for topic in image.topics.values():
        for partition in topic.partitions:
            if partition.version is None and any(replica in image.brokers for replica in partition.replicas):
                return False
    for name in LED_BY_EACH_BROKER:
        topic_of_each_broker = image.topics.get(name)
        if topic_of_each_broker is None or not {p.replicas[0] for p in topic_of_each_broker.partitions} >= set(
            image.brokers
        ):
            return False
    return True


async def run_pending_callbacks() -> None:
    """Runs everything that is pending in the fake ensemble: many turns of the loop, without a clock."""
    for _ in range(400):
        await asyncio.sleep(0)
