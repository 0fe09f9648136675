"""The only place where this broker changes the cluster's documents; every write is a compare-and-set.

Any broker accepts topic administration (docs/decisions): it validates against its image, then writes entity and change
node in one transaction, so that readers learn of it from the change log and a lost race becomes `Conflict` or
`TopicExists`.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from brokers.contract import paths
from brokers.contract.acls import AclEntry, ResourcePattern
from brokers.contract.documents import BrokerDocument, InstanceAck
from brokers.contract.partitions import PartitionKey
from brokers.contract.users import UserDocument
from brokers.engine.cluster import (
    acl_writes,
    broker_config_documents,
    client_quotas,
    controller_writes,
    elected_roles,
    election_writes,
    errors,
    legacy_offsets,
    reassignment_writes,
    registration,
    state_writes,
    topic_admin,
    topic_plans,
    user_writes,
)
from brokers.engine.cluster.changes import NO_CREATION, Reservation
from brokers.engine.cluster.controller_epoch import ControllerEpoch, StateWrite
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.election_plans import ElectionType
from brokers.engine.cluster.image import ClusterImage, TopicImage
from brokers.engine.cluster.in_flight_creations import InFlightCreations
from brokers.engine.cluster.in_flight_quotas import InFlightQuotas
from brokers.engine.cluster.in_flight_users import InFlightUsers
from brokers.engine.cluster.quota_image import AnyEntity
from brokers.engine.cluster.topic_admin import AlteredConfig
from brokers.engine.cluster.topic_plans import AssignReplicas, CreatedTopic, TopicGrowth, TopicSpec
from brokers.engine.cluster.tree import Tree
from brokers.engine.cluster.user_plans import Change, check_name

# Maximum number of attempts; each failure means that another broker created partitions of the same instance.
RESERVATION_ATTEMPTS_MAX: Final = 30
# Maximum time until this broker's image shows that creation.
RESERVATION_WAIT_S_MAX: Final = 5.0


class ClusterStore:
    """Writes to the cluster's documents; `assign_replicas` is the assignment algorithm (`controller.placement.Placer`).

    Methods raise `errors.StoreUnavailable` when ZooKeeper does not answer, and subclasses of `errors.Refused` for
    invalid requests, with messages that use the tenant's names.
    """

    def __init__(
        self,
        tree: Tree,
        *,
        assign_replicas: AssignReplicas,
        now_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes] = os.urandom,
        replication_factor_max: int = topic_plans.REPLICATION_FACTOR_MAX,
    ) -> None:
        self.tree = tree
        self.assign_replicas = assign_replicas
        self._now_ms = now_ms
        self._random_bytes = random_bytes
        self._replication_factor_max = replication_factor_max
        self.in_flight_creations = InFlightCreations(now_ms)
        self._in_flight_quotas = InFlightQuotas()
        self._in_flight_users = InFlightUsers(now_ms)
        self._current: CurrentImage | None = None

    def follow(self, current: CurrentImage) -> None:
        """Subscribes to images, with which pending writes are compared from now on."""
        self._current = current
        current.subscribe(self.in_flight_creations.on_image)
        current.subscribe(self._forget_users)

    # --- topics -------------------------------------------------------------------------------------------------

    async def create_topic(
        self,
        image: ClusterImage,
        spec: TopicSpec,
        *,
        validate_only: bool = False,
        pending_creations: Sequence[CreatedTopic] = (),
    ) -> CreatedTopic:
        """Creates a topic (CTL-17 to CTL-19).

        `pending_creations` are earlier creations of the same request that may not be in `image` yet. The partitions
        have no leaders yet when this returns; `CurrentImage.wait_until` waits for an image in which the topic
        `has_leaders`. The caller must have validated the keys and values of the topic's settings.
        """

        async def create(image: ClusterImage, reservation: Reservation | None) -> CreatedTopic:
            plan = self.plan_topic(image, spec, pending_creations=pending_creations)
            if not validate_only:
                with self.in_flight_creations.counted_during_write(plan):
                    await topic_admin.create(self.tree, plan, reservation)
            return plan

        return await self._with_reservation(image, spec.instance_id, create, validate_only=validate_only)

    async def _with_reservation(
        self,
        image: ClusterImage,
        instance_id: str | None,
        write: Callable[[ClusterImage, Reservation | None], Awaitable[CreatedTopic]],
        *,
        validate_only: bool,
    ) -> CreatedTopic:
        """Calls `write` with an image and a reservation. If another broker has created partitions of the instance since
        that image, calls it again with a later image.
        """
        for _ in range(RESERVATION_ATTEMPTS_MAX):
            reservation = self.in_flight_creations.reserve(image, instance_id)
            try:
                created = await write(image, reservation)
            except errors.CreationsMoved:
                assert reservation is not None, "without a reservation no concurrent creation is detected"
                image = await self._later_image(reservation)
                continue
            if not validate_only:
                self.in_flight_creations.record_reservation(reservation)
            return created
        raise errors.Conflict("Others create partitions at the same time; try again.")

    async def _later_image(self, reservation: Reservation) -> ClusterImage:
        """Waits for an image with the creation of another broker that made the reservation fail, and returns it."""
        if self._current is None or not await self._current.wait_until(
            lambda image: image.creations.get(reservation.instance_id, NO_CREATION) > reservation.seen_version,
            RESERVATION_WAIT_S_MAX,
        ):
            # Versions that this broker remembers may be too high, if ZooKeeper was restored to an earlier state.
            self.in_flight_creations.forget(reservation.instance_id)
            raise errors.Conflict("Others create partitions at the same time; try again.")
        return self._current.image

    def plan_topic(
        self,
        image: ClusterImage,
        spec: TopicSpec,
        *,
        pending_creations: Sequence[CreatedTopic] = (),
    ) -> CreatedTopic:
        """Returns what `create_topic` would write. Raises errors.Refused."""
        return topic_plans.plan_creation(
            image,
            spec,
            assign_replicas=self.assign_replicas,
            topic_id=self._random_bytes(16),
            replication_factor_max=self._replication_factor_max,
            pending_creations=[
                *pending_creations,
                *self.in_flight_creations.pending_except(spec.instance_id, spec.name),
            ],
        )

    async def delete_topic(self, image: ClusterImage, *, instance_id: str | None, name: str) -> TopicImage:
        """Marks a topic for deletion by the controller and returns its image; repeating it is no error (CTL-20)."""
        return await topic_admin.mark_for_deletion(self.tree, image, instance_id=instance_id, name=name)

    async def create_partitions(
        self,
        image: ClusterImage,
        growth: TopicGrowth,
        *,
        validate_only: bool = False,
        pending_creations: Sequence[CreatedTopic] = (),
    ) -> CreatedTopic:
        """Adds partitions to a topic (REP-35, ASG-5); `pending_creations` is as in `create_topic`."""

        async def grow(image: ClusterImage, reservation: Reservation | None) -> CreatedTopic:
            planner = topic_admin.GrowthPlanner(
                image, growth, self.assign_replicas, self.in_flight_creations, pending_creations
            )
            if validate_only:
                return await topic_admin.validate_growth(self.tree, planner)
            return await topic_admin.grow(self.tree, planner, reservation)

        return await self._with_reservation(image, growth.instance_id, grow, validate_only=validate_only)

    async def alter_topic_config(
        self,
        image: ClusterImage,
        *,
        instance_id: str | None,
        name: str,
        change: Callable[[dict[str, str]], dict[str, str]],
    ) -> AlteredConfig:
        """Applies `change` to the stored settings of a topic and returns the result; `change` may run again after a
        lost race.

        An image shows it once its `config_change` reaches the returned one.
        """
        return await topic_admin.alter_config(self.tree, image, instance_id=instance_id, name=name, change=change)

    # --- brokers ------------------------------------------------------------------------------------------------

    async def alter_broker_config(
        self, broker_id: int | None, change: broker_config_documents.Change
    ) -> broker_config_documents.AlteredBrokerConfig:
        """Changes operators' settings of one running broker, or of all (None), like `alter_topic_config`."""
        return await broker_config_documents.alter(self.tree, broker_id, change)

    # --- reassignments and elections --------------------------------------------------------------------------------

    async def elect_leaders(
        self, image: ClusterImage, partitions: Sequence[PartitionKey], kind: ElectionType
    ) -> dict[PartitionKey, election_writes.Outcome]:
        """Elects leaders of partitions in `image` (internal topic name, index); returns one outcome for each (REP-28,
        REP-31).
        """
        return await election_writes.elect(self.tree, image, partitions, kind)

    async def reassign(
        self, image: ClusterImage, targets_by_topic: Mapping[str, reassignment_writes.Targets]
    ) -> dict[PartitionKey, reassignment_writes.Outcome]:
        """Starts reassignments by internal topic name and partition; targets of None cancel them (REP-32, REP-33).

        Returns one outcome for each partition.
        """
        return await reassignment_writes.reassign(
            self.tree, image, targets_by_topic, replication_factor_max=self._replication_factor_max
        )

    # --- client quotas ------------------------------------------------------------------------------------------

    async def alter_client_quotas(
        self,
        image: ClusterImage,
        *,
        instance_id: str,
        entity: AnyEntity,
        changes: Mapping[str, float | None],
        validate_only: bool = False,
    ) -> int | None:
        """Sets the named limits, where None removes; other keys of the node stay (QUO-71, QUO-73, QUO-74).

        Returns the config change that announces it, None if nothing had to be written.
        """
        client_quotas.validate(entity, changes)
        after = self._in_flight_quotas.check(image.quotas, image.config_change, instance_id, entity, changes)
        if validate_only:
            return None
        change = await client_quotas.alter(self.tree, instance_id=instance_id, entity=entity, limits=changes)
        if change is not None:
            self._in_flight_quotas.record(instance_id, entity, after, change)
        return change

    # --- users --------------------------------------------------------------------------------------------------

    async def alter_user(
        self, image: ClusterImage, *, instance_id: str, name: str, change: Change, validate_only: bool = False
    ) -> UserDocument | None:
        """Writes the result of `change` for a user and returns it; None removes the user.

        `change` may run again after a lost race, and may raise errors.Refused. With `validate_only` it is applied to
        the user in `image`.
        """
        node = paths.sanitise(name)
        users = image.users.of_instance(instance_id)

        def check_limits(before: UserDocument | None, after: UserDocument | None) -> None:
            if before is None and after is not None:
                check_name(name)
            self._in_flight_users.check(users, instance_id, node, before, after)

        if validate_only:
            before = users.get(node)
            after = change(before)
            check_limits(before, after)
            return after
        after = await user_writes.alter(
            self.tree, instance_id=instance_id, node=node, change=change, check_limits=check_limits
        )
        self._in_flight_users.record(instance_id, node, after)
        return after

    def _forget_users(self, before: ClusterImage, after: ClusterImage) -> None:
        if before.instances is not after.instances:
            self._in_flight_users.forget([id for id in before.instances if id not in after.instances])

    # --- access control lists ------------------------------------------------------------------------------------

    async def add_acls(self, instance_id: str, entries: Mapping[ResourcePattern, Sequence[AclEntry]]) -> int | None:
        """Adds ACL entries to patterns; existing ones are no error.

        Returns a config change like `alter_client_quotas`.
        """
        return await acl_writes.add(self.tree, instance_id, entries)

    async def remove_acls(self, instance_id: str, entries: Mapping[ResourcePattern, Sequence[AclEntry]]) -> int | None:
        """Removes ACL entries; missing ones are no error. Returns a config change like `alter_client_quotas`."""
        return await acl_writes.remove(self.tree, instance_id, entries)

    # --- key sets ------------------------------------------------------------------------------------------------

    async def request_keys(self, instance_id: str) -> None:
        """Requests that the control plane fetches an instance's OAuth key set again."""
        await user_writes.request_keys(self.tree, instance_id)

    # --- offsets of old consumers -------------------------------------------------------------------------------

    async def write_legacy_offsets(self, group: str, offsets: Mapping[PartitionKey, int]) -> None:
        """Writes offsets by internal group, topic and partition (GRP-40)."""
        await legacy_offsets.write(self.tree, group, offsets)

    async def read_legacy_offsets(self, group: str, keys: Sequence[PartitionKey]) -> list[int | None]:
        """Returns the offsets, None for those that were never written."""
        return await legacy_offsets.read(self.tree, group, keys)

    async def remove_orphaned_legacy_offsets(self) -> int:
        """Removes offsets of deleted instances and returns the number of groups."""
        return await legacy_offsets.remove_orphans(self.tree)

    # --- this broker --------------------------------------------------------------------------------------------

    async def prepare(self, cluster_id: str) -> None:
        """Creates the paths that every process requires, and the cluster id; running it twice does no harm (ZK-2).

        Raises:
            Conflict: this ensemble has another cluster.
        """
        await registration.prepare(self.tree, cluster_id)

    async def register_broker(self, broker_id: int, document: BrokerDocument) -> int:
        """Registers this broker and returns the broker epoch.

        The document's port must be bound already: that proves that an older registration of the same address is a dead
        incarnation of this broker, which is then replaced at once.

        Raises:
            BrokerAlreadyRegistered: another address has this id.
        """
        return await registration.register_broker(self.tree, broker_id, document)

    async def announce_stop(self, broker_id: int) -> bool:
        """Requests that the controller moves leaderships to other brokers (REP-34); returns False if not registered."""
        return await registration.announce_stop(self.tree, broker_id)

    async def unregister_broker(self, broker_id: int) -> None:
        """Deletes this session's registration on a clean stop, so that the other brokers notice it before the session
        ends.
        """
        await registration.unregister_broker(self.tree, broker_id)

    async def acknowledge_instance(self, broker_id: int, instance_id: str, ack: InstanceAck | None) -> None:
        """Acknowledges an instance document with its result on this broker; an `ack` of None withdraws it."""
        await registration.acknowledge(self.tree, broker_id, instance_id, ack)

    async def next_producer_id_block(self, broker_id: int) -> range:
        """Reserves 1000 producer ids for this broker only (IDE-1)."""
        return await registration.next_producer_id_block(self.tree, broker_id)

    async def write_isrs(self, writes: Sequence[StateWrite]) -> list[StateWrite]:
        """Writes ISRs of partitions that this broker leads, each at the known version (REP-24); returns those that lost
        a race.
        """
        return await state_writes.write(self.tree, writes)

    # --- the controller -----------------------------------------------------------------------------------------

    async def elect(self, broker_id: int) -> ControllerEpoch | None:
        """Returns the controller epoch if this broker won, or is the controller in this session already, else None
        (CTL-1).
        """
        return await controller_writes.elect(self.tree, broker_id, self._now_ms())

    async def elect_flow_master(self, broker_id: int) -> int | None:
        """Returns the epoch of the flow master if this broker won, like `elect` (CKA-21).

        The role ends with the session: brokers may not delete below `/ckafka`.
        """
        elected = await elected_roles.elect(self.tree, elected_roles.FLOW_MASTER, broker_id, self._now_ms())
        return None if elected is None else elected.epoch

    async def resign(self, held_epoch: ControllerEpoch) -> None:
        """Ends the role of this session's controller, so that another broker is elected at once."""
        await controller_writes.resign(self.tree, held_epoch)

    async def write_states(self, held_epoch: ControllerEpoch, writes: Sequence[StateWrite]) -> list[StateWrite]:
        """Writes the states that can be written and returns those that lost a race.

        Raises:
            ControllerMoved: the controller epoch is over; nothing of the failing transaction was written.
        """
        return await controller_writes.write_states(self.tree, held_epoch, writes)

    async def finish_reassignments(
        self, held_epoch: ControllerEpoch, topic: TopicImage, writes: Sequence[StateWrite]
    ) -> bool:
        """Completes the reassignments of the partitions of `writes` (REP-32); returns False after a concurrent write.

        Raises:
            ControllerMoved: the controller epoch is over.
        """
        return await controller_writes.finish_reassignments(self.tree, held_epoch, topic, writes)

    async def finish_deletion(self, held_epoch: ControllerEpoch, topic: TopicImage) -> None:
        """Deletes the states, documents and settings of a topic, and last its deletion marker (CTL-20).

        Raises:
            ControllerMoved: the controller epoch is over.
            Conflict: the topic is not marked for deletion.
        """
        await controller_writes.finish_deletion(self.tree, held_epoch, topic)

    async def clean_changes(self, older_than_ms: int) -> int:
        """Deletes change nodes older than `older_than_ms` (ZK-32) and returns how many."""
        return await controller_writes.clean_changes(self.tree, self._now_ms() - older_than_ms)
