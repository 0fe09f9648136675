"""Memory of requests that are under way, by tenant: all instances of a tenant share one limit and one place."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.network.buffers import (
    MINIMA_PER_TENANT,
    RENTED_BYTES_MAX,
    RENTED_BYTES_MIN,
    RENTED_BYTES_PER_OWNER_MAX,
    RENTED_BYTES_PER_OWNER_MIN,
    RENTED_BYTES_PER_TENANT_MAX,
    UNREAD_BYTES_PER_INSTANCE_MAX,
    UNREAD_BYTES_PER_TENANT_MAX,
    FrameBuffers,
    RentedBuffer,
    UnreadBytes,
)

INSTANCES = [f"ins-{number}" for number in range(200)]


@dataclass(eq=False)
class Waiter:
    """A connection that waits for memory and counts how often it gets some."""

    woken: int = 0

    def on_memory(self) -> None:
        self.woken += 1


def with_tenants(owners: dict[str, str]) -> FrameBuffers:
    buffers = FrameBuffers()
    for owner, tenant in owners.items():
        buffers.assign(owner, tenant)
    return buffers


def fill(buffers: FrameBuffers, owners: list[str]) -> int:
    """Rents buffers for each owner in turn until none gets another one; returns their total size in bytes."""
    open_owners, rented_bytes = list(owners), 0
    while open_owners:
        for owner in tuple(open_owners):
            if buffers.rent(RENTED_BYTES_MIN, owner) is None:
                open_owners.remove(owner)
            else:
                rented_bytes += RENTED_BYTES_MIN
    return rented_bytes


def test_two_hundred_instances_of_a_tenant_have_the_memory_of_four() -> None:
    buffers = with_tenants(dict.fromkeys(INSTANCES, "hostile") | {"ins-neighbour": "honest"})

    assert fill(buffers, INSTANCES) == RENTED_BYTES_PER_TENANT_MAX == 4 * RENTED_BYTES_PER_OWNER_MAX
    assert fill(buffers, ["ins-neighbour"]) == RENTED_BYTES_PER_OWNER_MAX


def test_a_tenant_leaves_free_as_much_as_it_has() -> None:
    owners = {f"ins-{tenant}-{number}": f"tenant-{tenant}" for tenant in range(8) for number in range(8)}
    buffers = with_tenants(owners | {"ins-neighbour": "honest"})

    for tenant in range(8):
        fill(buffers, [owner for owner, of in owners.items() if of == f"tenant-{tenant}"])

    assert buffers.rented_bytes <= RENTED_BYTES_MAX
    assert fill(buffers, ["ins-neighbour"]) >= RENTED_BYTES_PER_OWNER_MIN


def test_four_instances_of_a_tenant_have_their_minimum_while_other_tenants_use_all_memory() -> None:
    buffers = with_tenants(dict.fromkeys(INSTANCES, "tenant"))
    buffers.charge(RENTED_BYTES_MAX, "others")

    assert fill(buffers, INSTANCES) == MINIMA_PER_TENANT * RENTED_BYTES_PER_OWNER_MIN


def test_memory_that_one_instance_frees_goes_to_a_waiting_instance_of_its_tenant() -> None:
    buffers = with_tenants(dict.fromkeys(INSTANCES[:8], "tenant"))
    held = buffers.rent(RENTED_BYTES_MIN, INSTANCES[0])
    assert held is not None
    fill(buffers, INSTANCES[:7])
    waiters = Waiter(), Waiter()
    for waiter in waiters:
        buffers.await_memory(INSTANCES[7], waiter)

    buffers.return_buffer(held, INSTANCES[0])

    assert [waiter.woken for waiter in waiters] == [1, 0]
    assert buffers.missing_bytes == 0, "no other tenant is asked to free memory"


def test_the_oldest_request_of_each_instance_completes_beyond_the_limit_of_the_tenant() -> None:
    buffers = with_tenants(dict.fromkeys(INSTANCES[:8], "tenant"))
    halves = {owner: buffers.rent(4 * RENTED_BYTES_MIN, owner) for owner in INSTANCES[:8]}
    fill(buffers, INSTANCES[:8])

    for owner, buffer in halves.items():
        assert buffer is not None
        assert buffers.has_room(buffer, 4 * RENTED_BYTES_MIN, owner)


def test_an_instance_takes_its_memory_along_to_another_tenant() -> None:
    buffers = with_tenants({"ins-a": "before", "ins-b": "before", "ins-c": "after"})
    for owner, size_bytes in (("ins-a", 5), ("ins-b", 7), ("ins-c", 11)):
        buffers.charge(size_bytes, owner)

    buffers.assign("ins-a", "after")
    assert [buffers.tenant_rented_bytes(owner) for owner in ("ins-a", "ins-b", "ins-c")] == [16, 7, 16]
    buffers.assign("ins-c", None)
    assert [buffers.tenant_rented_bytes(owner) for owner in ("ins-a", "ins-b", "ins-c")] == [5, 7, 11]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.sampled_from(["rent", "give back", "move"]))))
def test_a_tenant_always_has_the_sum_of_its_instances(steps: list[tuple[int, int, str]]) -> None:
    buffers = FrameBuffers()
    tenants: dict[str, str] = {}
    held: dict[str, list[RentedBuffer]] = {}
    for number, tenant_number, act in steps:
        owner, tenant = f"ins-{number}", f"tenant-{tenant_number}"
        if act == "move":
            buffers.assign(owner, tenant)
            tenants[owner] = tenant
        elif act == "rent":
            buffer = buffers.rent(RENTED_BYTES_MIN, owner)
            assert buffer is not None
            held.setdefault(owner, []).append(buffer)
        elif held.get(owner):
            buffers.return_buffer(held[owner].pop(), owner)
        for one, of in tenants.items():
            together = [other for other, other_of in tenants.items() if other_of == of]
            assert buffers.tenant_rented_bytes(one) == sum(buffers.owner_rented_bytes(other) for other in together)


def test_half_sent_small_requests_of_one_tenant_leave_others_their_reading_ahead() -> None:
    of_all = UnreadBytes()
    tenant = UnreadBytes(of_all, UNREAD_BYTES_PER_TENANT_MAX)
    hostile = [UnreadBytes(tenant, UNREAD_BYTES_PER_INSTANCE_MAX) for _ in range(5)]
    neighbour = UnreadBytes(UnreadBytes(of_all, UNREAD_BYTES_PER_TENANT_MAX), UNREAD_BYTES_PER_INSTANCE_MAX)

    for unread in hostile:
        unread.add(UNREAD_BYTES_PER_INSTANCE_MAX)

    assert all(unread.is_over_limit for unread in hostile)
    assert not neighbour.is_over_limit
    hostile[0].move_to(UnreadBytes(of_all, UNREAD_BYTES_PER_TENANT_MAX))
    assert [unread.is_over_limit for unread in hostile] == [False] * 5
    assert of_all.count == 5 * UNREAD_BYTES_PER_INSTANCE_MAX
