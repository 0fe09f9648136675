"""Removal of a lost broker: partitions with other replicas are copied, the others are named and given up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from brokers import services
from brokers.choices import DataLoss, ProcessState, ReassignmentState, RebalanceState, WantedState
from brokers.contract.usage import USAGE_TOPIC
from brokers.limits import BROKER_LOST_AFTER_S
from brokers.models import Broker, Cluster, Host, PortLease, Rebalance
from brokers.operations import job_runner
from brokers.rebalancing import executor, interfaces, lost_broker
from brokers.rebalancing import services as rebalancing_services
from instances.models import Instance
from tenants.actors import Actor
from tenants.errors import Conflict
from tenants.models import AuditEntry
from tests.testkit.fake_cluster import (
    FakeCluster,
    carry_out,
    confirm_generations,
    create_instance_on,
    four_brokers,
    mark_lost,
)
from tests.testkit.fleet import plugged

pytestmark = pytest.mark.django_db


@pytest.fixture()
def read_anew() -> Iterator[list[tuple[str, int]]]:
    """Returns the usage partitions that billing was asked to read from their beginning."""
    noted: list[tuple[str, int]] = []
    with plugged(interfaces.usage_begins_anew, lambda cluster_id, index: noted.append((cluster_id, index))):
        yield noted


@pytest.fixture()
def cluster(tmp_path: Path, read_anew: list[tuple[str, int]]) -> Iterator[Cluster]:
    with four_brokers(tmp_path) as result:
        yield result


@pytest.fixture()
def instance(cluster: Cluster) -> Instance:
    """An instance on brokers 1 to 3 of 4."""
    return create_instance_on(cluster, 1, 2, 3)


@pytest.fixture()
def admin_client(cluster: Cluster, instance: Instance, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Four partitions: two with other complete replicas, one only on broker 3, one complete only there."""
    result = FakeCluster(brokers={1, 2, 3, 4})
    result.add(f"{instance.pk}.orders", (3, 1), (2, 3))
    result.add(f"{instance.pk}.solo", (3,), (1,))
    result.add(f"{instance.pk}.behind", (3, 1))
    result.isr[f"{instance.pk}.behind", 0] = (3,)
    result.add(USAGE_TOPIC, (1,), (2,), (3,), (4,))
    for module in (executor, rebalancing_services):
        monkeypatch.setattr(module, "ClusterAdminClient", lambda _cluster: result)
    return result


def third(cluster: Cluster) -> Broker:
    return numbered(cluster, 3)


def numbered(cluster: Cluster, number: int) -> Broker:
    return Broker.objects.select_related("host").get(cluster=cluster, number=number)


def carried_out(admin_client: FakeCluster, row: Rebalance, acting: Actor) -> Rebalance:
    assert row.broker is not None
    rebalancing_services.start(acting=acting, rebalance=row, confirmed=row.broker.number)
    return carry_out(admin_client, row)


def lost(row: Rebalance) -> dict[str, str]:
    return {
        str(reassignment).partition(".")[2] or str(reassignment): reassignment.loses
        for reassignment in row.moves.exclude(loses="")
    }


# --- who is lost ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen_s", "answered_s", "state", "wanted", "is_lost"),
    [
        (0, 0, ProcessState.RUNNING, WantedState.RUNNING, False),
        (BROKER_LOST_AFTER_S - 10, 0, ProcessState.RUNNING, WantedState.RUNNING, False),
        (BROKER_LOST_AFTER_S + 10, 0, ProcessState.RUNNING, WantedState.RUNNING, True),
        (None, None, ProcessState.UNKNOWN, WantedState.RUNNING, True),
        (0, 10, ProcessState.BACKING_OFF, WantedState.RUNNING, False),
        (0, BROKER_LOST_AFTER_S + 10, ProcessState.BACKING_OFF, WantedState.RUNNING, True),
        (0, 10, ProcessState.STOPPED, WantedState.RUNNING, False),
        (0, 10, ProcessState.STOPPED, WantedState.STOPPED, True),
        (0, BROKER_LOST_AFTER_S + 10, ProcessState.STARTING, WantedState.RUNNING, False),
    ],
)
def test_a_broker_is_lost_when_nobody_has_heard_of_it_for_long_or_its_process_is_known_to_have_ended(
    seen_s: int | None, answered_s: int | None, state: str, wanted: str, is_lost: bool
) -> None:
    now = timezone.now()

    def ago(seconds: int | None) -> object:
        return None if seconds is None else now - timedelta(seconds=seconds)

    broker = Broker(
        host=Host(agent_seen_at=ago(seen_s)), observed_at=ago(answered_s), process_state=state, wanted=wanted
    )
    assert (lost_broker.reason_not_lost(broker, now) == "") == is_lost


