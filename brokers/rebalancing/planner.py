"""Plans of replica moves: emptying a broker, and balancing all of them. Pure: the same snapshot gives the same plan.

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


class _Ledger:
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
        self.weight = {item.key: self.unit + item.size_bytes * count for item in fleet.partitions}
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
        before = self.replicas[key]
        self.leaders.subtract(before[:1])
        self.leaders.update(replicas[:1])
        for broker in before:
            self.load[broker] -= self.weight[key]
        for broker in replicas:
            self.load[broker] += self.weight[key]
        self.replicas[key] = replicas

    def sell(self, owner: str, brokers: Iterable[int], *, spread: int, times: int = 1) -> None:
        """Adds the instance's share on these brokers, divided by `spread`; `times` -1 subtracts it."""
        mb_s, gb = self.fleet.sold.get(owner, (0, 0))
        for broker in brokers:
            sold = self.sold[broker]
            self.sold[broker] = sold[0] + times * Fraction(mb_s, spread), sold[1] + times * Fraction(gb, spread)

    def has_room(self, owner: str, broker: int, *, spread: int) -> bool:
        """True if the broker can sell the instance's share when the instance is on `spread` brokers."""
        limits = self.fleet.brokers[broker].can_sell
        sizes = self.fleet.sold.get(owner)
        if limits is None or sizes is None:
            return True
        triples = zip(self.sold[broker], sizes, limits, strict=True)
        return all(sold + Fraction(size, spread) <= limit for sold, size, limit in triples)

    def may_hold(self, partition: PartitionReplicas) -> frozenset[int]:
        """Returns the brokers that may have a replica of the partition; those that have one are not left out."""
        if partition.owner is None:
            return self.brokers_that_accept
        return self.brokers_that_accept & self.placements.get(partition.owner, set())

    def racks(self, replicas: Iterable[int]) -> int:
        """Returns the number of racks of these brokers; a broker with unknown rack counts as a rack of its own."""
        return len({self._rack(broker) for broker in replicas})

    def _rack(self, broker: int) -> str:
        known = self.fleet.brokers.get(broker)
        return known.rack if known is not None and known.rack else f"\0{broker}"

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
            for partition in sorted(self.fleet.partitions, key=lambda item: (item.pinned, item.key))
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
    ledger = _Ledger(fleet)
    ledger.brokers_that_accept -= {broker}
    obstacles: list[Obstacle] = []
    widest: dict[str, int] = defaultdict(lambda: 1)
    for partition in fleet.partitions:
        if partition.owner is not None:
            widest[partition.owner] = max(widest[partition.owner], len(partition.replicas))
    placement_changes = {}
    for owner in sorted(fleet.placements):
        if broker in fleet.placements[owner]:
            placement_changes[owner] = _change_placement(ledger, owner, broker, widest[owner])
            if not ledger.placements[owner] & ledger.brokers_that_accept:
                obstacles.append(Obstacle(owner=owner, topic="", detail="No other broker takes the instance."))
    for partition in sorted(fleet.partitions, key=lambda replicas: (-replicas.size_bytes, replicas.key)):
        if broker in partition.replicas:
            target = _without(ledger, partition, broker)
            if target is None:
                count = len(partition.replicas)
                detail = Message(gettext_noop("It has %(n)s replica(s), and too few other brokers take one."), n=count)
                obstacles.append(Obstacle(owner=partition.owner, topic=partition.topic, detail=detail))
            else:
                ledger.assign(partition.key, target)
    return ledger.plan(placement_changes, tuple(dict.fromkeys(obstacles)))


def release_plan(fleet: Fleet, broker: int) -> RebalancePlan:
    """Returns a plan that removes a stopped broker from the replicas of its pinned partitions; the copies on other
    brokers, which `drain_plan` made, stay.
    """
    moves = []
    for partition in sorted(fleet.partitions, key=lambda replicas: replicas.key):
        rest = tuple(replica for replica in partition.replicas if replica != broker)
        if rest and len(rest) < len(partition.replicas) and partition.pinned:
            moves.append(
                Reassignment(topic=partition.topic, index=partition.index, before=partition.replicas, target=rest)
            )
    return RebalancePlan(moves=tuple(moves))


