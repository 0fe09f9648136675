"""Invariants of a cluster under any history (see `history`)."""

from __future__ import annotations

from brokers.contract.partitions import NO_LEADER
from tests.unit.brokers.engine.controller.history import History


def check(history: History) -> None:
    """Check the invariants that hold after every step."""
    for key, replicas in history.replicas.items():
        partition = history.partition(key)
        if partition.version is None:
            continue
        assert partition.isr, "the last member stays in the ISR"
        assert set(partition.isr) <= set(partition.replicas), "the ISR is of replicas"
        assert len(set(partition.isr)) == len(partition.isr) == len(partition.isr_epochs)
        assert partition.leader == NO_LEADER or partition.leader in partition.isr, "a leader is in sync"
        assert set(partition.target) <= set(partition.replicas) and partition.target
        leader = replicas.leaders.setdefault(partition.leader_epoch, partition.leader)
        assert leader == partition.leader, f"{key}: epoch {partition.leader_epoch} had another leader"
        assert partition.leader_epoch == max(replicas.leaders), "leader epochs never fall"
        if history.leads(key):
            log = replicas.logs.get(partition.leader, [])
            assert log[: len(replicas.committed)] == replicas.committed, f"{key}: committed records are lost"


def check_applied(history: History) -> None:
    """Check an idle cluster: every partition that can have a leader has one, and no dead broker is in an ISR."""
    for key in history.replicas:
        partition = history.partition(key)
        if partition.version is None:
            assert all(id not in history.brokers or history.brokers[id].stopping for id in partition.replicas)
            continue
        in_sync = [id for id in partition.isr if history.is_same_incarnation(key, id)]
        assert history.leads(key) or not in_sync, f"{key}: nobody leads, and {in_sync} are in sync"
        if partition.leader == NO_LEADER:
            assert not any(id in history.brokers for id in partition.isr), f"{key}: a member that was awaited is back"
            continue
        assert history.leads(key)
        staying = [id for id in partition.isr if not history.brokers[id].stopping]
        assert sorted(in_sync) == sorted(partition.isr), f"{key}: an earlier life counts as in sync"
        assert not staying or len(staying) == len(partition.isr), f"{key}: a stopping broker was kept in"
        assert not partition.is_reassigning or not set(partition.target) <= set(partition.isr), f"{key}: has arrived"
