"""Which incarnation of a broker an ISR speaks of (REP-24, CTL-10). Pure.

A broker that died and came back may have lost what it held in memory, and nobody need have noticed that it was away.
So an ISR names, beside its members, the broker epochs in which they were in sync; who lives under another epoch is a
former member that must catch up before it counts again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from brokers.engine.cluster.image import BrokerInfo, PartitionImage

UNKNOWN_EPOCH = -1


def is_same_incarnation(partition: PartitionImage, brokers: Mapping[int, BrokerInfo], id: int) -> bool:
    """Whether `id` lives, and still does so as it was when the partition's state was written.

    A state without epochs was written by somebody who did not know of them: then whoever registered before that write
    counts as the same. An epoch above the one we know of only says that our list of brokers is the older of the two.
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
    """The epochs to write beside `isr`, which follows the partition's present state.

    `joined` holds the epochs of members that come in with this write. Members that stay keep the epoch they have, or,
    where the present state names none, the one they live under if it is still the same life.
    """
    known = dict(zip(partition.isr, partition.isr_epochs, strict=True)) if partition.isr_epochs else {}
    epochs: list[int] = []
    for id in isr:
        if joined is not None and id in joined:
            epochs.append(joined[id])
        elif id in known:
            epochs.append(known[id])
        else:
            epochs.append(brokers[id].epoch if is_same_incarnation(partition, brokers, id) else UNKNOWN_EPOCH)
    return tuple(epochs)
