"""Incarnations of the brokers in an ISR (REP-24, CTL-10). Pure.

A broker that died and was started again may have lost records in memory without any other broker noticing. So an ISR
has, beside its members, the broker epochs in which they were in sync. A broker with another epoch is a former member
that must catch up before it counts again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from brokers.engine.cluster.image import BrokerInfo, PartitionImage

UNKNOWN_EPOCH = -1


def is_same_incarnation(partition: PartitionImage, brokers: Mapping[int, BrokerInfo], id: int) -> bool:
    """True if the broker is alive in the incarnation of the partition's state.

    A state without epochs came from a writer that did not support them: then a broker that registered before that write
    is the same. A higher epoch than the known one only means that the local list of brokers is outdated.
    """
    broker = brokers.get(id)
    if broker is None:
        return False
    if partition.isr_epochs and id in partition.isr:
        return broker.epoch <= partition.isr_epochs[partition.isr.index(id)]
    return broker.epoch <= partition.written_at


def isr_epochs(
    isr: Iterable[int],
    partition: PartitionImage,
    brokers: Mapping[int, BrokerInfo],
    joined: Mapping[int, int] | None = None,
) -> tuple[int, ...]:
    """Returns the broker epochs to write together with `isr`, which replaces the partition's current ISR.

    `joined` has the epochs of members that this write adds. Remaining members retain their epoch. If the current state
    has no epochs, a member gets the epoch of its registration, or UNKNOWN_EPOCH if that is another incarnation.
    """
    stored = dict(zip(partition.isr, partition.isr_epochs, strict=True)) if partition.isr_epochs else {}
    epochs: list[int] = []
    for id in isr:
        if joined is not None and id in joined:
            epochs.append(joined[id])
        elif id in stored:
            epochs.append(stored[id])
        else:
            epochs.append(brokers[id].epoch if is_same_incarnation(partition, brokers, id) else UNKNOWN_EPOCH)
    return tuple(epochs)
