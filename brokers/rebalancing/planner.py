"""Plans of replica moves: emptying a broker, and balancing all brokers. Pure and deterministic.

A plan preserves the number of a partition's replicas, each on a different broker; it never reduces the number of their
racks; and it places an instance's replicas only on brokers that its clients can reach. Balancing also moves second
replicas in a rack to racks without one. An instance may get a placement on a further broker; its clients learn of it by
Metadata. Placements are shares of the sold capacity: balancing gives no broker more than it can sell, and emptying one
prefers brokers with capacity.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction

from django.utils.translation import gettext_noop

from brokers.contract.partitions import PartitionKey
from brokers.rebalancing.model import Fleet, Obstacle, PartitionReplicas, PlacementChange, Reassignment, RebalancePlan
from tenants.errors import Message

# Balancing ends when the load of the fullest broker exceeds that of the emptiest by at most this part of the average
# load; smaller gains do not justify a copy.
SPREAD_MIN = 0.1
# The largest share of one instance relative to the gap between two brokers: near the whole gap they would only swap.
SHIFT_MAX = 0.75


class _PlanState:
    """The load of each broker after the moves decided so far. A replica weighs one `unit` plus its share of the bytes:
    an average partition weighs two, so that neither many small ones nor a few large ones accumulate. Loads are whole
    numbers: with rounding, two brokers could both seem fuller and exchange a partition without end.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.brokers_that_accept = frozenset(id for id, broker in fleet.brokers.items() if broker.accepts_replicas)
        self.replicas = {partition.key: partition.replicas for partition in fleet.partitions}
        self.placements = {owner: set(brokers) for owner, brokers in fleet.placements.items()}
        count = len(fleet.partitions)
        self.unit = max(1, sum(partition.size_bytes for partition in fleet.partitions))
        self.weight = {partition.key: self.unit + partition.size_bytes * count for partition in fleet.partitions}
        self.load: dict[int, int] = defaultdict(int)
        self.leaders: Counter[int] = Counter()
        self.sold: dict[int, tuple[Fraction, Fraction]] = defaultdict(lambda: (Fraction(), Fraction()))
        for owner, brokers in fleet.placements.items():
            self.sell(owner, brokers, spread=len(brokers))
        for key, replicas in self.replicas.items():
            self.leaders.update(replicas[:1])
            for broker in replicas:
                self.load[broker] += self.weight[key]

    def assign(self, key: PartitionKey, replicas: tuple[int, ...]) -> None:
        previous_replicas = self.replicas[key]
        self.leaders.subtract(previous_replicas[:1])
        self.leaders.update(replicas[:1])
        for broker in previous_replicas:
            self.load[broker] -= self.weight[key]
        for broker in replicas:
            self.load[broker] += self.weight[key]
        self.replicas[key] = replicas

    def sell(self, owner: str, brokers: Iterable[int], *, spread: int, sign: int = 1) -> None:
        """Adds the instance's share on these brokers, divided by `spread`; `sign` -1 subtracts it."""
        mb_s, gb = self.fleet.sold.get(owner, (0, 0))
        for broker in brokers:
            sold = self.sold[broker]
            self.sold[broker] = sold[0] + sign * Fraction(mb_s, spread), sold[1] + sign * Fraction(gb, spread)

    def has_capacity(self, owner: str, broker: int, *, spread: int) -> bool:
        """True if the broker can sell the instance's share when the instance is on `spread` brokers."""
        limits = self.fleet.brokers[broker].can_sell
        sizes = self.fleet.sold.get(owner)
        if limits is None or sizes is None:
            return True
        usages = zip(self.sold[broker], sizes, limits, strict=True)
        return all(sold + Fraction(size, spread) <= limit for sold, size, limit in usages)

    def allowed_brokers(self, partition: PartitionReplicas) -> frozenset[int]:
        """Returns the brokers that may have a replica of the partition, including those that have one."""
        if partition.owner is None:
            return self.brokers_that_accept
        return self.brokers_that_accept & self.placements.get(partition.owner, set())

    def count_racks(self, replicas: Iterable[int]) -> int:
        """Returns the number of racks of these brokers; a broker with unknown rack counts as a rack of its own."""
        return len({self._rack(broker) for broker in replicas})

    def _rack(self, broker: int) -> str:
        capacity = self.fleet.brokers.get(broker)
        return capacity.rack if capacity is not None and capacity.rack else f"\0{broker}"

    def plan(
        self, placement_changes: Mapping[str, PlacementChange], obstacles: Sequence[Obstacle] = ()
    ) -> RebalancePlan:
        moves = [
            Reassignment(
                topic=partition.topic,
                index=partition.index,
                before=partition.replicas,
                target=self.replicas[partition.key],
                size_bytes=partition.size_bytes,
                topic_id=partition.topic_id,
            )
            for partition in sorted(self.fleet.partitions, key=lambda partition: (partition.pinned, partition.key))
            if self.replicas[partition.key] != partition.replicas
        ]
        return RebalancePlan(
            moves=() if obstacles else tuple(moves),
            placement_changes=()
            if obstacles
            else tuple(placement_changes[owner] for owner in sorted(placement_changes)),
            obstacles=tuple(obstacles),
        )