def test_a_broker_that_serves_is_not_removed_as_lost(
    cluster: Cluster, admin_client: FakeCluster, acting: Actor
) -> None:
    with pytest.raises(Conflict) as refused:
        rebalancing_services.plan_loss(acting=acting, broker=third(cluster))
    assert refused.value.code == "broker_serves"
    broker = mark_lost(admin_client, cluster)
    admin_client.revive(3)
    with pytest.raises(Conflict, match="The other brokers see it"):
        rebalancing_services.plan_loss(acting=acting, broker=broker)
    assert not Rebalance.objects.exists()


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_the_plan_names_what_is_lost_and_moves_nothing_before_it_is_confirmed(
    cluster: Cluster, admin_client: FakeCluster, acting: Actor
) -> None:
    row = rebalancing_services.plan_loss(acting=acting, broker=mark_lost(admin_client, cluster))
    assert lost(row) == {"solo/0": DataLoss.ALL, "behind/0": DataLoss.SOME, f"{USAGE_TOPIC}/2": DataLoss.ALL}
    assert row.moves.count() == 5
    for number in (None, 4):
        with pytest.raises(Conflict) as refused:
            rebalancing_services.start(acting=acting, rebalance=row, confirmed=number)
        assert refused.value.code == "not_confirmed"
    row.refresh_from_db()
    assert row.state == RebalanceState.PLANNED and third(cluster).wanted == WantedState.RUNNING
    assert not admin_client.requested_moves and not admin_client.elected


def test_a_plan_is_made_again_when_more_is_lost_by_then(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor
) -> None:
    broker = mark_lost(admin_client, cluster)
    admin_client.leaders[f"{instance.pk}.solo", 0] = 1  # as if a broker led it
    row = rebalancing_services.plan_loss(acting=acting, broker=broker)
    admin_client.leaders[f"{instance.pk}.solo", 0] = -1
    with pytest.raises(Conflict) as refused:
        rebalancing_services.start(acting=acting, rebalance=row, confirmed=3)
    assert refused.value.code == "stale_plan"


def test_a_broker_that_came_back_since_the_plan_is_not_given_up(
    cluster: Cluster, admin_client: FakeCluster, acting: Actor
) -> None:
    row = rebalancing_services.plan_loss(acting=acting, broker=mark_lost(admin_client, cluster))
    admin_client.revive(3)
    with pytest.raises(Conflict) as refused:
        rebalancing_services.start(acting=acting, rebalance=row, confirmed=3)
    assert refused.value.code == "broker_serves"


# --- carrying it out --------------------------------------------------------------------------------------------------


def test_a_lost_broker_is_removed_and_what_only_it_had_is_made_anew(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor, read_anew: list[tuple[str, int]]
) -> None:
    row = carried_out(
        admin_client, rebalancing_services.plan_loss(acting=acting, broker=mark_lost(admin_client, cluster)), acting
    )
    assert row.state == RebalanceState.DONE
    assert not admin_client.holds(3) and -1 not in admin_client.leaders.values()
    assert {reassignment.state for reassignment in row.moves.all()} == {ReassignmentState.DONE}
    behind = f"{instance.pk}.behind", 0
    assert admin_client.elected[behind] == 1, "who has something of it, not who is given a copy"
    assert set(admin_client.elected) == {behind, (f"{instance.pk}.solo", 0), (USAGE_TOPIC, 2)}
    assert read_anew and set(read_anew) == {(cluster.pk, 2)}
    gone = third(cluster)
    assert gone.removed_at is not None and gone.wanted == WantedState.STOPPED and gone.given_up_at is not None
    placements = PortLease.objects.filter(instance=instance).values_list("broker__number", flat=True)
    assert set(placements) == {1, 2, 4}
    noted = AuditEntry.objects.get(action="broker.given_up")
    assert noted.after["lost"]["all"] == [f"{USAGE_TOPIC}/2", f"{instance.pk}.solo/0"]
    assert noted.after["lost"]["some"] == [f"{instance.pk}.behind/0"]
    assert AuditEntry.objects.filter(action="broker.removed").count() == 1


