"""The quickstart of a fresh instance: its code runs unedited, and sample data arrives and ends by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.product.system.test_snippets import run_python
from tests.testkit.stack import Stack
from tests.testkit.tenancy import Caller, demo_tenant
from tests.testkit.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(200)]


def rules(caller: Caller, place: str) -> list[dict[str, Any]]:
    """Returns the throttles."""
    return list(caller.get(f"{place}/throughput")["throttling"])


def test_code_of_a_quickstart_runs_unedited_beside_its_sample_data(stack: Stack, tmp_path: Path) -> None:
    caller = demo_tenant(stack)
    wanted = {"name": "quick-start", "bandwidth_mb_s": 5, "storage_gb": 1}
    status, operation = caller.call(
        "POST", "/instances", wanted | {"routes": [{"name": "main", "security": "sasl_plaintext"}]}
    )
    assert status == 202, operation
    place = f"/instances/{operation['resource_id']}"
    eventually(lambda: caller.get(place)["status"]["phase"] == "running", within_s=60, what="the instance runs")
    status, made = caller.call("POST", f"{place}/quickstart", {})
    assert status == 201, made
    assert (made["user"], made["topic"]) == ("quickstart", "orders")
    newest = f"{place}/topics/orders/messages?start=newest&limit=50"
    eventually(lambda: caller.get(newest)["messages"], within_s=30, what="sample data arrives")
    values = [message["value"]["data"] for message in caller.get(newest)["messages"]]
    assert any('"order"' in str(value) for value in values), values

    code = next(item["code"] for item in made["code"] if item["language"] == "python")
    # The reader of the snippet goes on while messages come; a minute of them is more than this test needs.
    code = code.replace("while (message := consumer.poll(10)) is not None:", "for message in consumer.consume(5, 20):")
    assert "o-1" in run_python(tmp_path, code)

    status, pushed = caller.call("POST", f"{place}/push", {})
    assert status == 200, pushed
    demo = pushed["client_id"]
    eventually(
        lambda: any(entry["client_id"] == demo and entry["active"] for entry in rules(caller, place)),
        within_s=20,
        what="the rule that holds the demo client back is named",
    )
    rule = next(entry["rule"] for entry in rules(caller, place) if entry["client_id"] == demo)
    assert (rule["kind"], rule["entity"]) == ("client_quota", {"client_id": demo})
    eventually(lambda: not caller.get(f"{place}/quotas")["items"], within_s=60, what="the quota is taken back")
    status, answer = caller.call("DELETE", place)
    assert status == 202, answer