def _change_placement(ledger: _Ledger, owner: str, broker: int, widest: int) -> PlacementChange:
    """Returns other placements for an instance that leaves `broker`: enough for its topics' replicas, and for the
    cluster's minimum.
    """
    placements = ledger.placements[owner]
    ledger.sell(owner, placements, spread=len(placements), times=-1)
    placements.discard(broker)
    wanted = max(widest, ledger.fleet.placements_min)
    spare = ledger.brokers_that_accept - placements
    lacking = min(len(spare), max(0, wanted - len(placements & ledger.brokers_that_accept)))
    spread = max(1, len(placements) + lacking)

    def cost(id: int) -> tuple[bool, int, int, int]:
        racks = ledger.racks((*placements, id))
        return not ledger.has_room(owner, id, spread=spread), -racks, ledger.load[id], id

    arriving: list[int] = []
    for _ in range(lacking):
        arriving.append(min(spare.difference(arriving), key=cost))
        placements.add(arriving[-1])
    ledger.sell(owner, placements, spread=spread)
    return PlacementChange(owner=owner, arriving=tuple(arriving), leaving=(broker,))


def _without(ledger: _Ledger, partition: PartitionReplicas, broker: int) -> tuple[int, ...] | None:
    present = ledger.replicas[partition.key]
    spare = ledger.may_hold(partition) - set(present)
    is_handed_over = partition.pinned and present[0] == broker
    if is_handed_over and len(present) > 1:
        return present
    if not spare:
        return None
    kept = present if is_handed_over else tuple(replica for replica in present if replica != broker)

    def cost(candidate: int) -> tuple[int, int, int]:
        return -ledger.racks((*kept, candidate)), ledger.load[candidate], candidate

    chosen = min(spare, key=cost)
    if is_handed_over:
        return (*present, chosen)
    target = tuple(chosen if replica == broker else replica for replica in present)
    if present[0] != broker:
        return target
    # The replica that leads fewest partitions becomes leader, not necessarily the arriving one.
    first = min(target, key=lambda id: (ledger.leaders[id], id))
    return (first, *(replica for replica in target if replica != first))


# --- levelling --------------------------------------------------------------------------------------------------------


def balance_plan(fleet: Fleet, *, moves_max: int) -> RebalancePlan:
    """Returns a plan that evens loads and leaders over all brokers that accept replicas, with at most `moves_max` moved
    partitions.

    At first, second replicas in a rack move to racks without one. Then whole instances' shares move from the fullest
    broker to one where they have no placement, then single partitions within placements (an instance gets a further
    placement only if brokers stay uneven otherwise), then leadership is transferred, which copies nothing.
    """
    ledger = _Ledger(fleet)
    moved: set[PartitionKey] = set()
    placement_changes: dict[str, PlacementChange] = {}
    _spread_over_racks(ledger, moved, placement_changes, moves_max)
    while len(moved) < moves_max and _shift_instance(ledger, moved, placement_changes, moves_max):
        pass
    _shift_partitions(ledger, moved, moves_max)
    while len(moved) < moves_max and _extend_instance(ledger, placement_changes):
        _shift_partitions(ledger, moved, moves_max)
    _pass_leaders(ledger, moved, moves_max)
    return ledger.plan(_useful(ledger, placement_changes))


def _spread_over_racks(
    ledger: _Ledger, moved: set[PartitionKey], placement_changes: dict[str, PlacementChange], moves_max: int
) -> None:
    """Moves replicas that share a rack with another one of their partition to racks without one."""
    for partition in sorted(ledger.fleet.partitions, key=lambda replicas: replicas.key):
        while not partition.pinned and (partition.key in moved or len(moved) < moves_max):
            target = _on_more_racks(ledger, partition, ledger.may_hold(partition), placement_changes)
            if target is None:
                break
            ledger.assign(partition.key, target)
            moved.add(partition.key)


def _on_more_racks(
    ledger: _Ledger,
    partition: PartitionReplicas,
    holders: Collection[int],
    placement_changes: dict[str, PlacementChange],
) -> tuple[int, ...] | None:
    """Returns the replicas with one of them in a further rack; None if there is no such rack, or none is shared.

    An instance without a placement there gets one, if a broker can sell its share.
    """
    present = ledger.replicas[partition.key]
    racks = ledger.racks(present)
    shared = [broker for broker in present if ledger.racks(set(present) - {broker}) == racks]
    if not shared:
        return None

    def further(brokers: Collection[int]) -> list[int]:
        return [broker for broker in brokers if ledger.racks((*present, broker)) > racks]

    candidates = further(holders)
    owner = partition.owner
    if not candidates and owner is not None:
        spread = _least_spread(ledger, owner)
        strangers = further(ledger.brokers_that_accept)
        candidates = [broker for broker in strangers if ledger.has_room(owner, broker, spread=spread)]
    if not candidates:
        return None
    chosen = min(candidates, key=lambda broker: (ledger.load[broker], broker))
    if owner is not None and chosen not in ledger.placements[owner]:
        _extend_placement(ledger, owner, chosen, placement_changes)
    # The first replica stays, unless no other shares a rack: clients keep their leader.
    leaving = max(shared, key=lambda broker: (broker != present[0], ledger.load[broker], broker))
    return tuple(chosen if broker == leaving else broker for broker in present)