def test_owners_read_in_their_ledger_what_was_given_up_once_however_often_it_is_looked_at(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit row is written before the brokers are asked: a repetition after a crash writes no second one."""
    elect, noted = admin_client.elect_unclean, []

    def dies_once(_self: FakeCluster, keys: object) -> dict[tuple[str, int], str]:
        wanted = list(keys)  # type: ignore[call-overload]
        noted.append(AuditEntry.objects.filter(action="partitions.given_up").count())
        if wanted and len(noted) == 1:
            raise Conflict("killed here")
        return elect(wanted)

    monkeypatch.setattr(FakeCluster, "elect_unclean", dies_once)
    row = rebalancing_services.plan_loss(acting=acting, broker=mark_lost(admin_client, cluster), moves_at_once=1)
    rebalancing_services.start(acting=acting, rebalance=row, confirmed=3)
    assert not AuditEntry.objects.filter(action="partitions.given_up").exists(), "nothing is lost yet"
    assert carry_out(admin_client, row).state == RebalanceState.DONE
    entry = AuditEntry.objects.get(action="partitions.given_up")
    assert (entry.tenant, entry.target_type, entry.target_id) == (instance.tenant, "instance", instance.pk)
    assert entry.after == {"broker": 3, "rebalance": row.pk, "all": {"solo": [0]}, "some": {"behind": [0]}}
    assert noted[0] == 1


def test_there_is_no_way_back_from_a_lost_broker(cluster: Cluster, admin_client: FakeCluster, acting: Actor) -> None:
    row = rebalancing_services.plan_loss(acting=acting, broker=mark_lost(admin_client, cluster))
    rebalancing_services.start(acting=acting, rebalance=row, confirmed=3)
    with pytest.raises(Conflict) as refused:
        rebalancing_services.undo(acting=acting, rebalance=row)
    assert refused.value.code == "too_late"


def test_a_crash_in_the_middle_of_a_data_loss_does_no_harm(
    cluster: Cluster, admin_client: FakeCluster, acting: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after every election, before anything is stored."""
    row = rebalancing_services.plan_loss(acting=acting, broker=mark_lost(admin_client, cluster), moves_at_once=1)
    rebalancing_services.start(acting=acting, rebalance=row, confirmed=3)
    elect, deaths = admin_client.elect_unclean, []

    def dies(keys: object) -> dict[tuple[str, int], str]:
        wanted = list(keys)  # type: ignore[call-overload]
        answer = elect(wanted)
        if wanted:
            deaths.append(wanted)
            raise Conflict("killed here")
        return answer

    monkeypatch.setattr(FakeCluster, "elect_unclean", lambda _self, keys: dies(keys))
    assert carry_out(admin_client, row).state == RebalanceState.DONE
    assert len(deaths) >= 2 and not admin_client.holds(3)


def test_a_broker_that_comes_back_in_the_middle_is_copied_from(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its agent stops it; records that it serves until then are kept."""
    row = rebalancing_services.plan_loss(acting=acting, broker=mark_lost(admin_client, cluster))
    rebalancing_services.start(acting=acting, rebalance=row, confirmed=3)
    admin_client.revive(3)
    for _ in range(6):
        job_runner.reconcile_once()
        confirm_generations()
        admin_client.catch_up()
    assert not admin_client.elected
    assert not AuditEntry.objects.filter(action="partitions.given_up").exists()
    row.refresh_from_db()
    assert row.trouble == "Broker 3 is stopping."
    admin_client.kill(3)
    assert carry_out(admin_client, row).state == RebalanceState.DONE


def test_partitions_held_by_a_broker_that_will_return_are_waited_for(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor
) -> None:
    """Brokers 2 and 3 failed together, and 2 will return."""
    both = f"{instance.pk}.both", 0
    admin_client.add(both[0], (3, 2))
    broker = mark_lost(admin_client, cluster)
    admin_client.kill(2)
    admin_client.isr[both] = (3, 2)
    row = rebalancing_services.plan_loss(acting=acting, broker=broker)
    assert "both/0" not in lost(row)
    rebalancing_services.start(acting=acting, rebalance=row, confirmed=3)
    with pytest.raises(AssertionError, match="not done"):
        carry_out(admin_client, row)
    row.refresh_from_db()
    assert row.trouble == f"{instance.pk}.both/0: Broker 2 had all of it and does not answer."
    assert both not in admin_client.elected
    admin_client.revive(2)
    assert carry_out(admin_client, row).state == RebalanceState.DONE
    assert 3 not in admin_client.replicas[both]


def test_unconfirmed_partitions_are_not_given_up(
    cluster: Cluster, instance: Instance, admin_client: FakeCluster, acting: Actor
) -> None:
    row = rebalancing_services.plan_loss(acting=acting, broker=mark_lost(admin_client, cluster))
    rebalancing_services.start(acting=acting, rebalance=row, confirmed=3)
    unseen = f"{instance.pk}.unseen", 0
    admin_client.add(unseen[0], (3,))
    admin_client.leaders[unseen] = -1
    with pytest.raises(AssertionError, match="not done"):
        carry_out(admin_client, row)
    row.refresh_from_db()
    assert row.trouble == f"{instance.pk}.unseen/0: {lost_broker.LOSS_NOT_CONFIRMED}"
    assert unseen not in admin_client.elected


def test_its_number_is_never_used_again_and_its_agent_keeps_it_stopped(
    cluster: Cluster, admin_client: FakeCluster, acting: Actor
) -> None:
    from brokers.operations import membership

    carried_out(
        admin_client, rebalancing_services.plan_loss(acting=acting, broker=mark_lost(admin_client, cluster)), acting
    )
    assert membership.add_broker(acting=acting, cluster=cluster, host=numbered(cluster, 1).host).number == 5
    with pytest.raises(Conflict):
        services.restart_broker(acting=acting, broker=third(cluster))
