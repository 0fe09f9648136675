"""Random histories of brokers, leaders, operators and controllers (TST-7). Invariants: one leader per epoch, leaders in
sync, no committed record lost, no partition without a leader that could have one, moves that end.
The seed determines the history; `CONTROLLER_HISTORIES=5000` plays more of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from brokers.engine.cluster import incarnations
from brokers.engine.controller import decide, partition_states
from brokers.engine.controller.events import ReconcileAgain
from tests.unit.brokers.engine.controller import promises
from tests.unit.brokers.engine.controller.history import History, Key

BROKERS = (1, 2, 3, 4)
KEYS: tuple[Key, ...] = (("t", 0), ("t", 1), ("u", 0))
HISTORIES = int(os.environ.get("CONTROLLER_HISTORIES", "250"))
STEPS = 120
# A planted fault must be found within this number of histories.
FOUND_WITHIN = 250


class Player:
    """A player of one history; `seed` determines the steps, `sent` lists those taken."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sent: list[str] = []
        self.history = History(BROKERS)
        self.history.create("t", self.draw_replicas(), self.draw_replicas())
        self.history.create("u", self.draw_replicas())
        verbs: dict[str, tuple[int, Callable[[], None]]] = {
            "append": (6, self.append),
            "fetch": (3, self.fetch),
            "catch up": (8, self.catch_up),
            "expand late": (3, self.expand_late),
            "shrink": (1, self.shrink),
            "kill": (2, self.kill),
            "lose tail": (2, self.lose_tail),
            "bounce": (2, self.bounce),
            "start": (5, self.start),
            "announce stop": (1, self.announce_stop),
            "move": (3, self.move),
            "call off": (1, self.call_off),
            "elect": (1, self.elect),
            "show": (6, self.show),
            "carry": (9, self.carry),
            "balance": (1, self.balance),
            "settle": (2, self.complete),
        }
        self.verbs = verbs
        self.weights = [weight for weight, _ in verbs.values()]

    def play(self, steps: int) -> None:
        self.complete()
        for verb in self.random.choices(list(self.verbs), self.weights, k=steps):
            self.sent.append(verb)
            self.verbs[verb][1]()
            promises.check(self.history)
        self.end()

    def end(self) -> None:
        """Restart all brokers and let followers catch up; check that every partition has a leader, a complete ISR and
        no unfinished move.
        """
        history = self.history
        self.complete()
        for id in BROKERS:
            if id in history.brokers:
                history.kill(id)
        for id in self.random.sample(BROKERS, len(BROKERS)):
            history.start(id)
            self.complete()
        for _ in range(2):
            for key in KEYS:
                for follower in history.partition(key).replicas:
                    history.fetch(key, follower)
                    history.expand(key, follower)
            self.complete()
        for key in KEYS:
            partition = history.partition(key)
            assert history.leads(key) and not partition.is_reassigning, f"{key} still moves"
            assert set(partition.isr) == set(partition.replicas)

    # --- draws ---

    def draw_replicas(self) -> tuple[int, ...]:
        return tuple(self.random.sample(BROKERS, self.random.randint(1, 3)))

    def key(self) -> Key:
        return self.random.choice(KEYS)

    def broker(self) -> int:
        return self.random.choice(BROKERS)

    # --- verbs ---

    def append(self) -> None:
        self.history.append(self.key())

    def fetch(self) -> None:
        self.history.fetch(self.key(), self.broker())

    def catch_up(self) -> None:
        key = self.key()
        for follower in self.history.partition(key).replicas:
            self.history.fetch(key, follower)
            self.history.expand(key, follower)

    def expand_late(self) -> None:
        self.history.expand(self.key(), self.broker())

    def shrink(self) -> None:
        self.history.shrink(self.key(), self.broker())

    def kill(self) -> None:
        id = self.broker()
        if id in self.history.brokers and self.history.may_die(id):
            self.history.kill(id)

    def lose_tail(self) -> None:
        id = self.broker()
        if id in self.history.brokers and self.history.may_die(id) and self.history.may_lose(id):
            self.history.lose_tail(id)
            self.history.kill(id)
            if self.random.random() < 0.5:
                self.history.start(id)

    def bounce(self) -> None:
        id = self.broker()
        if id in self.history.brokers and self.history.may_die(id):
            self.history.kill(id)
            self.history.start(id)

    def start(self) -> None:
        id = self.broker()
        if id not in self.history.brokers:
            self.history.start(id)

    def announce_stop(self) -> None:
        id = self.broker()
        if id in self.history.brokers:
            self.history.stop(id)

    def move(self) -> None:
        target = self.draw_replicas()
        if set(target) <= self.history.brokers.keys():
            self.history.move(self.key(), target)

    def call_off(self) -> None:
        self.history.move(self.key(), None)

    def elect(self) -> None:
        if self.history.brokers:
            self.history.elect(self.random.choice(sorted(self.history.brokers)))

    def some_controller(self) -> int | None:
        known = sorted(self.history.controllers)
        return self.random.choice(known) if known else None

    def show(self) -> None:
        id = self.some_controller()
        if id is not None:
            self.history.show(id)

    def carry(self) -> None:
        id = self.some_controller()
        if id is not None:
            self.history.carry(id)

    def balance(self) -> None:
        id = self.some_controller()
        if id is not None:
            self.history.balance(id)

    def complete(self) -> None:
        """Let the controller finish undisturbed, and check the result."""
        if self.history.brokers:
            self.history.complete()
            promises.check(self.history)
            promises.check_applied(self.history)


def play(seed: int) -> None:
    player = Player(seed)
    try:
        player.play(STEPS)
    except AssertionError as failure:
        failure.add_note(f"seed {seed}, after {len(player.sent)} steps: {', '.join(player.sent[-15:])}")
        raise


def test_a_cluster_keeps_its_promises_whatever_happens() -> None:
    for seed in range(HISTORIES):
        play(seed)


PLANTED: dict[str, tuple[object, str, object]] = {
    "an earlier life counts as in sync": (
        incarnations,
        "is_same_incarnation",
        lambda partition, brokers, id: id in brokers,
    ),
    "a move ends before everybody is in sync": (
        partition_states,
        "_is_reassignment_complete",
        lambda partition, choice: partition.is_reassigning and bool(set(partition.target) & set(choice.isr)),
    ),
    "who stops keeps what it has": (partition_states, "_without_stopping", lambda partition, choice, context: choice),
    "the dead stay in sync": (
        partition_states.leader_choice,
        "without_dead",
        lambda leader, isr, is_alive: tuple(isr),
    ),
    "a lost race is forgotten": (decide, "ReconcileAgain", lambda topics: ReconcileAgain(())),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The histories detect each planted fault; a check that cannot fail proves nothing."""
    module, name, wrong = PLANTED[fault]
    monkeypatch.setattr(module, name, wrong)
    with pytest.raises(AssertionError):
        for seed in range(FOUND_WITHIN):
            play(seed)
