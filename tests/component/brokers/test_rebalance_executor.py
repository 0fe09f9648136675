"""Drain, balance and undo on a cluster in memory, with crashes at any point."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers import selectors, services
from brokers.choices import ReassignmentState, RebalanceState, RebalanceStep, WantedState
from brokers.contract.usage import USAGE_TOPIC
from brokers.models import Broker, Cluster, PortLease, Rebalance
from brokers.monitoring import health
from brokers.operations import job_runner, membership
from brokers.provisioning.steps import document_of
from brokers.rebalancing import executor, snapshot
from brokers.rebalancing import services as rebalancing_services
from instances.models import Instance
from tenants.actors import Actor
from tenants.errors import Conflict
from tests.testkit.fake_cluster import FakeCluster, carry_out, confirm_generations, create_instance_on, four_brokers

pytestmark = pytest.mark.django_db


@pytest.fixture()
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with four_brokers(tmp_path) as result:
        yield result


@pytest.fixture()
def instance(cluster: Cluster) -> Instance:
    """An instance on brokers 1 to 3 of 4."""
    return create_instance_on(cluster, 1, 2, 3)


@pytest.fixture()
def admin_client(cluster: Cluster, instance: Instance, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Thirty partitions of two replicas each, and a usage partition for each broker."""
    result = FakeCluster(brokers={1, 2, 3, 4})
    result.add(f"{instance.pk}.orders", *((1 + i % 3, 1 + (i + 1) % 3) for i in range(30)))
    result.add(USAGE_TOPIC, (1,), (2,), (3,), (4,))
    for module in (executor, rebalancing_services):
        monkeypatch.setattr(module, "ClusterAdminClient", lambda _cluster: result)
    return result


def broker(cluster: Cluster, number: int) -> Broker:
    return Broker.objects.get(cluster=cluster, number=number)


def placements_of(instance: Instance) -> set[int]:
    return set(PortLease.objects.filter(instance=instance).values_list("broker__number", flat=True))


def test_a_plan_changes_nothing_until_it_is_started(cluster: Cluster, admin_client: FakeCluster, acting: Actor) -> None:
    row = rebalancing_services.plan_drain(acting=acting, broker=broker(cluster, 3))
    assert row.state == RebalanceState.PLANNED
    assert row.moves.count() == 21
    assert row.shares["after"]["3"]["replicas"] == 1 and row.shares["before"]["3"]["replicas"] == 21
    assert job_runner.reconcile_once() == 0
    assert not admin_client.requested_moves
    rebalancing_services.discard(acting=acting, rebalance=row)
    with pytest.raises(Conflict, match="discarded"):
        rebalancing_services.start(acting=acting, rebalance=row)


def test_a_drained_broker_holds_nothing_but_its_own_usage(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor
) -> None:
    row = rebalancing_services.plan_drain(acting=acting, broker=broker(cluster, 3), moves_at_once=2)
    rebalancing_services.start(acting=acting, rebalance=row)
    assert carry_out(admin_client, row, moves_max=3).state == RebalanceState.DONE
    assert admin_client.holds(3) == {(USAGE_TOPIC, 2)}
    assert placements_of(instance) == {1, 2, 4}
    instance.refresh_from_db()
    assert sorted(instance.endpoints) == ["1", "2", "4"]
    assert {reassignment.state for reassignment in row.moves.all()} == {ReassignmentState.DONE}
    assert admin_client.most_moving <= 2 * 3  # two for each broker that receives
    assert not broker(cluster, 3).accepts_instances


def test_a_drained_broker_is_removed_with_a_copy_of_its_usage_left_behind(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor
) -> None:
    row = rebalancing_services.plan_drain(acting=acting, broker=broker(cluster, 3), removes=True)
    rebalancing_services.start(acting=acting, rebalance=row)
    carry_out(admin_client, row)
    gone = broker(cluster, 3)
    assert gone.removed_at is not None and gone.wanted == WantedState.STOPPED
    assert not admin_client.holds(3)
    assert len(admin_client.replicas[USAGE_TOPIC, 2]) == 1
    assert 3 not in snapshot.take_snapshot(cluster, admin_client).brokers  # type: ignore[arg-type]
    assert gone not in selectors.brokers()
    with pytest.raises(Conflict):
        rebalancing_services.undo(acting=acting, rebalance=row)


