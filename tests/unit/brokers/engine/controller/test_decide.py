"""The controller's decisions: the exact instructions for each event, also after earlier events and controllers."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from brokers.contract.documents import PartitionStateDocument
from brokers.engine.cluster.controller_epoch import ControllerEpoch, StateWrite
from brokers.engine.cluster.image import BrokerInfo, ClusterImage, ImageDelta, PartitionImage, TopicImage
from brokers.engine.controller.decide import AUDIT_CONFIG, USAGE_CONFIG, decide
from brokers.engine.controller.election import is_deposed, should_run_for_election
from brokers.engine.controller.events import (
    ControllerState,
    CreateSystemTopic,
    Deposed,
    Elected,
    FinishDeletion,
    GrowSystemTopic,
    ImageChanged,
    Instruction,
    PolicyChanged,
    ReconcileAgain,
    StatesWritten,
    TopicApplied,
    WriteStates,
)
from brokers.engine.controller.policy import UNCLEAN_KEY, Policy

TERM = ControllerEpoch(broker_id=1, epoch=5, guard_version=5)


def broker(id: int, epoch: int = 10) -> BrokerInfo:
    return BrokerInfo(id, "127.0.0.1", 24000 + id, 24050 + id, None, epoch)


def topic(name: str, *partitions: PartitionImage, deleting: bool = False) -> TopicImage:
    topic_id = random.Random(name).randbytes(16)
    return TopicImage(name, name, None, topic_id, partitions, {}, deleting=deleting)


def led(index: int, replicas: tuple[int, ...], leader: int, version: int = 0, **fields: object) -> PartitionImage:
    known = PartitionImage(index, replicas, leader, 0, replicas, 1, version, written_at=100)
    return replace(known, **fields)  # type: ignore[arg-type]


USAGE, AUDIT = (topic(name, led(0, (1,), 1), led(1, (2,), 2), led(2, (3,), 3)) for name in ("__usage", "__audit"))


def cluster_image(*topics: TopicImage, brokers: tuple[int, ...] = (1, 2, 3)) -> ClusterImage:
    everything = {item.name: item for item in (USAGE, AUDIT, *topics)}
    return ClusterImage("cl").with_changes(
        ImageDelta(topics=everything, brokers={id: broker(id) for id in brokers}, controller_id=1, controller_epoch=5)
    )


def elected(image: ClusterImage) -> tuple[ControllerState, list[Instruction]]:
    state, instructions = decide(ControllerState(broker_id=1, image=image), Elected(TERM))
    state.check()
    return state, instructions


def wanted(leader: int, leader_epoch: int, *isr: int, epochs: tuple[int, ...] = ()) -> PartitionStateDocument:
    """Return a partition state document; the incarnations of the ISR default to those that `broker` creates."""
    return PartitionStateDocument(
        leader=leader,
        leader_epoch=leader_epoch,
        controller_epoch=5,
        isr=isr,
        isr_broker_epochs=epochs or (10,) * len(isr),
    )


def test_a_broker_that_is_not_elected_orders_nothing() -> None:
    image = cluster_image(topic("t", PartitionImage(0, (1,))))
    state, instructions = decide(ControllerState(broker_id=1, image=cluster_image()), ImageChanged(image))
    assert instructions == [] and state.image is image


def test_a_complete_cluster_gives_a_fresh_controller_nothing_to_do() -> None:
    """CTL-3."""
    assert elected(cluster_image(topic("t", led(0, (1,), 1))))[1] == []


def test_the_partitions_of_a_topic_that_appears_get_their_first_state_in_one_write() -> None:
    """CTL-15, CTL-17."""
    state, _ = elected(cluster_image())
    appeared = cluster_image(topic("t", PartitionImage(0, (2, 3)), PartitionImage(1, (3, 1))))
    state, instructions = decide(state, ImageChanged(appeared))
    assert instructions == [
        WriteStates(
            (
                StateWrite("t", 0, wanted(2, 0, 2, 3), None, opens_topic=True),
                StateWrite("t", 1, wanted(3, 0, 3, 1), None),
            ),
            "topics changed",
        )
    ]
    state.check()


def test_an_instruction_is_not_repeated_while_the_image_is_late() -> None:
    appeared = cluster_image(topic("t", PartitionImage(0, (2,))))
    state, first = elected(appeared)
    assert len(first) == 1
    late = appeared.with_changes(ImageDelta(topics={"t": topic("t", PartitionImage(0, (2,)))}))
    state, again = decide(state, ImageChanged(late))
    assert again == []
    state, after = decide(state, StatesWritten({("t", 0): 0}))
    assert after == []
    shown = late.with_changes(ImageDelta(topics={"t": topic("t", led(0, (2,), 2))}))
    state, last = decide(state, ImageChanged(shown))
    assert last == [] and state.pending_versions == {}


def test_a_topic_that_was_made_again_under_its_name_waits_for_nothing_that_was_written_about_the_first() -> None:
    """The topic was deleted and created again between two images; versions start again."""
    state, _ = elected(cluster_image(topic("t", led(0, (1, 2), 1, version=7)), brokers=(1, 2, 3)))
    state, ordered = decide(
        state, ImageChanged(cluster_image(topic("t", led(0, (1, 2), 1, version=7)), brokers=(1, 3)))
    )
    assert isinstance(ordered[0], WriteStates)
    state, _ = decide(state, StatesWritten({("t", 0): 8}))

    made_again = replace(topic("t", PartitionImage(0, (1,))), topic_id=b"2" * 16)
    _, instructions = decide(state, ImageChanged(cluster_image(made_again, brokers=(1, 3))))

    write = StateWrite("t", 0, wanted(1, 0, 1), None, opens_topic=True)
    assert instructions == [WriteStates((write,), "topics changed")]


def test_the_clusters_own_topics_do_not_grow_while_they_move() -> None:
    """The growth would be refused and tried again for as long as the move takes."""
    partitions = (led(0, (4, 1), 1, isr=(1,), adding=(4,), removing=(1,)), *USAGE.partitions[1:])
    moving = {own.name: replace(own, partitions=partitions) for own in (USAGE, AUDIT)}
    image = cluster_image(brokers=(1, 2, 3, 5)).with_changes(ImageDelta(topics=moving))

    assert elected(image)[1] == []


def test_a_write_that_lost_a_race_is_looked_at_again() -> None:
    """REP-25."""
    state, _ = elected(cluster_image(topic("t", PartitionImage(0, (2,)))))
    state, instructions = decide(state, StatesWritten({}, (("t", 0),)))
    assert ReconcileAgain(("t",)) in instructions
    assert ("t", 0) not in state.pending_versions or len(instructions) == 2


def test_the_death_of_a_broker_is_one_write_for_all_it_led() -> None:
    """CTL-8, CTL-9, REP-4, REP-30."""
    topics = (
        topic("one", led(0, (3,), 3)),
        topic("two", led(0, (3, 1), 3), led(1, (1, 3), 1), led(2, (1, 2), 1)),
    )
    state, _ = elected(cluster_image(*topics))
    state, instructions = decide(state, ImageChanged(cluster_image(*topics, brokers=(1, 2))))
    assert len(instructions) == 1
    order = instructions[0]
    assert isinstance(order, WriteStates) and order.cause == "brokers gone [3]"
    assert {write.key: write.document for write in order.writes} == {
        ("__usage", 2): wanted(-1, 1, 3, epochs=(-1,)),
        ("__audit", 2): wanted(-1, 1, 3, epochs=(-1,)),
        ("one", 0): wanted(-1, 1, 3, epochs=(-1,)),
        ("two", 0): wanted(1, 1, 1),
        ("two", 1): wanted(1, 1, 1),
    }
    assert {write.version for write in order.writes} == {0}


def test_a_returning_broker_leads_again_under_a_higher_epoch() -> None:
    """CTL-10."""
    waiting = topic("t", led(0, (3,), -1, version=4, leader_epoch=7))
    gone = cluster_image(waiting, brokers=(1, 2))
    state, _ = elected(gone)
    state, instructions = decide(state, ImageChanged(cluster_image(waiting)))
    writes = [write for order in instructions if isinstance(order, WriteStates) for write in order.writes]
    assert [write for write in writes if write.topic == "t"] == [StateWrite("t", 0, wanted(3, 8, 3), 4)]


def test_a_broker_that_was_reborn_unseen_is_elected_anew() -> None:
    """CTL-10: the registration is younger than the state that names it, also for a controller that saw neither."""
    image = cluster_image(topic("t", led(0, (2,), 2)))
    reborn = image.with_changes(ImageDelta(brokers={1: broker(1), 2: broker(2, epoch=101), 3: broker(3)}))
    _, instructions = elected(reborn)
    writes = [write for order in instructions if isinstance(order, WriteStates) for write in order.writes]
    assert StateWrite("t", 0, wanted(2, 1, 2, epochs=(101,)), 0) in writes


def test_unclean_election_happens_only_where_the_topic_allows_it() -> None:
    """REP-28, DEC-1."""
    lagging = led(0, (3, 1), 3, isr=(3,))
    careful, daring = topic("careful", lagging), replace(topic("daring", lagging), config={})
    daring = replace(daring, config={"unclean.leader.election.enable": "true"})
    _, instructions = elected(cluster_image(careful, daring, brokers=(1, 2)))
    order = instructions[0]
    assert isinstance(order, WriteStates)
    documents = {write.key: write.document for write in order.writes}
    assert documents["careful", 0] == wanted(-1, 1, 3, epochs=(-1,))
    assert documents["daring", 0] == wanted(1, 1, 1)


def test_a_partition_waiting_for_its_last_leader_is_led_as_soon_as_operators_allow_it() -> None:
    """REP-28: the cluster default applies to all topics without a setting of their own."""
    waiting = led(0, (3, 1), -1, isr=(3,))
    silent, careful = topic("silent", waiting), replace(topic("careful", waiting), config={UNCLEAN_KEY: "false"})
    state = ControllerState(broker_id=1, image=cluster_image(silent, careful, brokers=(1, 2)), held_epoch=TERM)

    def leaders(policy: Policy) -> dict[str, int]:
        _, instructions = decide(state, PolicyChanged(policy))
        writes = [write for order in instructions if isinstance(order, WriteStates) for write in order.writes]
        return {write.topic: write.document.leader for write in writes if write.document.leader > 0}

    allowed = Policy(unclean_allowed=True)
    assert (leaders(Policy()), leaders(allowed)) == ({}, {"silent": 1})
    idle, nothing = decide(ControllerState(broker_id=1, image=state.image), PolicyChanged(allowed))
    assert (idle.policy, nothing) == (allowed, []), "who holds no office decides nothing"


def test_a_partition_waiting_for_its_last_leader_is_led_as_soon_as_its_topic_allows_it() -> None:
    """REP-28: a change of one topic's setting under a running controller affects no other topic."""
    waiting = led(0, (3, 1), -1, isr=(3,))
    before = cluster_image(topic("daring", waiting), topic("careful", waiting), brokers=(1, 2))
    state = ControllerState(broker_id=1, image=before, held_epoch=TERM)
    daring = replace(before.topics["daring"], config={UNCLEAN_KEY: "true"})

    state, instructions = decide(
        state, ImageChanged(before.with_changes(ImageDelta(topics={**before.topics, "daring": daring})))
    )

    assert instructions == [WriteStates((StateWrite("daring", 0, wanted(1, 1, 1), 0),), "topics changed")]
    withdrawn = before.with_changes(ImageDelta(topics={**before.topics, "daring": topic("daring", waiting)}))
    forgotten = ControllerState(broker_id=1, image=state.image, held_epoch=TERM)
    assert decide(forgotten, ImageChanged(withdrawn))[1] == []


