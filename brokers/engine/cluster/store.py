"""The one place where this broker changes the cluster's documents. Every write is a compare-and-set.

Any broker accepts topic administration (docs/decisions): it validates against its image, then writes entity and
change node in one transaction, so that readers learn of it by the change log and a lost race shows as `Conflict` or
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
    broker_config_writes,
    client_quotas,
    controller_writes,
    elected_roles,
    election_writes,
    errors,
    isr_writes,
    key_requests,
    legacy_offsets,
    reassignment_writes,
    registration,
    topic_admin,
    topic_plans,
    users,
)
from brokers.engine.cluster.controller_epoch import ControllerEpoch, StateWrite
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.election_plans import ElectionType
from brokers.engine.cluster.image import ClusterImage, TopicImage
from brokers.engine.cluster.in_flight_creations import InFlightCreations
from brokers.engine.cluster.in_flight_quotas import InFlightQuotas
from brokers.engine.cluster.in_flight_users import InFlightUsers
from brokers.engine.cluster.quota_image import AnyEntity
from brokers.engine.cluster.reservations import NO_CREATION, Reservation
from brokers.engine.cluster.topic_admin import AlteredConfig
from brokers.engine.cluster.topic_plans import CreatedTopic, Place, TopicGrowth, TopicSpec
from brokers.engine.cluster.tree import Tree
from brokers.engine.cluster.user_plans import Change, check_name

# Each attempt that fails is a creation of the same instance through another broker that succeeded.
RESERVATION_ATTEMPTS_MAX: Final = 30
# Until this broker's image shows it.
RESERVATION_WAIT_S_MAX: Final = 5.0


class ClusterStore:
    """`place` is the assignment algorithm, plugged in by the assembly (`controller.placement.Placer`).

    Methods raise `errors.StoreUnavailable` when ZooKeeper does not answer, and the `errors.Refused` family for requests
    that are wrong; their messages name things as the tenant does.
    """

    def __init__(
        self,
        tree: Tree,
        *,
        place: Place,
        now_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes] = os.urandom,
        replication_factor_max: int = topic_plans.REPLICATION_FACTOR_MAX,
    ) -> None:
        self.tree = tree
        self._place = place
        self._now_ms = now_ms
        self._random_bytes = random_bytes
        self._replication_factor_max = replication_factor_max
        self.in_flight_creations = InFlightCreations(now_ms)
        self._in_flight_quotas = InFlightQuotas()
        self._in_flight_users = InFlightUsers(now_ms)
        self._current: CurrentImage | None = None

    def follow(self, current: CurrentImage) -> None:
        """What is in flight is compared with each of these images from here on."""
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
        beside: Sequence[CreatedTopic] = (),
    ) -> CreatedTopic:
        """Creates a topic (CTL-17…19). `beside`: what the same request made before, of which `image` need not know
        yet.

        Leaders are not there yet when this returns: `current.wait_until(lambda image: ...has_leaders)`.
        Config keys and values must have been checked by the caller.
        """

        async def create(image: ClusterImage, reservation: Reservation | None) -> CreatedTopic:
            plan = self.plan_topic(image, spec, beside=beside)
            if not validate_only:
                with self.in_flight_creations.writing(plan):
                    await topic_admin.create(self.tree, plan, reservation)
            return plan

        return await self._reserving(image, spec.instance_id, create, validate_only=validate_only)

    async def _reserving(
        self,
        image: ClusterImage,
        instance_id: str | None,
        write: Callable[[ClusterImage, Reservation | None], Awaitable[CreatedTopic]],
        *,
        validate_only: bool,
    ) -> CreatedTopic:
        """`write`, which decides from an image and holds to the reservation, again from a later image as long as
        others make partitions of the instance in between.
        """
        for _ in range(RESERVATION_ATTEMPTS_MAX):
            reservation = self.in_flight_creations.reserve(image, instance_id)
            try:
                created = await write(image, reservation)
            except errors.CreationsMoved:
                assert reservation is not None, "nothing else moves"
                image = await self._later_image(reservation)
                continue
            if not validate_only:
                self.in_flight_creations.reserved(reservation)
            return created
        raise errors.Conflict("Others create partitions at the same time; try again.")

    async def _later_image(self, reservation: Reservation) -> ClusterImage:
        """One that has a creation which the reservation had not seen."""
        if self._current is None or not await self._current.wait_until(
            lambda image: image.creations.get(reservation.instance_id, NO_CREATION) > reservation.seen,
            RESERVATION_WAIT_S_MAX,
        ):
            # The image alone counts from here on: ZooKeeper may have been restored to what it was earlier.
            self.in_flight_creations.forget(reservation.instance_id)
            raise errors.Conflict("Others create partitions at the same time; try again.")
        return self._current.image

    def plan_topic(
        self,
        image: ClusterImage,
        spec: TopicSpec,
        *,
        beside: Sequence[CreatedTopic] = (),
    ) -> CreatedTopic:
        """Returns what `create_topic` would write. Raises errors.Refused."""
        return topic_plans.plan_creation(
            image,
            spec,
            place=self._place,
            topic_id=self._random_bytes(16),
            replication_factor_max=self._replication_factor_max,
            beside=[*beside, *self.in_flight_creations.beside(spec.instance_id, spec.name)],
        )

    async def delete_topic(self, image: ClusterImage, *, instance_id: str | None, name: str) -> TopicImage:
        """CTL-20: marks it; the controller removes it. Answers the image it had. Deleting twice is no error."""
        return await topic_admin.mark_for_deletion(self.tree, image, instance_id=instance_id, name=name)

    async def create_partitions(
        self,
        image: ClusterImage,
        growth: TopicGrowth,
        *,
        validate_only: bool = False,
        beside: Sequence[CreatedTopic] = (),
    ) -> CreatedTopic:
        """Adds partitions to a topic (REP-35, ASG-5); `beside` is as in `create_topic`."""

        async def grow(image: ClusterImage, reservation: Reservation | None) -> CreatedTopic:
            planner = topic_admin.GrowthPlanner(image, growth, self._place, self.in_flight_creations, beside)
            if validate_only:
                return await topic_admin.validate_growth(self.tree, planner)
            return await topic_admin.grow(self.tree, planner, reservation)

        return await self._reserving(image, growth.instance_id, grow, validate_only=validate_only)

    async def alter_topic_config(
        self,
        image: ClusterImage,
        *,
        instance_id: str | None,
        name: str,
        change: Callable[[dict[str, str]], dict[str, str]],
    ) -> AlteredConfig:
        """Applies `change` to the stored overrides and answers the result; `change` may run again after a lost race.

        An image shows it as soon as its `config_change` has come to the one answered.
        """
        return await topic_admin.alter_config(self.tree, image, instance_id=instance_id, name=name, change=change)

    # --- brokers ------------------------------------------------------------------------------------------------

    async def alter_broker_config(
        self, broker_id: int | None, change: broker_config_writes.Change
    ) -> broker_config_writes.AlteredBrokerConfig:
        """As `alter_topic_config`, for what operators set for one running broker, or for all of them (None)."""
        return await broker_config_writes.alter(self.tree, broker_id, change)

    # --- where replicas are and who leads ------------------------------------------------------------------------

    async def elect_leaders(
        self, image: ClusterImage, wanted: Sequence[PartitionKey], kind: ElectionType
    ) -> dict[PartitionKey, election_writes.Outcome]:
        """REP-28, REP-31: `wanted` are partitions of `image` by internal topic name, each answered for itself."""
        return await election_writes.elect(self.tree, image, wanted, kind)

    async def reassign(
        self, image: ClusterImage, wanted: Mapping[str, reassignment_writes.Targets]
    ) -> dict[PartitionKey, reassignment_writes.Outcome]:
        """REP-32, REP-33: starts moves to the replicas given per partition, or calls off what moves (None)."""
        return await reassignment_writes.reassign(
            self.tree, image, wanted, replication_factor_max=self._replication_factor_max
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
        """QUO-71, QUO-73, QUO-74: sets the named limits, None removes; other keys of the node are left alone.

        Answers the config change that announces it, None when nothing had to be written.
        """
        client_quotas.validate(entity, changes)
        after = self._in_flight_quotas.check(image.quotas, image.config_change, instance_id, entity, changes)
        if validate_only:
            return None
        change = await client_quotas.alter(self.tree, instance_id=instance_id, entity=entity, limits=changes)
        if change is not None:
            self._in_flight_quotas.note(instance_id, entity, after, change)
        return change

    # --- users --------------------------------------------------------------------------------------------------

    async def alter_user(
        self, image: ClusterImage, *, instance_id: str, name: str, change: Change, validate_only: bool = False
    ) -> UserDocument | None:
        """Writes what `change` makes of the user, and answers it; None removes. It may be asked again after a lost
        race, and may raise errors.Refused. With `validate_only` it is asked about what `image` shows.
        """
        node = paths.sanitise(name)
        shown = image.users.of_instance(instance_id)

        def admit(before: UserDocument | None, after: UserDocument | None) -> None:
            if before is None and after is not None:
                check_name(name)
            self._in_flight_users.check(shown, instance_id, node, before, after)

        if validate_only:
            before = shown.get(node)
            after = change(before)
            admit(before, after)
            return after
        after = await users.alter(self.tree, instance_id=instance_id, node=node, change=change, admit=admit)
        self._in_flight_users.note(instance_id, node, after)
        return after

    def _forget_users(self, before: ClusterImage, after: ClusterImage) -> None:
        if before.instances is not after.instances:
            self._in_flight_users.forget([id for id in before.instances if id not in after.instances])

    # --- access control lists ------------------------------------------------------------------------------------

    async def add_acls(self, instance_id: str, wanted: Mapping[ResourcePattern, Sequence[AclEntry]]) -> int | None:
        """Adds entries to those of patterns; what is there already is no error. Answers as `alter_client_quotas`."""
        return await acl_writes.add(self.tree, instance_id, wanted)

    async def remove_acls(self, instance_id: str, unwanted: Mapping[ResourcePattern, Sequence[AclEntry]]) -> int | None:
        """As `add_acls`; what is not there is no error."""
        return await acl_writes.remove(self.tree, instance_id, unwanted)

    # --- key sets ------------------------------------------------------------------------------------------------

    async def request_keys(self, instance_id: str) -> None:
        """Asks the control plane to fetch the key set of an instance again."""
        await key_requests.request(self.tree, instance_id)

    # --- offsets of old consumers -------------------------------------------------------------------------------

    async def write_legacy_offsets(self, group: str, offsets: Mapping[PartitionKey, int]) -> None:
        """GRP-40: by internal group, topic and partition."""
        await legacy_offsets.write(self.tree, group, offsets)

    async def read_legacy_offsets(self, group: str, keys: Sequence[PartitionKey]) -> list[int | None]:
        """None for what was never written."""
        return await legacy_offsets.read(self.tree, group, keys)

    async def remove_orphaned_legacy_offsets(self) -> int:
        """What deleted instances left; answers of how many groups."""
        return await legacy_offsets.remove_orphans(self.tree)

    # --- this broker --------------------------------------------------------------------------------------------

    async def prepare(self, cluster_id: str) -> None:
        """ZK-2: makes the paths every process counts on. Running twice is harmless."""
        await registration.prepare(self.tree, cluster_id)

    async def register_broker(self, broker_id: int, document: BrokerDocument) -> int:
        """Registers and answers the broker epoch. Call with the document's port already bound: that proves that an
        older registration of the same address is our own dead incarnation, which is then replaced at once.

        Raises:
            BrokerAlreadyRegistered: another address lives under this id.
        """
        return await registration.register_broker(self.tree, broker_id, document)

    async def announce_stop(self, broker_id: int) -> bool:
        """REP-34: asks the controller to take away what somebody else can take. False: not registered now."""
        return await registration.announce_stop(self.tree, broker_id)

    async def unregister_broker(self, broker_id: int) -> None:
        """Clean stop: the ephemerals of this session go before the session does."""
        await registration.unregister_broker(self.tree, broker_id)

    async def acknowledge_instance(self, broker_id: int, instance_id: str, ack: InstanceAck | None) -> None:
        """Says what this broker made of the instance document; None takes the word back (instance gone)."""
        await registration.acknowledge(self.tree, broker_id, instance_id, ack)

    async def next_producer_id_block(self, broker_id: int) -> range:
        """IDE-1: 1000 producer ids nobody else has or will have."""
        return await registration.next_producer_id_block(self.tree, broker_id)

    async def write_isrs(self, writes: Sequence[StateWrite]) -> list[StateWrite]:
        """REP-24: what this broker says of partitions that it leads, each held to the version it knows; answers the
        writes that lost a race.
        """
        return await isr_writes.write(self.tree, writes)

    # --- the controller -----------------------------------------------------------------------------------------

    async def elect(self, broker_id: int) -> ControllerEpoch | None:
        """CTL-1: the controller epoch if this broker won (or already holds it in this session), None if somebody else
        did.
        """
        return await controller_writes.elect(self.tree, broker_id, self._now_ms())

    async def elect_flow_master(self, broker_id: int) -> int | None:
        """CKA-21: the epoch, as `elect`. The role ends with the session: brokers do not delete below `/ckafka`."""
        won = await elected_roles.elect(self.tree, elected_roles.FLOW_MASTER, broker_id, self._now_ms())
        return None if won is None else won.epoch

    async def resign(self, held_epoch: ControllerEpoch) -> None:
        await controller_writes.resign(self.tree, held_epoch)

    async def write_states(self, held_epoch: ControllerEpoch, writes: Sequence[StateWrite]) -> list[StateWrite]:
        """Carries out what can be carried out and answers the writes that lost a race.

        Raises:
            ControllerMoved: the controller epoch is over; nothing of the failing transaction was written.
        """
        return await controller_writes.write_states(self.tree, held_epoch, writes)

    async def finish_reassignments(
        self, held_epoch: ControllerEpoch, topic: TopicImage, writes: Sequence[StateWrite]
    ) -> bool:
        """REP-32: the partitions of `writes` have arrived. False: overtaken by somebody else's write.

        Raises:
            ControllerMoved: as above.
        """
        return await controller_writes.finish_reassignments(self.tree, held_epoch, topic, writes)

    async def finish_deletion(self, held_epoch: ControllerEpoch, topic: TopicImage) -> None:
        """CTL-20: removes states, topic, config, the instance's document and the marker.

        Raises:
            ControllerMoved: as above.
        """
        await controller_writes.finish_deletion(self.tree, held_epoch, topic)

    async def clean_changes(self, older_than_ms: int) -> int:
        """Deletes change nodes created before now minus `older_than_ms` (ZK-32); answers how many."""
        return await controller_writes.clean_changes(self.tree, self._now_ms() - older_than_ms)
