"""Possible mistakes in the flow master, planted one at a time; the simulator must find each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from brokers.engine.flowmaster.ledger import FlowLedger, ShareAnswer
from brokers.engine.throttling.flow_share import FlowShare

Plant = Callable[[pytest.MonkeyPatch], None]


def raise_before_others_have_lowered(patch: pytest.MonkeyPatch) -> None:
    """Gives each broker its target at once, before those that must lower their shares have done so."""
    next_share = FlowLedger._next_share

    def at_once(self: FlowLedger, account: Any, broker_id: int, now_ms: int) -> ShareAnswer:
        given = next_share(self, account, broker_id, now_ms)
        return given if account.targets_bps is None else given._replace(share_bps=account.targets_bps[broker_id])

    patch.setattr(FlowLedger, "_next_share", at_once)


def fall_back_to_the_static_share(patch: pytest.MonkeyPatch) -> None:
    """Falls back to the static share even if it is larger than the last share from the flow master."""
    expire = FlowShare.expire

    def to_static(self: FlowShare, now_ms: int) -> bool:
        has_expired = expire(self, now_ms)
        if has_expired:
            self.share_bps = self.static_bps
        return has_expired

    patch.setattr(FlowShare, "expire", to_static)


def keep_a_share_without_answers(patch: pytest.MonkeyPatch) -> None:
    """Keeps a share after its lease, on whose end a new flow master relies."""
    patch.setattr(FlowShare, "expire", lambda self, now_ms: False)


def a_new_master_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    """Assumes the static share of brokers that have not reported to a new flow master."""
    patch.setattr(FlowLedger, "_has_waited", lambda self, account, now_ms: True)


def forget_what_was_offered(patch: pytest.MonkeyPatch) -> None:
    """Counts only reported shares, without answers that are on the way."""
    handle_report = FlowLedger.handle_report

    def forgetful(self: FlowLedger, broker_id: int, key: Any, *rest: Any) -> ShareAnswer | None:
        given = handle_report(self, broker_id, key, *rest)
        account = self._accounts.get(key)
        if account is not None and given is not None:
            account.parts[broker_id].offered_bps = account.parts[broker_id].in_force_bps
        return given

    patch.setattr(FlowLedger, "handle_report", forgetful)


PLANTED: Final[Mapping[str, Plant]] = {
    plant.__name__: plant
    for plant in (
        raise_before_others_have_lowered,
        fall_back_to_the_static_share,
        keep_a_share_without_answers,
        a_new_master_does_not_wait,
        forget_what_was_offered,
    )
}