def test_a_marked_topic_is_removed_once_and_gets_no_more_leaders() -> None:
    """CTL-20."""
    marked = topic("t", PartitionImage(0, (2,)), deleting=True)
    state, instructions = elected(cluster_image(marked))
    assert instructions == [FinishDeletion(marked)]
    state, again = decide(state, ImageChanged(cluster_image(marked)))
    assert again == []
    state, after = decide(state, TopicApplied("t", succeeded=False))
    assert after == [ReconcileAgain(("t",))]
    _, retried = decide(state, ImageChanged(cluster_image(replace(marked, version=9))))
    assert retried == [FinishDeletion(replace(marked, version=9))]


def test_usage_and_audit_have_a_partition_led_by_every_live_broker() -> None:
    empty = ClusterImage("cl").with_changes(ImageDelta(brokers={1: broker(1), 3: broker(3)}))
    _, instructions = elected(empty)
    assert instructions == [
        CreateSystemTopic("__usage", {0: (1,), 1: (3,)}, USAGE_CONFIG),
        CreateSystemTopic("__audit", {0: (1,), 1: (3,)}, AUDIT_CONFIG),
    ]
    one_more = cluster_image().with_changes(ImageDelta(brokers={id: broker(id) for id in (1, 2, 3, 4, 7)}))
    state, instructions = elected(one_more)
    assert instructions == [GrowSystemTopic(name, 3, ((4,), (7,))) for name in ("__usage", "__audit")]
    assert state.busy == {"__usage", "__audit"}