# --- emptying a broker ------------------------------------------------------------------------------------------------


def drain_plan(fleet: Fleet, broker: int) -> RebalancePlan:
    """Returns a plan that moves everything away from `broker`. A pinned partition of it is copied to another broker and
    stays: `release_plan` removes it once the broker has stopped.

    The plan has obstacles instead of moves if something has no possible target.
    """
    state = _PlanState(fleet)
    state.brokers_that_accept -= {broker}
    obstacles: list[Obstacle] = []
    replicas_max: dict[str, int] = defaultdict(lambda: 1)
    for partition in fleet.partitions:
        if partition.owner is not None:
            replicas_max[partition.owner] = max(replicas_max[partition.owner], len(partition.replicas))
    placement_changes = {}
    for owner in sorted(fleet.placements):
        if broker in fleet.placements[owner]:
            placement_changes[owner] = _change_placement(state, owner, broker, replicas_max[owner])
            if not state.placements[owner] & state.brokers_that_accept:
                obstacles.append(Obstacle(owner=owner, topic="", detail="No other broker takes the instance."))
    for partition in sorted(fleet.partitions, key=lambda replicas: (-replicas.size_bytes, replicas.key)):
        if broker in partition.replicas:
            target = _replicas_without(state, partition, broker)
            if target is None:
                count = len(partition.replicas)
                detail = Message(gettext_noop("It has %(n)s replica(s), and too few other brokers take one."), n=count)
                obstacles.append(Obstacle(owner=partition.owner, topic=partition.topic, detail=detail))
            else:
                state.assign(partition.key, target)
    return state.plan(placement_changes, tuple(dict.fromkeys(obstacles)))


def release_plan(fleet: Fleet, broker: int) -> RebalancePlan:
    """Returns a plan that removes a stopped broker from the replicas of its pinned partitions; the copies on other
    brokers, which `drain_plan` made, stay.
    """
    moves = []
    for partition in sorted(fleet.partitions, key=lambda replicas: replicas.key):
        remaining_replicas = tuple(replica for replica in partition.replicas if replica != broker)
        if remaining_replicas and len(remaining_replicas) < len(partition.replicas) and partition.pinned:
            moves.append(
                Reassignment(
                    topic=partition.topic, index=partition.index, before=partition.replicas, target=remaining_replicas
                )
            )
    return RebalancePlan(moves=tuple(moves))


def _change_placement(state: _PlanState, owner: str, broker: int, replicas_max: int) -> PlacementChange:
    """Returns other placements for an instance that leaves `broker`: enough for its topics' replicas, and for the
    cluster's minimum.
    """
    placements = state.placements[owner]
    state.sell(owner, placements, spread=len(placements), sign=-1)
    placements.discard(broker)
    count = max(replicas_max, state.fleet.placements_min)
    candidates = state.brokers_that_accept - placements
    arriving_count = min(len(candidates), max(0, count - len(placements & state.brokers_that_accept)))
    spread = max(1, len(placements) + arriving_count)

    def cost(id: int) -> tuple[bool, int, int, int]:
        rack_count = state.count_racks((*placements, id))
        return not state.has_capacity(owner, id, spread=spread), -rack_count, state.load[id], id

    arriving: list[int] = []
    for _ in range(arriving_count):
        arriving.append(min(candidates.difference(arriving), key=cost))
        placements.add(arriving[-1])
    state.sell(owner, placements, spread=spread)
    return PlacementChange(owner=owner, arriving=tuple(arriving), leaving=(broker,))