def _extend_placement(ledger: _Ledger, owner: str, broker: int, placement_changes: dict[str, PlacementChange]) -> None:
    """Gives the instance a further placement.

    The shares of its other brokers are not reduced, because the placement may turn out to be unused.
    """
    ledger.sell(owner, (broker,), spread=_least_spread(ledger, owner))
    ledger.placements[owner].add(broker)
    known = placement_changes.get(owner, PlacementChange(owner=owner))
    placement_changes[owner] = PlacementChange(owner=owner, arriving=(*known.arriving, broker), leaving=known.leaving)


def _is_uneven(ledger: _Ledger, heavy: int, light: int) -> bool:
    loads = [ledger.load[broker] for broker in ledger.brokers_that_accept]
    return ledger.load[heavy] - ledger.load[light] > max(ledger.unit, SPREAD_MIN * sum(loads) / len(loads))


def _by_load(ledger: _Ledger) -> list[int]:
    """Returns the brokers that accept replicas, the emptiest first."""
    return sorted(ledger.brokers_that_accept, key=lambda id: (ledger.load[id], id))


def _light_with_room(ledger: _Ledger, order: Sequence[int], owners: Collection[str], *, further: int) -> int:
    """Returns the emptiest broker that can sell a share of at least one of the owners."""
    for light in order[:-1]:
        strangers = [owner for owner in owners if light not in ledger.placements[owner]]
        if not strangers or any(
            ledger.has_room(owner, light, spread=len(ledger.fleet.placements[owner]) + further) for owner in strangers
        ):
            return light
    return order[0]


def _shift_instance(
    ledger: _Ledger, moved: set[PartitionKey], placement_changes: dict[str, PlacementChange], moves_max: int
) -> bool:
    """Moves one instance's whole share from the fullest broker to the emptiest without a placement of it; False if none
    makes them more even.
    """
    order = _by_load(ledger)
    if len(order) < 2 or not _is_uneven(ledger, order[-1], order[0]):
        return False
    heavy = order[-1]
    parts: dict[str, list[PartitionReplicas]] = defaultdict(list)
    for partition in ledger.fleet.partitions:
        if partition.owner is not None and heavy in ledger.replicas[partition.key]:
            parts[partition.owner].append(partition)
    light = _light_with_room(ledger, order, parts, further=0)
    if not _is_uneven(ledger, heavy, light):
        return False
    gap = ledger.load[heavy] - ledger.load[light]
    fitting = []
    for owner, held in parts.items():
        weight = sum(ledger.weight[partition.key] for partition in held)
        is_stranger = light not in ledger.placements[owner] and owner not in placement_changes
        has_room = is_stranger and ledger.has_room(owner, light, spread=len(ledger.placements[owner]))
        keys = {partition.key for partition in held}
        if has_room and weight <= SHIFT_MAX * gap and len(moved | keys) <= moves_max:
            targets = {partition.key: _swapped(ledger, partition, heavy, light) for partition in held}
            if all(targets.values()):
                fitting.append((abs(2 * weight - gap), owner, targets))
    if not fitting:
        return False
    _, owner, targets = min(fitting, key=lambda shift: shift[:2])
    for key, target in targets.items():
        assert target is not None
        ledger.assign(key, target)
        moved.add(key)
    spread = len(ledger.placements[owner])
    ledger.sell(owner, (heavy,), spread=spread, times=-1)
    ledger.sell(owner, (light,), spread=spread)
    ledger.placements[owner].discard(heavy)
    ledger.placements[owner].add(light)
    placement_changes[owner] = PlacementChange(owner=owner, arriving=(light,), leaving=(heavy,))
    return True