def test_a_deposed_controller_forgets_its_orders() -> None:
    """CTL-7."""
    state, _ = elected(cluster_image(topic("t", PartitionImage(0, (2,)))))
    state, instructions = decide(state, Deposed("another one"))
    assert (
        instructions == [] and state.held_epoch is None and state.pending_versions == {} and state.busy == frozenset()
    )
    state.check()
    assert decide(state, StatesWritten({("t", 0): 0}))[1] == []


def test_when_to_stand_and_when_the_term_is_over() -> None:
    """CTL-1, CTL-4."""
    image = cluster_image()
    nobody = image.with_changes(ImageDelta(controller_id=-1))
    assert should_run_for_election(nobody, 1, outcome_unknown=False) and not should_run_for_election(
        image, 2, outcome_unknown=False
    )
    assert not should_run_for_election(nobody, 9, outcome_unknown=False), "an unregistered broker does not stand"
    assert should_run_for_election(image, 1, outcome_unknown=True) and not should_run_for_election(
        image, 1, outcome_unknown=False
    )
    assert not is_deposed(TERM, image)
    assert not is_deposed(TERM, nobody.with_changes(ImageDelta(controller_epoch=4))), "an older picture says nothing"
    assert is_deposed(TERM, nobody)
    assert is_deposed(TERM, image.with_changes(ImageDelta(controller_id=2)))
    assert is_deposed(TERM, image.with_changes(ImageDelta(controller_id=2, controller_epoch=6)))


