"""Transactions over REST: open ones, unknown states, and missing ids."""

from __future__ import annotations

import json
from typing import Any

import pytest

from instances.interfaces import BrokerUnresponsive
from instances.models import Instance
from tenants.models import Member
from tests.component.instances.conftest import FakeTransactions
from tests.testkit.api_cases import Api, assert_problem
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db

NOW_MS = 1_790_000_000_000


@pytest.fixture()
def instance(owner: Member) -> Instance:
    return make_running(owner.tenant)


def good(answer: Any) -> Any:
    assert answer.status_code == 200, answer.content
    return json.loads(answer.content)


def test_transactions_are_listed_and_described(api: Api, instance: Instance, transactions: FakeTransactions) -> None:
    transactions.add(instance.pk, "mover", ("orders", 0), ("orders", 1), started_ms=NOW_MS)
    transactions.add(instance.pk, "idle", state="Empty", started_ms=-1)
    transactions.add(instance.pk, "quiet", state="Ongoing", started_ms=NOW_MS)
    transactions.unresponsive_ids.add("quiet")
    root = f"/instances/{instance.pk}/transactions"
    body = good(api.get(f"{root}?state=in_flight"))
    mover, quiet = body["items"]
    assert (mover["id"], mover["state"], mover["timeout_ms"], mover["started_ms"]) == (
        "mover",
        "Ongoing",
        60_000,
        NOW_MS,
    )
    assert mover["partitions"] == [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}]
    assert (quiet["partitions"], quiet["age_ms"]) == (None, None)
    assert [item["id"] for item in good(api.get(root))["items"]] == ["idle", "mover", "quiet"]
    detail = good(api.get(f"{root}/mover"))
    assert [(line["partition"], line["first_offset"], line["is_known"]) for line in detail["producers"]] == [
        (0, 120, True), (1, 120, True),
    ]  # fmt: skip
    assert_problem(api.get(f"{root}/quiet"), 503)
    assert_problem(api.get(f"{root}/nobody"), 404)


def test_a_transaction_whose_coordinator_is_away_is_not_said_to_be_gone(
    api: Api, instance: Instance, transactions: FakeTransactions
) -> None:
    transactions.add(instance.pk, "quiet", ("orders", 0), started_ms=NOW_MS)
    transactions.silent = (BrokerUnresponsive(broker_id=1, reason="does not answer"),)
    transactions.unresponsive_ids.add("quiet")
    transactions.unlisted.add("quiet")
    problem = assert_problem(api.get(f"/instances/{instance.pk}/transactions/quiet"), 503, "unavailable")
    assert "coordinator does not answer" in problem["detail"]
    assert_problem(api.get(f"/instances/{instance.pk}/transactions/nobody"), 404)