def _replicas_without(state: _PlanState, partition: PartitionReplicas, broker: int) -> tuple[int, ...] | None:
    """Returns the replicas without `broker`; None if no other broker may take one.

    A pinned partition that belongs to `broker` keeps its replica there, and gets another one if that is its only one.
    """
    current = state.replicas[partition.key]
    candidates = state.allowed_brokers(partition) - set(current)
    keeps_replica = partition.pinned and current[0] == broker
    if keeps_replica and len(current) > 1:
        return current
    if not candidates:
        return None
    retained = current if keeps_replica else tuple(replica for replica in current if replica != broker)

    def cost(candidate: int) -> tuple[int, int, int]:
        return -state.count_racks((*retained, candidate)), state.load[candidate], candidate

    arriving_broker = min(candidates, key=cost)
    if keeps_replica:
        return (*current, arriving_broker)
    target = tuple(arriving_broker if replica == broker else replica for replica in current)
    if current[0] != broker:
        return target
    # The replica that leads fewest partitions becomes leader, not necessarily the arriving one.
    new_leader = min(target, key=lambda id: (state.leaders[id], id))
    return (new_leader, *(replica for replica in target if replica != new_leader))


# --- balancing --------------------------------------------------------------------------------------------------------


def balance_plan(fleet: Fleet, *, moves_max: int) -> RebalancePlan:
    """Returns a plan that evens loads and leaders over all brokers that accept replicas, with at most `moves_max` moved
    partitions.

    At first, second replicas in a rack move to racks without one. Then whole instances' shares move from the fullest
    broker to one where they have no placement, then single partitions within placements (an instance gets a further
    placement only if brokers stay uneven otherwise), then leadership is transferred, which copies nothing.
    """
    state = _PlanState(fleet)
    moved: set[PartitionKey] = set()
    placement_changes: dict[str, PlacementChange] = {}
    _spread_over_racks(state, moved, placement_changes, moves_max)
    while len(moved) < moves_max and _shift_instance(state, moved, placement_changes, moves_max):
        pass
    _shift_partitions(state, moved, moves_max)
    while len(moved) < moves_max and _extend_instance(state, placement_changes):
        _shift_partitions(state, moved, moves_max)
    _move_leaders(state, moved, moves_max)
    return state.plan(_used_placement_changes(state, placement_changes))


def _spread_over_racks(
    state: _PlanState, moved: set[PartitionKey], placement_changes: dict[str, PlacementChange], moves_max: int
) -> None:
    """Moves replicas that share a rack with another one of their partition to racks without one."""
    for partition in sorted(state.fleet.partitions, key=lambda replicas: replicas.key):
        while not partition.pinned and (partition.key in moved or len(moved) < moves_max):
            target = _replicas_on_more_racks(state, partition, state.allowed_brokers(partition), placement_changes)
            if target is None:
                break
            state.assign(partition.key, target)
            moved.add(partition.key)


def _replicas_on_more_racks(
    state: _PlanState,
    partition: PartitionReplicas,
    allowed_brokers: Collection[int],
    placement_changes: dict[str, PlacementChange],
) -> tuple[int, ...] | None:
    """Returns the replicas with one of them moved to another rack; None if no two share a rack, or no broker in another
    rack is available.

    An instance without a placement there gets one, if a broker can sell its share.
    """
    replicas = state.replicas[partition.key]
    rack_count = state.count_racks(replicas)
    sharing_brokers = [broker for broker in replicas if state.count_racks(set(replicas) - {broker}) == rack_count]
    if not sharing_brokers:
        return None

    def brokers_in_new_racks(brokers: Collection[int]) -> list[int]:
        return [broker for broker in brokers if state.count_racks((*replicas, broker)) > rack_count]

    candidates = brokers_in_new_racks(allowed_brokers)
    owner = partition.owner
    if not candidates and owner is not None:
        spread = _least_spread(state, owner)
        unplaced = brokers_in_new_racks(state.brokers_that_accept)
        candidates = [broker for broker in unplaced if state.has_capacity(owner, broker, spread=spread)]
    if not candidates:
        return None
    arriving_broker = min(candidates, key=lambda broker: (state.load[broker], broker))
    if owner is not None and arriving_broker not in state.placements[owner]:
        _extend_placement(state, owner, arriving_broker, placement_changes)
    # The first replica stays, unless no other shares a rack: clients keep their leader.
    leaving = max(sharing_brokers, key=lambda broker: (broker != replicas[0], state.load[broker], broker))
    return tuple(arriving_broker if broker == leaving else broker for broker in replicas)


