"""Intended differences from Apache Kafka 3.9.1 about limits of addresses, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.differential.difference import ONE_ERROR_CODE, Difference
from tests.differential.scripts.address_quotas import RATE, wide_address

SCRIPT = "address_quotas"
IPV6 = "an IPv6 address is one: its colons, which are encoded before they are looked at there, make it none"
NO_NAMES = "a broker asks no name service what a tenant writes"
INVALID_REQUEST = 42


def _entity(address: str) -> list[dict[str, Any]]:
    return [{"entity_type": "ip", "entity_name": address}]


def _accepted(answer: Any) -> Any:
    for entry in answer["entries"]:
        entry.pop("error_code", None)
    return answer


def _refused(answer: Any) -> Any:
    answer["entries"][0] = {"error_code": INVALID_REQUEST, **answer["entries"][0]}
    return answer


def _not_described(_: Any) -> Any:
    return {"error_code": INVALID_REQUEST, "entries": None}


def _listed(address: str, per_s: float) -> Callable[[Any], Any]:
    """Returns a function that appends an address to the others."""

    def ours(answer: Any) -> Any:
        values = [{"key": RATE, "value": per_s}] if per_s else [{"key": RATE}]
        entries = answer.get("entries", [])
        users = [entry for entry in entries if entry["entity"][0]["entity_type"] != "ip"]
        kept = [entry for entry in entries if entry not in users]
        return {**answer, "entries": [*kept, {"entity": _entity(address), "values": values}, *users]}

    return ours


def _of_version(version: int) -> tuple[Difference, ...]:
    wide = wide_address(version)
    accepted = ("three", "none at all", "the largest", "another spelling", "another spelling removed", "all removed")
    listed = {"everything": 6.0, "one of IPv6": 6.0, "any": 6.0, "any, strictly": 6.0, "after the changes": 2.0**31 - 1,
              "after the wrong ones": 2.0**31 - 1, "another spelling": 13.0}  # fmt: skip
    return (
        *(Difference(SCRIPT, f"alter v{version}: {label}", IPV6, _accepted) for label in accepted),
        *(
            Difference(SCRIPT, f"describe v{version}: {label}", IPV6, _listed(wide, per_s))
            for label, per_s in listed.items()
        ),
    )


ADDRESSES: tuple[Difference, ...] = (
    *_of_version(0),
    *_of_version(1),
    Difference(SCRIPT, "alter v*: a name of a host", NO_NAMES, _refused),
    Difference(SCRIPT, "alter v*: a name of a host removed", NO_NAMES, _refused),
    *(
        Difference(SCRIPT, f"describe v*: {label}", ONE_ERROR_CODE, _not_described)
        for label in ("exactly nothing", "match type 9")
    ),
)
