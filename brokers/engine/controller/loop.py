"""Executes the controller's decisions: one task, one event at a time (CTL-6), every write through the store.

The loop runs on every broker. It runs for election while there is no controller; on the other brokers it only follows
the image. It does not poll: it wakes up for a new image, and every ten seconds to clean the change log.
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
from brokers.engine.controller.election import is_deposed, should_run_for_election
from brokers.engine.controller.events import (
    BalanceDue,
    ControllerState,
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
from brokers.engine.controller.policy import DEFAULT, FIRST_BALANCE_DELAY_S, Policy

log = structlog.get_logger(__name__)

# Interval between cleanings of the change log. Readers list the whole log at each change, so it must stay short.
CLEANING_INTERVAL_S = 10.0
# Age at which change nodes are deleted, by which all readers have seen them (ZK-32).
CHANGE_RETENTION_MS = 15 * 60 * 1000
RETRY_DELAY_S = 0.5


class ControllerLoop:
    """The controller's loop on one broker.

    `session_id` returns the current session of the store: a controllership belongs to a session, not to a process.
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
        self._is_outcome_unknown = False
        self._next_cleaning_s = self._next_balance_s = math.inf
        # Deletions take long and are not urgent, so they are done one at a time between images.
        self._deletions = DeletionQueue(current.tenant_of)
        self._wake = asyncio.Event()
        self._wake.set()
        current.subscribe(self._on_image)

    def use_policy(self, policy: Policy) -> None:
        """Sets a policy that operators have changed; it applies from the next step on."""
        self._policy = policy
        self._wake.set()

    @property
    def is_controller(self) -> bool:
        return self.state.held_epoch is not None

    @property
    def epoch(self) -> int:
        """The controller epoch that this broker holds, 0 if it is not the controller."""
        return self.state.held_epoch.epoch if self.state.held_epoch is not None else 0

    async def run(self) -> None:
        """Runs until it is cancelled."""
        clock = asyncio.get_running_loop().time
        self._next_cleaning_s = clock() + CLEANING_INTERVAL_S
        while True:
            if not self._deletions:
                try:
                    async with asyncio.timeout_at(min(self._next_cleaning_s, self._next_balance_s)):
                        await self._wake.wait()
                except TimeoutError:
                    await self._run_periodic_work(clock())
                    continue
            if self._wake.is_set():
                self._wake.clear()
                await self._step(self._current.image)
            elif clock() >= min(self._next_cleaning_s, self._next_balance_s):
                await self._run_periodic_work(clock())
            if self._deletions:
                await self._delete_next()

    async def stop(self) -> None:
        """Resigns, so that the next controller need not wait for the end of the session. Cancel `run` first."""
        held_epoch = self.state.held_epoch
        self.state, _ = decide(self.state, Deposed("this broker stops"))
        if held_epoch is not None:
            try:
                await self._store.resign(held_epoch)
            except StoreUnavailable as error:
                log.warning("controller_left_to_expire", reason=str(error))

    def _on_image(self, _before: ClusterImage, _after: ClusterImage) -> None:
        self._wake.set()

    async def _step(self, image: ClusterImage) -> None:
        """Handles one image. Events that the instructions of a decision cause are handled before the next image."""
        held_epoch = self.state.held_epoch
        if held_epoch is not None and self._session_id() != self._controller_session:
            # An election in progress when the session ended may have been repeated in the next session. Then this
            # broker is the controller, and no other broker would run for election.
            self._is_outcome_unknown = True
            await self._handle(Deposed("the session ended"))
        elif held_epoch is not None and is_deposed(held_epoch, image):
            await self._handle(Deposed(f"broker {image.controller_id} holds epoch {image.controller_epoch}"))
        await self._handle(ImageChanged(image))
        if self.state.policy != self._policy:
            await self._handle(PolicyChanged(self._policy))
        if self.state.held_epoch is None and should_run_for_election(
            image, self.state.broker_id, outcome_unknown=self._is_outcome_unknown
        ):
            elected = await self._run_for_election()
            if elected is not None:
                self._next_balance_s = asyncio.get_running_loop().time() + FIRST_BALANCE_DELAY_S
                await self._handle(Elected(elected))

    async def _run_for_election(self) -> ControllerEpoch | None:
        session = self._session_id()
        try:
            held_epoch = await self._store.elect(self.state.broker_id)
        except StoreUnavailable as error:
            log.warning("election_failed", broker_id=self.state.broker_id, reason=str(error))
            self._is_outcome_unknown = True
            asyncio.get_running_loop().call_later(RETRY_DELAY_S, self._wake.set)
            return None
        self._is_outcome_unknown = False
        if held_epoch is None:
            # Another broker was elected, which the image does not show yet.
            self._watcher.mark(Part.CONTROLLER)
            return None
        self._controller_session = session
        log.info("controller_elected", broker_id=held_epoch.broker_id, epoch=held_epoch.epoch)
        return held_epoch

    async def _delete_next(self) -> None:
        """Deletes one topic; elections of first leaders run between deletions."""
        topic = self._deletions.pop()
        held_epoch = self.state.held_epoch
        if held_epoch is None:
            return
        try:
            result: Event = await self._apply_topic_change(topic.name, self._store.finish_deletion(held_epoch, topic))
        except ControllerMoved as error:
            self._watcher.mark(Part.CONTROLLER)
            result = Deposed(str(error))
        await self._handle(result)

    async def _handle(self, event: Event) -> None:
        events: deque[Event] = deque([event])
        while events:
            current = events.popleft()
            if isinstance(current, Deposed) and self.state.held_epoch is not None:
                log.info("controller_deposed", broker_id=self.state.broker_id, epoch=self.epoch, reason=current.reason)
            if isinstance(current, Deposed | Elected):
                self._deletions.clear()
            self.state, instructions = decide(self.state, current)
            for instruction in instructions:
                if self.state.held_epoch is None:
                    break
                try:
                    result = await self._execute(self.state.held_epoch, instruction)
                except ControllerMoved as error:
                    self._watcher.mark(Part.CONTROLLER)
                    events.clear()
                    result = Deposed(str(error))
                if result is not None:
                    events.append(result)
                if isinstance(result, Deposed):
                    break

    async def _execute(self, held_epoch: ControllerEpoch, instruction: Instruction) -> Event | None:
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
                return await self._apply_topic_change(name, creation)
            case GrowSystemTopic(name, present, added):
                growth = self._store.create_partitions(
                    self.state.image, TopicGrowth(None, name, total=present + len(added), assignment=added)
                )
                return await self._apply_topic_change(name, growth)
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

    async def _apply_topic_change(self, topic: str, work: Awaitable[object]) -> TopicApplied:
        try:
            await work
        except ControllerMoved:
            raise
        except Conflict as overtaken:
            # Another process has changed the topic; the rest is decided from the changed state.
            log.info("topic_overtaken", topic=topic, reason=str(overtaken))
            return TopicApplied(topic, succeeded=False)
        except (ClusterError, TreeError) as error:
            log.warning("topic_not_completed", topic=topic, reason=str(error))
            return TopicApplied(topic, succeeded=False)
        log.info("topic_completed", topic=topic)
        return TopicApplied(topic)

    async def _run_periodic_work(self, now_s: float) -> None:
        if now_s >= self._next_balance_s:
            self._next_balance_s = now_s + self.state.policy.balance_interval_s
            await self._handle(BalanceDue())
        if now_s >= self._next_cleaning_s:
            self._next_cleaning_s = now_s + CLEANING_INTERVAL_S
            await self._clean_change_log()

    async def _clean_change_log(self) -> None:
        if self.state.held_epoch is None:
            return
        try:
            cleaned = await self._store.clean_changes(CHANGE_RETENTION_MS)
        except StoreUnavailable as error:
            log.warning("changes_not_cleaned", reason=str(error))
            return
        log.debug("changes_cleaned", count=cleaned)


def _written(writes: Sequence[StateWrite], lost: Set[PartitionKey]) -> StatesWritten:
    versions = {
        write.key: 0 if write.version is None else write.version + 1 for write in writes if write.key not in lost
    }
    return StatesWritten(versions, tuple(sorted(lost)))