def _extend_instance(ledger: _Ledger, placement_changes: dict[str, PlacementChange]) -> bool:
    """Gives the heaviest instance on the fullest broker a further placement on the emptiest; False if that does not
    help.
    """
    order = _by_load(ledger)
    if len(order) < 2 or not _is_uneven(ledger, order[-1], order[0]):
        return False
    heavy = order[-1]
    weights: dict[str, int] = defaultdict(int)
    shifted = {change.owner for change in placement_changes.values() if change.leaving}
    for partition in ledger.fleet.partitions:
        owner = partition.owner
        if owner is not None and heavy in ledger.replicas[partition.key] and owner not in shifted:
            weights[owner] += ledger.weight[partition.key]
    light = _light_with_room(ledger, order, weights, further=1)
    fitting = [
        (weight, owner)
        for owner, weight in weights.items()
        if light not in ledger.placements[owner] and ledger.has_room(owner, light, spread=_least_spread(ledger, owner))
    ]
    if not fitting or not _is_uneven(ledger, heavy, light):
        return False
    _, owner = max(fitting)
    _extend_placement(ledger, owner, light, placement_changes)
    return True


def _least_spread(ledger: _Ledger, owner: str) -> int:
    """Returns the number of placements of the instance if only one of the further ones is used."""
    return len(ledger.fleet.placements[owner]) + 1


def _shift_partitions(ledger: _Ledger, moved: set[PartitionKey], moves_max: int) -> None:
    """Moves single replicas from fuller to emptier brokers, as long as that makes the two more even."""
    held: dict[int, list[PartitionReplicas]] = defaultdict(list)
    for partition in ledger.fleet.partitions:
        for broker in ledger.replicas[partition.key]:
            if not partition.pinned:
                held[broker].append(partition)
    while len(moved) < moves_max:
        result = _best_shift(ledger, held)
        if result is None:
            return
        partition, heavy, light, target = result
        ledger.assign(partition.key, target)
        held[heavy].remove(partition)
        held[light].append(partition)
        moved.add(partition.key)


def _best_shift(
    ledger: _Ledger, held: Mapping[int, Sequence[PartitionReplicas]]
) -> tuple[PartitionReplicas, int, int, tuple[int, ...]] | None:
    order = _by_load(ledger)
    for heavy in reversed(order):
        for light in order:
            if not _is_uneven(ledger, heavy, light):
                break  # the remaining brokers are fuller
            gap = ledger.load[heavy] - ledger.load[light]
            fitting = sorted(
                (abs(2 * ledger.weight[item.key] - gap), item.key, item)
                for item in held[heavy]
                if ledger.weight[item.key] < gap and light in ledger.may_hold(item)
            )
            for _, _, partition in fitting:
                target = _swapped(ledger, partition, heavy, light)
                if target is not None:
                    return partition, heavy, light, target
    return None


def _swapped(ledger: _Ledger, partition: PartitionReplicas, old: int, new: int) -> tuple[int, ...] | None:
    """Returns the replicas with `old` replaced by `new`; None if that is impossible or reduces the racks."""
    present = ledger.replicas[partition.key]
    if partition.pinned or new in present or new not in ledger.brokers_that_accept:
        return None
    target = tuple(new if replica == old else replica for replica in present)
    return target if ledger.racks(target) >= ledger.racks(present) else None


def _pass_leaders(ledger: _Ledger, moved: set[PartitionKey], moves_max: int) -> None:
    """Reorders replicas if the first one leads at least two partitions more than another of them."""
    is_changed = True
    while is_changed:
        is_changed = False
        for partition in ledger.fleet.partitions:
            present = ledger.replicas[partition.key]
            able = [broker for broker in present if broker in ledger.brokers_that_accept]
            if partition.pinned or not able or (partition.key not in moved and len(moved) >= moves_max):
                continue
            first = min(able, key=lambda id: (ledger.leaders[id], id))
            if ledger.leaders[present[0]] - ledger.leaders[first] >= 2:
                ledger.assign(partition.key, (first, *(replica for replica in present if replica != first)))
                moved.add(partition.key)
                is_changed = True


def _useful(ledger: _Ledger, placement_changes: Mapping[str, PlacementChange]) -> dict[str, PlacementChange]:
    """Returns the changes without further placements that no replica uses; the targets of shifted instances stay."""
    used: dict[str, set[int]] = defaultdict(set)
    for partition in ledger.fleet.partitions:
        if partition.owner is not None:
            used[partition.owner].update(ledger.replicas[partition.key])
    kept = {}
    for owner, change in placement_changes.items():
        arriving = change.arriving if change.leaving else tuple(id for id in change.arriving if id in used[owner])
        if arriving:
            kept[owner] = PlacementChange(owner=owner, arriving=arriving, leaving=change.leaving)
    return kept
