"""Simulated members of groups: they join, lead, own partitions, commit offsets, and restart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from brokers.engine.handlers.groups.find_coordinator import GROUP
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from brokers.engine.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.simulation.cluster.records import TOPIC
from tests.simulation.coordinators.clients import NOBODY, ClientContext, Machine, NoAnswer
from tests.simulation.coordinators.group_promises import Commit, GroupPromises
from tests.simulation.coordinators.offsets import committed

SESSION_MS: Final = 400
# Session of static members, which may miss a whole generation and return with the previous one.
STATIC_SESSION_MS: Final = 2_000
REBALANCE_MS: Final = 600
HEARTBEAT_MS: Final = (60, 90, 140)
# Probability of a commit after a heartbeat.
COMMITS: Final = 0.6
# Probability that a removed member tries to commit nevertheless.
STUBBORN: Final = 0.5

# Errors if the coordinator is another broker or not ready.
ELSEWHERE: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
# Errors after which a member must join again.
OUT: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})
# Errors of commits that certainly did not take effect.
NOT_DONE: Final = OUT | {ErrorCode.FENCED_INSTANCE_ID}


class Fenced(Exception):
    """Another process has the group instance id."""


class Member(Machine):
    """A member of a group; static with an `instance_id`. `owns` is None while it has no generation."""

    needs_stable = False

    def __init__(
        self,
        name: str,
        group: str,
        seat: str | None,
        partitions: int,
        client_context: ClientContext,
        promises: GroupPromises,
    ) -> None:
        super().__init__(name, client_context)
        self.group = group
        self.instance_id = seat
        self.member_id = ""
        self.generation = NOBODY
        self.owns: Sequence[int] | None = None
        self.leaves = False
        self._partitions = partitions
        self._promises = promises
        self._broker = NOBODY
        self.start(self._live())

    @property
    def seat(self) -> str:
        return self.instance_id or self.member_id

    async def _live(self) -> None:
        try:
            while not self.leaves:
                try:
                    if await self._join():
                        await self._own()
                except NoAnswer:
                    self._broker = NOBODY
                self.owns = None
                await self.wait_before_retry()
            await self._leave()
        except Fenced:
            self.note("is fenced")
        self.owns = None

    async def _call_coordinator(self, api_key: int, version: int, message: Any) -> Any:
        if self._broker < 0:
            self._broker = self.coordinator(GROUP, self.group)
        return await self.call(self._broker, api_key, version, message)

    def _is_well(self, code: int) -> bool:
        """Handles an error code; returns True if there is none."""
        if code == ErrorCode.FENCED_INSTANCE_ID:
            raise Fenced
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if code in ELSEWHERE:
            self._broker = NOBODY
        return not code

    # -- joining -------------------------------------------------------------------------------------------------------

    async def _join(self) -> bool:
        """Joins the group; returns True if it got an assignment, which may be empty."""
        asked_us = self.client_context.now_us
        join_reply: JoinGroupResponse = await self._call_coordinator(
            ApiKey.JOIN_GROUP,
            9,
            JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=SESSION_MS if self.instance_id is None else STATIC_SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol("simulated", (self.instance_id or "").encode())],
            ),
        )
        code = join_reply.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = join_reply.member_id
            return False
        if not self._is_well(code):
            assert code in ELSEWHERE | OUT | {ErrorCode.REQUEST_TIMED_OUT}, f"{self.name} joins: {ErrorCode(code).name}"
            return False
        self.member_id = join_reply.member_id
        self.generation = join_reply.generation_id
        self._promises.joined(self.group, self.generation, self.name, asked_us)
        return await self._sync(join_reply)

    def _shares(self, join_reply: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Returns round-robin assignments in a random order of the members."""
        members = list(join_reply.members)
        self.dice.shuffle(members)
        shares = {
            member.member_id: list(range(number, self._partitions, len(members)))
            for number, member in enumerate(members)
        }
        self._promises.submitted(
            self.group,
            self.generation,
            {member.group_instance_id or member.member_id: shares[member.member_id] for member in members},
        )
        return [SyncGroupRequestAssignment(id, json.dumps(share).encode()) for id, share in shares.items()]

    async def _sync(self, join_reply: JoinGroupResponse) -> bool:
        leads = join_reply.leader == join_reply.member_id and not join_reply.skip_assignment
        asked_us = self.client_context.now_us
        synced = await self._call_coordinator(
            ApiKey.SYNC_GROUP,
            5,
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocol_name=join_reply.protocol_name,
                assignments=self._shares(join_reply) if leads else [],
            ),
        )
        code = synced.error_code
        if not self._is_well(code):
            assert code in ELSEWHERE | OUT | {ErrorCode.REQUEST_TIMED_OUT}, f"{self.name} syncs: {ErrorCode(code).name}"
            return False
        share = json.loads(synced.assignment) if synced.assignment else []
        times_us = (asked_us, self.client_context.now_us)
        self._promises.synced(self.group, self.generation, self.name, self.member_id, self.seat, share, times_us)
        self.note(f"owns {share} of {self.group} in generation {self.generation}{' and leads' if leads else ''}")
        self.owns = share
        return True

    # -- owning --------------------------------------------------------------------------------------------------------

    async def _own(self) -> None:
        """Owns its partitions until the generation is over."""
        positions: dict[int, int] = {}
        while not self.leaves:
            await self.sleep(self.dice.choice(HEARTBEAT_MS))
            try:
                heartbeat_answer = await self._call_coordinator(
                    ApiKey.HEARTBEAT,
                    4,
                    HeartbeatRequest(
                        group_id=self.group,
                        generation_id=self.generation,
                        member_id=self.member_id,
                        group_instance_id=self.instance_id,
                    ),
                )
                code = heartbeat_answer.error_code
                if code in OUT or code == ErrorCode.FENCED_INSTANCE_ID:
                    if positions and self.dice.random() < STUBBORN:
                        await self._work(positions)
                    self._is_well(code)
                    return
                if not self._is_well(code):
                    continue
                if not await self._find_positions(positions) or self.dice.random() > COMMITS or not positions:
                    continue
                if not await self._work(positions):
                    return
            except NoAnswer:
                self._broker = NOBODY

    async def _work(self, positions: dict[int, int]) -> bool:
        """Works from `positions` on and advances them; returns False if the generation is over."""
        return await self._commit(positions) not in NOT_DONE

    async def _find_positions(self, positions: dict[int, int]) -> bool:
        """Fetches the positions of its partitions; returns False if that was not possible."""
        for index in self.owns or ():
            if index not in positions:
                is_stable = self.needs_stable or self.dice.random() < 0.5
                result = await committed(self, self._broker, self.group, index, self._promises, is_stable=is_stable)
                if result is None:
                    self._broker = NOBODY
                    return False
                positions[index] = result
        return True

    async def _commit(self, positions: dict[int, int]) -> int:
        """Commits new positions and returns the error code."""
        commits = self._next(positions)
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=commit.position, committed_metadata=self.name
            )
            for index, commit in commits.items()
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequestTopic(TOPIC, partitions)],
        )
        response = await self._call_coordinator(ApiKey.OFFSET_COMMIT, 8, request)
        worst = 0
        for partition in response.topics[0].partitions:
            commit = commits[partition.partition_index]
            if not partition.error_code:
                self._promises.acknowledged(commit, self.client_context.now_us)
            else:
                commit.refused = partition.error_code in NOT_DONE
                worst = partition.error_code
        if worst:
            positions_text = ", ".join(f"{index}:{commit.position}" for index, commit in commits.items())
            self.note(f"commits {positions_text} of {self.group}: {ErrorCode(worst).name}")
        self._is_well(worst)
        return worst

    def _next(self, positions: dict[int, int]) -> dict[int, Commit]:
        """Advances the positions and returns their commits."""
        commits: dict[int, Commit] = {}
        for index, behind in positions.items():
            key = (self.group, index)
            position = positions[index] = self._promises.next_position(key, behind)
            commit = commits[index] = Commit(
                key, position, self.name, self.generation, self.member_id, self.seat, self.client_context.now_us
            )
            commit.behind = behind
            self._promises.committing(commit)
        return commits

    async def _leave(self) -> None:
        try:
            leaver = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
            await self._call_coordinator(
                ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(group_id=self.group, members=[leaver])
            )
        except NoAnswer:
            self.note("left without a word")