@st.composite
def states(draw: st.DrawFn) -> PartitionImage:
    """Draw any valid state of a partition on brokers 1 to 3: the leader is in the ISR, the ISR is not empty."""
    replicas = tuple(draw(st.permutations([1, 2, 3])))
    if draw(st.booleans()):
        return PartitionImage(0, replicas)
    isr = tuple(draw(st.sets(st.sampled_from(replicas), min_size=1)))
    leader = draw(st.sampled_from([-1, *isr]))
    return PartitionImage(0, replicas, leader, 3, isr, 1, 2, written_at=100)


@given(
    st.lists(states(), min_size=1, max_size=6),
    st.sets(st.sampled_from([1, 2, 3])),
    st.sets(st.sampled_from([1, 2, 3])),
)
def test_carrying_the_orders_out_leaves_nothing_to_order(
    partitions: list[PartitionImage], live: set[int], reborn: set[int]
) -> None:
    """Decisions are level-triggered: one round makes the image a fixed point, with all leaders alive and in sync."""
    topics = [topic(f"t{number}", partition) for number, partition in enumerate(partitions)]
    brokers = {id: broker(id, epoch=101 if id in reborn else 10) for id in live}
    image = cluster_image(*topics).with_changes(ImageDelta(brokers=brokers))
    _, instructions = elected(image)
    orders = [write for order in instructions if isinstance(order, WriteStates) for write in order.writes]
    changed: dict[str, TopicImage | None] = {}
    for write in orders:
        before = changed.get(write.topic) or image.topics[write.topic]
        parts = list(before.partitions)
        document = write.document
        assert document.leader_epoch == parts[write.index].leader_epoch + 1
        parts[write.index] = replace(
            parts[write.index],
            leader=document.leader,
            leader_epoch=document.leader_epoch,
            isr=document.isr,
            isr_epochs=document.isr_broker_epochs,
            version=0 if write.version is None else write.version + 1,
            written_at=200,
        )
        changed[write.topic] = replace(before, partitions=tuple(parts))
    after = image.with_changes(ImageDelta(topics=changed))
    _, again = elected(after)
    assert [order for order in again if isinstance(order, WriteStates)] == []
    for topic_image in after.topics.values():
        for partition in topic_image.partitions:
            assert partition.leader == -1 or (partition.leader in live and partition.leader in partition.isr)
