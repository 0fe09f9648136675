"""Memory of the upstream's responses, from their announcement until they are encoded for the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from brokers.engine.scheduling.permits import DecodeMemoryLimiter, Permit

# Maximum bytes of responses to one instance, and to all instances of a tenant, that one node has in memory at the same
# time; a single response may be longer. The forms of a response together take up to four times its bytes.
RESPONSE_BYTES_PER_INSTANCE_MAX: Final = 33_554_432
RESPONSE_BYTES_PER_TENANT_MAX: Final = 67_108_864


class ResponsePermit(NamedTuple):
    """Permit of one response to use memory of its instance and of its tenant. `release` may be repeated."""

    of_instance: Permit
    of_tenant: Permit

    def release(self) -> None:
        self.of_tenant.release()
        self.of_instance.release()


class ResponseMemory:
    """Limits the memory of responses; `tenant_of` returns the tenant's id of an instance's. Responses of one tenant do
    not wait for those of another.
    """

    def __init__(
        self,
        tenant_of: Callable[[str], str],
        per_instance_bytes_max: int = RESPONSE_BYTES_PER_INSTANCE_MAX,
        per_tenant_bytes_max: int = RESPONSE_BYTES_PER_TENANT_MAX,
    ) -> None:
        self._tenant_of = tenant_of
        self._by_instance = DecodeMemoryLimiter(per_instance_bytes_max)
        self._by_tenant = DecodeMemoryLimiter(per_tenant_bytes_max)

    async def acquire(self, instance_id: str, size_bytes: int) -> ResponsePermit:
        """Waits until there is room for a response of `size_bytes`: first of its instance, then of its tenant, so that
        an instance waits in the tenant's queue with its own limit at most.
        """
        of_instance = await self._by_instance.acquire(instance_id, size_bytes)
        try:
            of_tenant = await self._by_tenant.acquire(self._tenant_of(instance_id), size_bytes)
        except BaseException:
            of_instance.release()
            raise
        return ResponsePermit(of_instance, of_tenant)