def _extend_placement(
    state: _PlanState, owner: str, broker: int, placement_changes: dict[str, PlacementChange]
) -> None:
    """Gives the instance a further placement.

    The shares of its other brokers are not reduced, because the placement may turn out to be unused.
    """
    state.sell(owner, (broker,), spread=_least_spread(state, owner))
    state.placements[owner].add(broker)
    change = placement_changes.get(owner, PlacementChange(owner=owner))
    placement_changes[owner] = PlacementChange(owner=owner, arriving=(*change.arriving, broker), leaving=change.leaving)


def _is_uneven(state: _PlanState, heavy: int, light: int) -> bool:
    loads = [state.load[broker] for broker in state.brokers_that_accept]
    return state.load[heavy] - state.load[light] > max(state.unit, SPREAD_MIN * sum(loads) / len(loads))


def _brokers_by_load(state: _PlanState) -> list[int]:
    """Returns the brokers that accept replicas, the emptiest first."""
    return sorted(state.brokers_that_accept, key=lambda id: (state.load[id], id))


def _lightest_with_capacity(
    state: _PlanState, order: Sequence[int], owners: Collection[str], *, further_placements: int
) -> int:
    """Returns the emptiest broker that can sell a share of at least one of the owners."""
    for light in order[:-1]:
        unplaced = [owner for owner in owners if light not in state.placements[owner]]
        if not unplaced or any(
            state.has_capacity(owner, light, spread=len(state.fleet.placements[owner]) + further_placements)
            for owner in unplaced
        ):
            return light
    return order[0]


def _shift_instance(
    state: _PlanState, moved: set[PartitionKey], placement_changes: dict[str, PlacementChange], moves_max: int
) -> bool:
    """Moves one instance's whole share from the fullest broker to the emptiest without a placement of it; False if none
    makes them more even.
    """
    order = _brokers_by_load(state)
    if len(order) < 2 or not _is_uneven(state, order[-1], order[0]):
        return False
    heavy = order[-1]
    partitions_by_owner: dict[str, list[PartitionReplicas]] = defaultdict(list)
    for partition in state.fleet.partitions:
        if partition.owner is not None and heavy in state.replicas[partition.key]:
            partitions_by_owner[partition.owner].append(partition)
    light = _lightest_with_capacity(state, order, partitions_by_owner, further_placements=0)
    if not _is_uneven(state, heavy, light):
        return False
    gap = state.load[heavy] - state.load[light]
    possible_shifts = []
    for owner, instance_partitions in partitions_by_owner.items():
        weight = sum(state.weight[partition.key] for partition in instance_partitions)
        is_unplaced = light not in state.placements[owner] and owner not in placement_changes
        has_capacity = is_unplaced and state.has_capacity(owner, light, spread=len(state.placements[owner]))
        keys = {partition.key for partition in instance_partitions}
        if has_capacity and weight <= SHIFT_MAX * gap and len(moved | keys) <= moves_max:
            targets = {
                partition.key: _replace_broker(state, partition, heavy, light) for partition in instance_partitions
            }
            if all(targets.values()):
                possible_shifts.append((abs(2 * weight - gap), owner, targets))
    if not possible_shifts:
        return False
    _, owner, targets = min(possible_shifts, key=lambda shift: shift[:2])
    for key, target in targets.items():
        assert target is not None
        state.assign(key, target)
        moved.add(key)
    spread = len(state.placements[owner])
    state.sell(owner, (heavy,), spread=spread, sign=-1)
    state.sell(owner, (light,), spread=spread)
    state.placements[owner].discard(heavy)
    state.placements[owner].add(light)
    placement_changes[owner] = PlacementChange(owner=owner, arriving=(light,), leaving=(heavy,))
    return True


def _extend_instance(state: _PlanState, placement_changes: dict[str, PlacementChange]) -> bool:
    """Gives the heaviest instance on the fullest broker a further placement on the emptiest; False if that does not
    help.
    """
    order = _brokers_by_load(state)
    if len(order) < 2 or not _is_uneven(state, order[-1], order[0]):
        return False
    heavy = order[-1]
    weight_by_owner: dict[str, int] = defaultdict(int)
    shifted = {change.owner for change in placement_changes.values() if change.leaving}
    for partition in state.fleet.partitions:
        owner = partition.owner
        if owner is not None and heavy in state.replicas[partition.key] and owner not in shifted:
            weight_by_owner[owner] += state.weight[partition.key]
    light = _lightest_with_capacity(state, order, weight_by_owner, further_placements=1)
    candidates = [
        (weight, owner)
        for owner, weight in weight_by_owner.items()
        if light not in state.placements[owner] and state.has_capacity(owner, light, spread=_least_spread(state, owner))
    ]
    if not candidates or not _is_uneven(state, heavy, light):
        return False
    _, owner = max(candidates)
    _extend_placement(state, owner, light, placement_changes)
    return True


