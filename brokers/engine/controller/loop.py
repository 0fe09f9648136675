"""Carries the controller's decisions out: one task, one event at a time (CTL-6), every write through the store.

It runs on every broker; where nobody was elected it runs for election, elsewhere it only follows the image. Nothing
polls: it wakes on a new image, and every ten seconds to clean the change logs.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence, Set

import structlog

from brokers.contract.partitions import PartitionKey
from brokers.engine.cluster.controller_epoch import ControllerEpoch, StateWrite
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.errors import ClusterError, Conflict, ControllerMoved, StoreUnavailable
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.cluster.store import ClusterStore
from brokers.engine.cluster.topic_plans import TopicGrowth, TopicSpec
from brokers.engine.cluster.tree import TreeError
from brokers.engine.cluster.watcher import ClusterWatcher, Part
from brokers.engine.controller.decide import decide
from brokers.engine.controller.deletion_queue import DeletionQueue
from brokers.engine.controller.election import is_over, should_run_for_election
from brokers.engine.controller.events import (
    BalanceDue,
    CreateSystemTopic,
    Deposed,
    Elected,
    Event,
    FinishDeletion,
    FinishReassignments,
    GrowSystemTopic,
    ImageChanged,
    Instruction,
    PolicyChanged,
    ReconcileAgain,
    StatesWritten,
    TopicApplied,
    WriteStates,
)
from brokers.engine.controller.policy import DEFAULT, FIRST_BALANCE_S, Policy
from brokers.engine.controller.state import ControllerState

log = structlog.get_logger(__name__)

# Readers list the whole log at each change: it is cut back before it has many entries more than are kept.
CLEANING_INTERVAL_S = 10.0
# ZK-32: readers get this long to see a change node.
CHANGES_KEPT_MS = 15 * 60 * 1000
RETRY_DELAY_S = 0.5


class ControllerLoop:
    """`session_id` answers the present session of the store: a controllership is held by a session, not by a
    process.
    """

    def __init__(
        self,
        *,
        store: ClusterStore,
        watcher: ClusterWatcher,
        current: CurrentImage,
        broker_id: int,
        session_id: Callable[[], int],
        policy: Policy = DEFAULT,
    ) -> None:
        self.state = ControllerState(broker_id=broker_id, image=current.image, policy=policy)
        self._policy = policy
        self._store = store
        self._watcher = watcher
        self._current = current
        self._session_id = session_id
        self._controller_session = 0
        self._unsure = False
        self._next_cleaning_s = self._next_balance_s = math.inf
        # What takes long and can wait, done one at a time between images.
        self._deletions = DeletionQueue(current.tenant_of)
        self._wake = asyncio.Event()
        self._wake.set()
        current.subscribe(self._on_image)

    def use_policy(self, policy: Policy) -> None:
        """Operators chose otherwise: decided on from the next step on."""
        self._policy = policy
        self._wake.set()

    @property
    def is_controller(self) -> bool:
        return self.state.held_epoch is not None

    @property
    def epoch(self) -> int:
        """The epoch of this broker's controller epoch, 0 while it holds none."""
        return self.state.held_epoch.epoch if self.state.held_epoch is not None else 0

    async def run(self) -> None:
        """Until cancelled."""
        clock = asyncio.get_running_loop().time
        self._next_cleaning_s = clock() + CLEANING_INTERVAL_S
        while True:
            if not self._deletions:
                try:
                    async with asyncio.timeout_at(min(self._next_cleaning_s, self._next_balance_s)):
                        await self._wake.wait()
                except TimeoutError:
                    await self._come_round(clock())
                    continue
            if self._wake.is_set():
                self._wake.clear()
                await self._step(self._current.image)
            elif clock() >= min(self._next_cleaning_s, self._next_balance_s):
                await self._come_round(clock())
            if self._deletions:
                await self._delete_next()

    async def stop(self) -> None:
        """Hands the controllership back, so that the next one need not wait for the session to end. Cancel `run`
        first.
        """
        held_epoch = self.state.held_epoch
        self.state, _ = decide(self.state, Deposed("this broker stops"))
        if held_epoch is not None:
            try:
                await self._store.resign(held_epoch)
            except StoreUnavailable as error:
                log.warning("office_left_to_expire", reason=str(error))

    def _on_image(self, _before: ClusterImage, _after: ClusterImage) -> None:
        self._wake.set()

    async def _step(self, image: ClusterImage) -> None:
        """Events that a decision's own instructions cause come before the next image."""
        held_epoch = self.state.held_epoch
        if held_epoch is not None and self._session_id() != self._controller_session:
            # A vote that was under way when the session ended may have been cast by the next one: then the
            # controllership is ours still, and nobody else will stand for it.
            self._unsure = True
            await self._carry(Deposed("the session ended"))
        elif held_epoch is not None and is_over(held_epoch, image):
            await self._carry(Deposed(f"broker {image.controller_id} holds epoch {image.controller_epoch}"))
        await self._carry(ImageChanged(image))
        if self.state.policy != self._policy:
            await self._carry(PolicyChanged(self._policy))
        if self.state.held_epoch is None and should_run_for_election(image, self.state.broker_id, unsure=self._unsure):
            elected = await self._run_for_election()
            if elected is not None:
                self._next_balance_s = asyncio.get_running_loop().time() + FIRST_BALANCE_S
                await self._carry(Elected(elected))

    async def _run_for_election(self) -> ControllerEpoch | None:
        session = self._session_id()
        try:
            held_epoch = await self._store.elect(self.state.broker_id)
        except StoreUnavailable as error:
            log.warning("election_failed", broker_id=self.state.broker_id, reason=str(error))
            self._unsure = True
            asyncio.get_running_loop().call_later(RETRY_DELAY_S, self._wake.set)
            return None
        self._unsure = False
        if held_epoch is None:
            # Somebody was faster, and the image does not show it yet.
            self._watcher.mark(Part.CONTROLLER)
            return None
        self._controller_session = session
        log.info("controller_elected", broker_id=held_epoch.broker_id, epoch=held_epoch.epoch)
        return held_epoch

    async def _delete_next(self) -> None:
        """Topics that wait for their first leaders come in between, whoever deletes how many."""
        topic = self._deletions.pop()
        held_epoch = self.state.held_epoch
        if held_epoch is None:
            return
        try:
            result: Event = await self._apply(topic.name, self._store.finish_deletion(held_epoch, topic))
        except ControllerMoved as error:
            self._watcher.mark(Part.CONTROLLER)
            result = Deposed(str(error))
        await self._carry(result)

    async def _carry(self, event: Event) -> None:
        events: deque[Event] = deque([event])
        while events:
            happened = events.popleft()
            if isinstance(happened, Deposed) and self.state.held_epoch is not None:
                log.info("controller_deposed", broker_id=self.state.broker_id, epoch=self.epoch, reason=happened.reason)
            if isinstance(happened, Deposed | Elected):
                self._deletions.clear()
            self.state, instructions = decide(self.state, happened)
            for instruction in instructions:
                if self.state.held_epoch is None:
                    break
                try:
                    result = await self._carry_out(self.state.held_epoch, instruction)
                except ControllerMoved as error:
                    self._watcher.mark(Part.CONTROLLER)
                    events.clear()
                    result = Deposed(str(error))
                if result is not None:
                    events.append(result)
                if isinstance(result, Deposed):
                    break

    async def _carry_out(self, held_epoch: ControllerEpoch, instruction: Instruction) -> Event | None:
        match instruction:
            case WriteStates():
                return await self._write_states(held_epoch, instruction)
            case FinishReassignments():
                return await self._finish_reassignments(held_epoch, instruction)
            case FinishDeletion(topic):
                self._deletions.put(topic)
            case CreateSystemTopic(name, assignment, config):
                creation = self._store.create_topic(
                    self.state.image, TopicSpec(None, name, assignment=assignment, config=config)
                )
                return await self._apply(name, creation)
            case GrowSystemTopic(name, present, added):
                growth = self._store.create_partitions(
                    self.state.image, TopicGrowth(None, name, total=present + len(added), assignment=added)
                )
                return await self._apply(name, growth)
            case ReconcileAgain(topics):
                self._watcher.mark_topics(topics)
        return None

    async def _write_states(self, held_epoch: ControllerEpoch, instruction: WriteStates) -> StatesWritten:
        writes = instruction.writes
        log.info("states_decided", cause=instruction.cause, partitions=len(writes), epoch=held_epoch.epoch)
        try:
            lost = {write.key for write in await self._store.write_states(held_epoch, writes)}
        except StoreUnavailable as error:
            log.warning("states_not_written", partitions=len(writes), reason=str(error))
            lost = {write.key for write in writes}
        return _written(writes, lost)

    async def _finish_reassignments(
        self, held_epoch: ControllerEpoch, instruction: FinishReassignments
    ) -> StatesWritten:
        topic, writes = instruction.topic, instruction.writes
        try:
            finished = await self._store.finish_reassignments(held_epoch, topic, writes)
        except StoreUnavailable as error:
            log.warning("moves_not_finished", topic=topic.name, partitions=len(writes), reason=str(error))
            finished = False
        else:
            log.info("moves_finished" if finished else "moves_overtaken", topic=topic.name, partitions=len(writes))
        return _written(writes, set() if finished else {write.key for write in writes})

    async def _apply(self, topic: str, work: Awaitable[object]) -> TopicApplied:
        try:
            await work
        except ControllerMoved:
            raise
        except Conflict as overtaken:
            # Somebody else wrote meanwhile; what is left to do is decided from what they wrote.
            log.info("topic_overtaken", topic=topic, reason=str(overtaken))
            return TopicApplied(topic, succeeded=False)
        except (ClusterError, TreeError) as error:
            log.warning("topic_not_settled", topic=topic, reason=str(error))
            return TopicApplied(topic, succeeded=False)
        log.info("topic_settled", topic=topic)
        return TopicApplied(topic)

    async def _come_round(self, now_s: float) -> None:
        if now_s >= self._next_balance_s:
            self._next_balance_s = now_s + self.state.policy.balance_interval_s
            await self._carry(BalanceDue())
        if now_s >= self._next_cleaning_s:
            self._next_cleaning_s = now_s + CLEANING_INTERVAL_S
            await self._clean()

    async def _clean(self) -> None:
        if self.state.held_epoch is None:
            return
        try:
            cleaned = await self._store.clean_changes(CHANGES_KEPT_MS)
        except StoreUnavailable as error:
            log.warning("changes_not_cleaned", reason=str(error))
            return
        log.debug("changes_cleaned", count=cleaned)


def _written(writes: Sequence[StateWrite], lost: Set[PartitionKey]) -> StatesWritten:
    versions = {
        write.key: 0 if write.version is None else write.version + 1 for write in writes if write.key not in lost
    }
    return StatesWritten(versions, tuple(sorted(lost)))
