"""Every script with three brokers by its name, which is also the name of its golden file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.differential.trio.play import TrioPlayer
from tests.differential.trio.scripts import (
    broker_configs,
    creation,
    elections,
    elsewhere,
    epochs,
    fencing,
    metadata,
    min_isr,
    prepared,
    read_replicas,
    reassignments,
)

SCRIPTS: Final[dict[str, Callable[[TrioPlayer], None]]] = {
    "broker_configs": broker_configs.script,
    "creation": creation.script,
    "elections": elections.script,
    "elsewhere": elsewhere.script,
    "epochs": epochs.script,
    "fencing": fencing.script,
    "metadata": metadata.script,
    "min_isr": min_isr.script,
    "prepared": prepared.script,
    "read_replicas": read_replicas.script,
    "reassignments": reassignments.script,
}
