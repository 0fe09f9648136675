"""Versions between processes (docs/reference/versions.md) fit each other."""

from __future__ import annotations

import json

import pytest

from brokers.contract.documents import BrokerDocument
from brokers.engine.protocol.apis import ADVERTISED_INTERNAL, OWN_CALL_VERSIONS, ApiKey
from tests.reference.versions import CALLS, Call

FIELDS = {"host": "h", "port": 1, "admin_port": 2, "timestamp_ms": 3}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.sender} {call.key.name} {call.version}")
def test_a_version_that_is_sent_is_served(call: Call) -> None:
    low, high = call.served
    assert low <= call.version <= high


def test_a_registration_has_the_software_and_the_calls_of_its_broker() -> None:
    document = BrokerDocument(**FIELDS, software_version="1.2.3", call_versions=OWN_CALL_VERSIONS)
    assert BrokerDocument.from_json(document.to_json()) == document
    assert document.call_versions["allot_storage"] == ADVERTISED_INTERNAL[ApiKey.ALLOT_STORAGE][1]


def test_a_registration_of_an_earlier_broker_names_no_version_and_no_call() -> None:
    body = json.loads(BrokerDocument(**FIELDS).to_json())
    assert "software_version" not in body
    assert body["features"] == {}
    assert BrokerDocument.from_json(json.dumps(body).encode()) == BrokerDocument(**FIELDS)


def test_a_feature_that_is_not_understood_hides_no_broker() -> None:
    body = json.loads(BrokerDocument(**FIELDS).to_json())
    body["features"] = {"new": "later", "newer": {"levels": [1]}, "known": {"min_version": 0, "max_version": 4}}
    assert BrokerDocument.from_json(json.dumps(body).encode()).call_versions == {"known": 4}
