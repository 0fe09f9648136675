"""Limits switched off in the smallest function that implements each: the test of the limit then fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from brokers.engine.access import acls
from brokers.engine.assembly.admin_server import CONNECTIONS_MAX, AdminServer
from brokers.engine.handlers.auth import mechanisms
from brokers.engine.handlers.common import peer_brokers
from brokers.engine.network import entry_queue
from brokers.engine.network.buffers import FrameBuffers, RentedBuffer
from brokers.engine.partitions import topic_bounds
from brokers.engine.scheduling.fair_turns import FairTurns, InstanceTurns, QueuedWork, TenantTurns
from brokers.native import finder
from tests.unit.brokers.engine.access import test_acls
from tests.unit.brokers.engine.handlers import test_peer_brokers, test_sasl_routes
from tests.unit.brokers.engine.handlers.test_peer_brokers import Cluster, cluster  # noqa: F401 (a fixture)
from tests.unit.brokers.engine.handlers.test_sasl_routes import SaslHouse, overrides, sasl  # noqa: F401 (fixtures)
from tests.unit.brokers.engine.network import test_buffers, test_entry_queue, test_fair_turns
from tests.unit.brokers.engine.partitions import test_topic_config
from tests.unit.brokers.engine.telemetry import test_admin_http

pytestmark = pytest.mark.skipif(finder.is_installed(), reason="compiled modules are patched by nobody")

SwitchOff = Callable[[pytest.MonkeyPatch], None]
Refused = (AssertionError, ConnectionError, TimeoutError)


def woken_work_does_not_queue(patch: pytest.MonkeyPatch) -> None:
    def at_once(turns: InstanceTurns, _soon: Any, work: Callable[[], object]) -> QueuedWork:
        result = QueuedWork(turns, work)
        result.on_turn()
        return result

    patch.setattr(InstanceTurns, "schedule", at_once)


def announced_bytes_count(patch: pytest.MonkeyPatch) -> None:
    rent = FrameBuffers.rent

    def rented(buffers: FrameBuffers, size: int, owner: object) -> RentedBuffer | None:
        buffer = rent(buffers, size, owner)
        if buffer is None or not buffers.has_room(buffer, size, owner):
            return None
        buffers.charge_received(buffer, size, owner)
        return buffer

    patch.setattr(FrameBuffers, "rent", rented)


def owners_have_no_floor(patch: pytest.MonkeyPatch) -> None:
    fits = FrameBuffers._is_within_limits

    def without_floor(buffers: FrameBuffers, *arguments: Any) -> bool:
        buffers._owner_bytes_min = 0
        return fits(buffers, *arguments)

    patch.setattr(FrameBuffers, "_is_within_limits", without_floor)


def instances_are_their_own_tenants(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FairTurns, "register_instance", lambda turns, tenant_id: TenantTurns(tenant_id))


def open_instances_are_administered_by_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(acls, "_open_operations", lambda resource_type: acls.ALL_OPERATIONS)


def small_segments_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(topic_bounds, "segment_bytes", lambda topic, defaults, configured_bytes: configured_bytes)


def addresses_share_one_line(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(entry_queue, "network_of", lambda address: "")


def an_open_instance_is_administered_by_rules() -> None:
    check: Any = test_acls.test_index_and_rules_agree_about_the_cluster
    check.hypothesis.inner_test(given=[], everyone=True, has_rule=False)


@pytest.mark.parametrize(
    ("switch_off", "check"),
    [
        (
            woken_work_does_not_queue,
            test_fair_turns.test_a_thousand_pieces_of_work_that_one_event_woke_are_done_in_many_rounds,
        ),
        (
            announced_bytes_count,
            lambda: test_buffers.test_an_announced_frame_that_does_not_arrive_takes_no_memory(100_000_000),
        ),
        (owners_have_no_floor, test_buffers.test_each_owner_has_room_for_the_largest_message_whatever_others_have),
        (
            instances_are_their_own_tenants,
            test_fair_turns.test_eight_instances_that_each_stay_below_the_bound_queue_as_one,
        ),
        (
            instances_are_their_own_tenants,
            test_fair_turns.test_eight_instances_of_a_tenant_are_served_as_long_as_one_of_another,
        ),
        (open_instances_are_administered_by_all, an_open_instance_is_administered_by_rules),
        (small_segments_count, test_topic_config.test_the_parsed_view_follows_topic_over_broker_over_default),
        (addresses_share_one_line, test_entry_queue.test_one_address_after_the_other_comes_in),
    ],
    ids=["N1 turns", "H1 announced", "H1 floor", "H3 below", "H3 served", "H5", "M2", "M5"],
)
def test_a_check_fails_without_the_limit_that_it_guards(
    switch_off: SwitchOff, check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    check()
    switch_off(monkeypatch)
    with pytest.raises(AssertionError):
        check()


async def holds(check: Callable[[], Awaitable[None]]) -> bool:
    try:
        await check()
    except Refused:
        return False
    return True


@pytest.mark.parametrize("call", ["report_flow", "allot_storage"])
async def test_without_certificates_being_asked_another_process_speaks_for_a_broker(
    cluster: Cluster,  # noqa: F811
    call: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> Awaitable[None]:
        return test_peer_brokers.test_no_other_process_speaks_for_a_broker(cluster, getattr(Cluster, call))

    assert await holds(check)
    monkeypatch.setattr(peer_brokers, "peer_error", lambda services, principal, broker_id, broker_epoch: 0)
    assert not await holds(check)


async def test_without_one_function_for_all_salts_the_first_answer_names_users(
    sasl: SaslHouse,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> Awaitable[None]:
        return test_sasl_routes.test_the_first_answer_does_not_tell_whether_there_is_such_a_user(sasl, "carol", 1)

    assert await holds(check)
    monkeypatch.setattr(mechanisms, "scram_salt", lambda instance_id, name, mechanism: b"with a key of its own")
    assert not await holds(check)


async def test_without_taking_places_away_silent_connections_keep_others_from_the_admin_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check() -> Awaitable[None]:
        return test_admin_http.test_connections_that_ask_nothing_keep_nobody_out(b"", CONNECTIONS_MAX)

    assert await holds(check)
    monkeypatch.setattr(AdminServer, "_make_room", lambda server: len(server._open) < CONNECTIONS_MAX)
    assert not await holds(check)
