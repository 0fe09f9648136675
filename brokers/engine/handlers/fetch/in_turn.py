"""Wakes a fetch that is served in a task, when the turn of its instance comes."""

from __future__ import annotations

import asyncio

from brokers.engine.handlers.context import Engine


class InTurn:
    """Sets an event when the turn of the instance comes: whatever wakes a fetch may wake thousands of others, and what
    each does then takes long.
    """

    def __init__(self, engine: Engine, instance_id: str | None) -> None:
        self._engine = engine
        self._instance_id = instance_id
        self._is_due = False
        self.event = asyncio.Event()

    def set(self) -> None:
        if self._is_due:
            return
        self._is_due = True
        if self._instance_id is None:
            self.event.set()
        else:
            self._engine.request_turns.take(self._instance_id).add_done_callback(self._on_turn)

    def _on_turn(self, _: object) -> None:
        self.event.set()