def _least_spread(state: _PlanState, owner: str) -> int:
    """Returns the number of placements of the instance if only one of the further ones is used."""
    return len(state.fleet.placements[owner]) + 1


def _shift_partitions(state: _PlanState, moved: set[PartitionKey], moves_max: int) -> None:
    """Moves single replicas from fuller to emptier brokers, as long as that makes the two more even."""
    partitions_by_broker: dict[int, list[PartitionReplicas]] = defaultdict(list)
    for partition in state.fleet.partitions:
        for broker in state.replicas[partition.key]:
            if not partition.pinned:
                partitions_by_broker[broker].append(partition)
    while len(moved) < moves_max:
        result = _best_shift(state, partitions_by_broker)
        if result is None:
            return
        partition, heavy, light, target = result
        state.assign(partition.key, target)
        partitions_by_broker[heavy].remove(partition)
        partitions_by_broker[light].append(partition)
        moved.add(partition.key)


def _best_shift(
    state: _PlanState, partitions_by_broker: Mapping[int, Sequence[PartitionReplicas]]
) -> tuple[PartitionReplicas, int, int, tuple[int, ...]] | None:
    order = _brokers_by_load(state)
    for heavy in reversed(order):
        for light in order:
            if not _is_uneven(state, heavy, light):
                break  # the remaining brokers are fuller
            gap = state.load[heavy] - state.load[light]
            candidates = sorted(
                (abs(2 * state.weight[partition.key] - gap), partition.key, partition)
                for partition in partitions_by_broker[heavy]
                if state.weight[partition.key] < gap and light in state.allowed_brokers(partition)
            )
            for _, _, partition in candidates:
                target = _replace_broker(state, partition, heavy, light)
                if target is not None:
                    return partition, heavy, light, target
    return None


def _replace_broker(
    state: _PlanState, partition: PartitionReplicas, old_broker: int, new_broker: int
) -> tuple[int, ...] | None:
    """Returns the replicas with another broker instead of `old_broker`; None if impossible or reduces the racks."""
    replicas = state.replicas[partition.key]
    if partition.pinned or new_broker in replicas or new_broker not in state.brokers_that_accept:
        return None
    target = tuple(new_broker if replica == old_broker else replica for replica in replicas)
    return target if state.count_racks(target) >= state.count_racks(replicas) else None


def _move_leaders(state: _PlanState, moved: set[PartitionKey], moves_max: int) -> None:
    """Reorders replicas if the first one leads at least two partitions more than another of them."""
    is_changed = True
    while is_changed:
        is_changed = False
        for partition in state.fleet.partitions:
            replicas = state.replicas[partition.key]
            candidates = [broker for broker in replicas if broker in state.brokers_that_accept]
            if partition.pinned or not candidates or (partition.key not in moved and len(moved) >= moves_max):
                continue
            new_leader = min(candidates, key=lambda id: (state.leaders[id], id))
            if state.leaders[replicas[0]] - state.leaders[new_leader] >= 2:
                state.assign(partition.key, (new_leader, *(replica for replica in replicas if replica != new_leader)))
                moved.add(partition.key)
                is_changed = True


def _used_placement_changes(
    state: _PlanState, placement_changes: Mapping[str, PlacementChange]
) -> dict[str, PlacementChange]:
    """Returns the changes without further placements that no replica uses; the targets of shifted instances stay."""
    used_brokers: dict[str, set[int]] = defaultdict(set)
    for partition in state.fleet.partitions:
        if partition.owner is not None:
            used_brokers[partition.owner].update(state.replicas[partition.key])
    used_changes = {}
    for owner, change in placement_changes.items():
        arriving = (
            change.arriving if change.leaving else tuple(id for id in change.arriving if id in used_brokers[owner])
        )
        if arriving:
            used_changes[owner] = PlacementChange(owner=owner, arriving=arriving, leaving=change.leaving)
    return used_changes