def test_ports_open_before_anything_moves_and_close_when_all_has(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor
) -> None:
    """Clients can reach every replica at every moment (CKA-2)."""
    row = rebalancing_services.plan_drain(acting=acting, broker=broker(cluster, 3))
    rebalancing_services.start(acting=acting, rebalance=row)
    job_runner.reconcile_once()
    job_runner.reconcile_once()
    assert not admin_client.moving, "the brokers have not confirmed the ports yet"
    instance.refresh_from_db()
    document = document_of(instance, list(PortLease.objects.filter(instance=instance)))
    assert sorted(document.ports) == [1, 2, 3, 4] and document.leaving == (3,)
    assert "3" not in instance.endpoints
    confirm_generations()
    job_runner.reconcile_once()
    assert admin_client.moving
    assert placements_of(instance) == {1, 2, 3, 4}


def test_a_reassignment_begun_and_not_noted_is_found_again(
    cluster: Cluster, admin_client: FakeCluster, acting: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the request to the brokers and its note, in every round."""
    row = rebalancing_services.plan_drain(acting=acting, broker=broker(cluster, 3), moves_at_once=2)
    rebalancing_services.start(acting=acting, rebalance=row)
    whole = executor.PartitionReassignment.objects.bulk_update
    times = {"left": 4}

    def dies(objects: object, fields: object) -> object:
        if times["left"] and admin_client.moving:
            times["left"] -= 1
            raise Conflict("killed here")
        return whole(objects, fields)  # type: ignore[arg-type]

    monkeypatch.setattr(executor.PartitionReassignment.objects, "bulk_update", dies)
    assert carry_out(admin_client, row).state == RebalanceState.DONE
    assert times["left"] == 0
    assert admin_client.holds(3) == {(USAGE_TOPIC, 2)}


def test_replicas_created_on_the_broker_meanwhile_move_as_well(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor
) -> None:
    row = rebalancing_services.plan_drain(acting=acting, broker=broker(cluster, 3))
    rebalancing_services.start(acting=acting, rebalance=row)
    job_runner.reconcile_once()
    admin_client.add(f"{instance.pk}.late", (3,), (2, 3))
    late = create_instance_on(cluster, 2, 3, 4)
    carry_out(admin_client, row)
    assert admin_client.holds(3) == {(USAGE_TOPIC, 2)}
    assert placements_of(late) == {1, 2, 4}


def test_a_topic_that_is_deleted_meanwhile_is_skipped(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor
) -> None:
    row = rebalancing_services.plan_drain(acting=acting, broker=broker(cluster, 3))
    rebalancing_services.start(acting=acting, rebalance=row)
    job_runner.reconcile_once()
    confirm_generations()
    job_runner.reconcile_once()
    assert row.moves.filter(state=ReassignmentState.RUNNING).exists()
    for key in [key for key in admin_client.replicas if key[0] != USAGE_TOPIC]:
        del admin_client.replicas[key], admin_client.leaders[key]
        admin_client.moving.pop(key, None)
    carry_out(admin_client, row)
    states = list(row.moves.exclude(topic=USAGE_TOPIC).values_list("state", flat=True))
    assert states.count(ReassignmentState.SKIPPED) == 20


def test_progress_is_what_the_receiving_brokers_say(cluster: Cluster, admin_client: FakeCluster, acting: Actor) -> None:
    row = rebalancing_services.plan_drain(acting=acting, broker=broker(cluster, 3), moves_at_once=1)
    rebalancing_services.start(acting=acting, rebalance=row)
    for _ in range(3):
        job_runner.reconcile_once()
        confirm_generations()
    message = selectors.progress_of(row)
    assert message.running and message.done == 0 and message.total == 21
    assert message.copied_bytes == 400 * message.running
    reassignment = row.moves.filter(state=ReassignmentState.RUNNING).first()
    assert reassignment is not None
    assert "7 messages behind" in reassignment.note
    carry_out(admin_client, row)
    message = selectors.progress_of(row)
    assert (message.done, message.running, message.waiting) == (21, 0, 0)
    assert message.copied_bytes == message.size_bytes == 21_000


def test_undo_calls_off_what_runs_and_moves_back_what_was_moved(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor
) -> None:
    before = dict(admin_client.replicas)
    row = rebalancing_services.plan_drain(acting=acting, broker=broker(cluster, 3), moves_at_once=2)
    rebalancing_services.start(acting=acting, rebalance=row)
    for _ in range(4):
        job_runner.reconcile_once()
        confirm_generations()
        admin_client.catch_up(1)
    assert admin_client.replicas != before and admin_client.moving
    rebalancing_services.undo(acting=acting, rebalance=row)
    assert carry_out(admin_client, row).state == RebalanceState.UNDONE
    assert admin_client.replicas == before and not admin_client.moving
    assert placements_of(instance) == {1, 2, 3}
    assert broker(cluster, 3).accepts_instances
    assert {reassignment.state for reassignment in row.moves.all()} == {ReassignmentState.UNDONE}


def test_a_rebalance_that_is_done_can_be_undone_until_another_one_began(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor
) -> None:
    before = dict(admin_client.replicas)
    row = rebalancing_services.plan_drain(acting=acting, broker=broker(cluster, 3))
    rebalancing_services.start(acting=acting, rebalance=row)
    carry_out(admin_client, row)
    rebalancing_services.undo(acting=acting, rebalance=row)
    assert carry_out(admin_client, row).state == RebalanceState.UNDONE
    assert admin_client.replicas == before
    assert placements_of(instance) == {1, 2, 3}
    first = carry_out(admin_client, rebalancing_services.start(acting=acting, rebalance=_drain(acting, cluster, 3)))
    carry_out(admin_client, rebalancing_services.start(acting=acting, rebalance=_drain(acting, cluster, 2)))
    with pytest.raises(Conflict, match="later"):
        rebalancing_services.undo(acting=acting, rebalance=first)


def _drain(acting: Actor, cluster: Cluster, number: int) -> Rebalance:
    return rebalancing_services.plan_drain(acting=acting, broker=broker(cluster, number))


def test_a_pause_begins_nothing_and_lets_end_what_runs(
    cluster: Cluster, admin_client: FakeCluster, acting: Actor
) -> None:
    row = rebalancing_services.plan_drain(acting=acting, broker=broker(cluster, 3), moves_at_once=1)
    rebalancing_services.start(acting=acting, rebalance=row)
    for _ in range(3):
        job_runner.reconcile_once()
        confirm_generations()
    rebalancing_services.pause(acting=acting, rebalance=row)
    for _ in range(5):
        admin_client.catch_up()
        job_runner.reconcile_once()
    assert not admin_client.moving
    assert row.moves.filter(state=ReassignmentState.WAITING).exists()
    rebalancing_services.resume(acting=acting, rebalance=row)
    assert carry_out(admin_client, row).state == RebalanceState.DONE


def test_an_added_broker_is_given_its_share(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor
) -> None:
    row = rebalancing_services.plan_balance(acting=acting, cluster=cluster)
    rebalancing_services.start(acting=acting, rebalance=row)
    assert carry_out(admin_client, row).state == RebalanceState.DONE
    assert placements_of(instance) == {1, 2, 3, 4}
    held = [len(admin_client.holds(number)) for number in (1, 2, 3, 4)]
    assert max(held) - min(held) <= 2
    led = [sum(leader == number for leader in admin_client.leaders.values()) for number in (1, 2, 3, 4)]
    assert max(led) - min(led) <= 1
    with pytest.raises(Conflict, match="even"):
        rebalancing_services.plan_balance(acting=acting, cluster=cluster)


def test_a_plan_the_world_has_left_behind_is_not_started(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor
) -> None:
    row = rebalancing_services.plan_drain(acting=acting, broker=broker(cluster, 3))
    admin_client.replicas[f"{instance.pk}.orders", 2] = (4, 1)
    with pytest.raises(Conflict, match="Plan again"):
        rebalancing_services.start(acting=acting, rebalance=row)


def test_one_rebalance_of_a_cluster_at_a_time(cluster: Cluster, admin_client: FakeCluster, acting: Actor) -> None:
    first, second = (
        rebalancing_services.plan_drain(acting=acting, broker=broker(cluster, number)) for number in (3, 2)
    )
    rebalancing_services.start(acting=acting, rebalance=first)
    with pytest.raises(Conflict, match="Another rebalance"):
        rebalancing_services.start(acting=acting, rebalance=second)


def test_topics_without_a_place_are_named(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor
) -> None:
    Broker.objects.filter(cluster=cluster, number=4).update(accepts_instances=False)
    admin_client.add(f"{instance.pk}.wide", (1, 2, 3))
    with pytest.raises(Conflict) as refused:
        rebalancing_services.plan_drain(acting=acting, broker=broker(cluster, 3))
    assert refused.value.code == "no_place"
    assert f"{instance.pk}.wide" in refused.value.errors[0].detail
    assert not Rebalance.objects.exists()


def test_without_an_answer_it_says_so_and_goes_on_afterwards(
    cluster: Cluster, admin_client: FakeCluster, acting: Actor
) -> None:
    row = rebalancing_services.plan_drain(acting=acting, broker=broker(cluster, 3))
    rebalancing_services.start(acting=acting, rebalance=row)
    job_runner.reconcile_once()
    confirm_generations()
    admin_client.is_down = True
    job_runner.reconcile_once()
    row.refresh_from_db()
    assert row.trouble == "No broker answers."
    assert row.step == RebalanceStep.MOVES
    admin_client.is_down = False
    assert carry_out(admin_client, row).trouble == ""


def test_a_broker_is_added_with_a_number_and_ports_of_its_own(cluster: Cluster, acting: Actor) -> None:
    host = broker(cluster, 1).host
    cluster.brokers.update(rack="a")  # a cluster has racks for all brokers or for none
    made = membership.add_broker(acting=acting, cluster=cluster, host=host, rack="b")
    assert made.number == 5
    ports_taken = set(cluster.brokers.exclude(pk=made.pk).values_list("internal_port", "admin_port"))
    assert (made.internal_port, made.admin_port) not in ports_taken
    assert made.internal_port == max(pair[0] for pair in ports_taken) + 1
    assert not host.port_first <= made.internal_port <= host.port_last
    assert made.data_dirs[0].endswith("/5/data")
    assert health.health(made, made.created_at).value == "down"
    services.set_wanted(acting=acting, broker=made, wanted=WantedState.STOPPED)
    membership.remove_broker(acting=acting, broker=made)
    assert membership.add_broker(acting=acting, cluster=cluster, host=host, rack="b").number == 6


def removed_until_it_stops(cluster: Cluster, admin_client: FakeCluster, acting: Actor) -> Rebalance:
    """Runs the removal of broker 3 until after its last check of the broker's partitions."""
    row = rebalancing_services.plan_drain(acting=acting, broker=broker(cluster, 3), removes=True)
    rebalancing_services.start(acting=acting, rebalance=row)
    while Rebalance.objects.get(pk=row.pk).step not in (RebalanceStep.STOPPING, RebalanceStep.RELEASING):
        job_runner.reconcile_once()
        confirm_generations()
        admin_client.catch_up()
    return row


def test_replicas_created_before_the_registration_ended_are_moved_as_well(
    cluster: Cluster, admin_client: FakeCluster, acting: Actor
) -> None:
    """After the last check, an internal topic got replicas on the killed broker."""
    row = removed_until_it_stops(cluster, admin_client, acting)
    admin_client.add("__consumer_offsets", (3, 1), (1, 2), (2, 3), (1, 3))

    carry_out(admin_client, row)

    row.refresh_from_db()
    assert row.state == RebalanceState.DONE
    assert not admin_client.holds(3)
    assert all(len(admin_client.replicas["__consumer_offsets", index]) == 2 for index in range(4))


def test_a_waiting_removal_names_the_topic_without_another_place(
    cluster: Cluster, admin_client: FakeCluster, acting: Actor
) -> None:
    row = removed_until_it_stops(cluster, admin_client, acting)
    admin_client.add("__consumer_offsets", (3, 1, 2, 4))

    with pytest.raises(AssertionError, match="not done: running releasing"):
        carry_out(admin_client, row)

    row.refresh_from_db()
    assert (row.state, row.step) == (RebalanceState.RUNNING, RebalanceStep.RELEASING)
    assert row.trouble.startswith("__consumer_offsets: ")


def test_a_broker_with_tenants_ports_is_not_removed(cluster: Cluster, instance: Instance, acting: Actor) -> None:
    result = broker(cluster, 1)
    with pytest.raises(Conflict, match="not stopped"):
        membership.remove_broker(acting=acting, broker=result)
    services.set_wanted(acting=acting, broker=result, wanted=WantedState.STOPPED)
    with pytest.raises(Conflict, match="Drain it first"):
        membership.remove_broker(acting=acting, broker=result)


def test_a_drain_the_others_have_not_enough_to_sell_for_is_neither_planned_nor_started(
    cluster: Cluster, admin_client: FakeCluster, acting: Actor
) -> None:
    others = Broker.objects.filter(cluster=cluster)
    row = _drain(acting, cluster, 3)
    others.update(bandwidth_mb_s=1)
    for act in (lambda: _drain(acting, cluster, 3), lambda: rebalancing_services.start(acting=acting, rebalance=row)):
        with pytest.raises(Conflict) as refused:
            act()
        assert refused.value.code == "no_room"
        assert "Broker 4 would have sold 2 of 1 MB/s." in [error.detail for error in refused.value.errors]
    others.update(bandwidth_mb_s=100)
    assert rebalancing_services.start(acting=acting, rebalance=row).state == RebalanceState.RUNNING


def test_a_balance_that_would_sell_a_broker_more_than_it_has_by_now_is_planned_again(
    cluster: Cluster, admin_client: FakeCluster, acting: Actor
) -> None:
    plan = rebalancing_services.plan_balance(acting=acting, cluster=cluster)
    assert [list(placement["arriving"]) for placement in plan.placements] == [[4]]
    Broker.objects.filter(cluster=cluster, number=4).update(bandwidth_mb_s=1)
    with pytest.raises(Conflict) as refused:
        rebalancing_services.start(acting=acting, rebalance=plan)
    assert refused.value.code == "stale_plan"
    assert "Broker 4 would have sold" in refused.value.errors[0].detail
    with pytest.raises(Conflict, match="no room") as refused:
        rebalancing_services.plan_balance(acting=acting, cluster=cluster)
    assert refused.value.code == "no_room"


@pytest.mark.parametrize("plan", ["drain", "balance"])
def test_a_rebalance_whose_former_room_is_sold_is_not_undone(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor, plan: str
) -> None:
    if plan == "drain":
        row = _drain(acting, cluster, 3)
    else:
        row = rebalancing_services.plan_balance(acting=acting, cluster=cluster)
        row.placements = [{"owner": instance.pk, "arriving": [4], "leaving": [3]}]
        row.save(update_fields=["placements"])
    rebalancing_services.start(acting=acting, rebalance=row)
    assert carry_out(admin_client, row).state == RebalanceState.DONE
    assert not PortLease.objects.filter(instance=instance, broker__number=3).exists()
    third = Broker.objects.filter(cluster=cluster, number=3)
    third.update(accepts_instances=True)
    other = create_instance_on(cluster, 3)
    third.update(bandwidth_mb_s=other.bandwidth_mb_s)

    with pytest.raises(Conflict) as refused:
        rebalancing_services.undo(acting=acting, rebalance=row)
    assert refused.value.code == "no_room"
    assert [error.detail for error in refused.value.errors] == ["Broker 3 would have sold 7 of 5 MB/s."]
    row.refresh_from_db()
    assert row.state == RebalanceState.DONE

    third.update(bandwidth_mb_s=100)
    assert rebalancing_services.undo(acting=acting, rebalance=row).state == RebalanceState.UNDOING
