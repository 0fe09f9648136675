"""Writes to a group whose coordinator is late, moves, or answers twice; its answers are a list."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.admin.groups import DeleteGroupsResponse

from brokers.dataplane import coordinators
from brokers.dataplane.groups import KafkaGroupAdminClient
from brokers.dataplane.scatter import ScatterResult
from instances.naming import internal_scoped
from tenants.errors import NotFound, OutcomeUnknown, Unavailable

INSTANCE_ID = "ins-00000000"
NOT_COORDINATOR, GROUP_NOT_FOUND = 16, 69


def deleted(error_code: int) -> DeleteGroupsResponse:
    result = DeleteGroupsResponse.DeletableGroupResult(group_id="etl", error_code=error_code)
    return DeleteGroupsResponse(throttle_time_ms=0, results=[result])


@pytest.fixture()
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns the coordinator's answers in order; None is no answer in time."""
    answers: list[Any] = []

    def scatter(asked: Any, **_: Any) -> ScatterResult:
        answer = answers.pop(0)
        return ScatterResult(responses=() if answer is None else ((1, answer),), silent=())

    monkeypatch.setattr(coordinators, "cluster_of", lambda _instance_id: None)
    monkeypatch.setattr(coordinators, "targets", lambda _cluster, _username: {1: object()})
    monkeypatch.setattr(coordinators, "find_coordinators", lambda *_: {internal_scoped(INSTANCE_ID, "etl"): 1})
    monkeypatch.setattr(coordinators, "scatter", scatter)
    monkeypatch.setattr(coordinators, "COORDINATOR_RETRY_S", 0.0)
    return answers


def test_a_group_that_is_gone_at_the_second_try_was_deleted_by_the_first(answers: list[Any]) -> None:
    """A paused follower delays the coordinator's answer, but the deletion is done."""
    answers += [None, deleted(GROUP_NOT_FOUND)]
    KafkaGroupAdminClient().delete_group(INSTANCE_ID, "etl")
    assert answers == []


def test_a_group_that_is_gone_at_the_first_try_is_not_found(answers: list[Any]) -> None:
    answers += [deleted(GROUP_NOT_FOUND)]
    with pytest.raises(NotFound):
        KafkaGroupAdminClient().delete_group(INSTANCE_ID, "etl")


def test_a_deletion_that_may_have_reached_a_coordinator_is_of_unknown_outcome(
    answers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "COORDINATOR_PATIENCE_S", 0.0)
    lost = ScatterResult(responses=(), silent=(), may_be_executed=True)
    monkeypatch.setattr(coordinators, "scatter", lambda *_, **__: lost)
    with pytest.raises(OutcomeUnknown):
        KafkaGroupAdminClient().delete_group(INSTANCE_ID, "etl")
    monkeypatch.setattr(coordinators, "scatter", lambda *_, **__: ScatterResult(responses=(), silent=()))
    with pytest.raises(Unavailable, match="no coordinator"):
        KafkaGroupAdminClient().delete_group(INSTANCE_ID, "etl")
