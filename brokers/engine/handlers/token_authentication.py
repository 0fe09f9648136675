"""What a broker keeps about tokens of its instances' clients: those proven lately, and which key sets it wishes to have
fetched again. Configurations are in the cluster's image.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Final, Protocol

from brokers.contract.oauth import CONFIGURATION, KEY_REQUEST_INTERVAL_MS, OAuthDocument, OAuthTerms
from brokers.engine.access.authorizer import Address
from brokers.engine.access.tokens import ProvenTokens, TokenRefused, TokenVerifier, UnknownKey, VerifiedToken
from brokers.engine.clock import Clock
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.scheduling.permits import Permits

# Writes the wish down where the control plane looks.
RequestKeys = Callable[[str], Awaitable[object]]
# It does not say whom it proves before it is verified.
_NOBODY: Final = None


class SharedWithPasswords(Protocol):
    """The thread, its permit and the limits of attempts; `authentication.Authentication` fits."""

    loop: asyncio.AbstractEventLoop
    hashing_permits: Permits
    hasher: Executor

    def check_attempt(self, instance_id: str, name: str | None, address: Address) -> None: ...

    def begin_attempt(self, instance_id: str, name: str | None, address: Address) -> None: ...

    def was_right(self, instance_id: str, name: str | None, address: Address, *, was_counted: bool) -> None: ...


class TokenAuthentication:
    """Of one broker. `request_keys` is plugged by the assembly."""

    def __init__(self, shared: SharedWithPasswords, clock: Clock, current: CurrentImage, key: bytes) -> None:
        self.proven = ProvenTokens(key)
        self.request_keys: RequestKeys | None = None
        self._shared = shared
        self._clock = clock
        self._current = current
        self._verifier = TokenVerifier()
        # By instance: when its keys were asked for, monotonic.
        self._requested_ms: dict[str, int] = {}
        self._requests: set[asyncio.Task[None]] = set()

    def configuration(self, instance_id: str) -> OAuthDocument | None:
        """As the present image has it; None: tokens are not taken."""
        return self._current.image.oauth.of_instance(instance_id).get(CONFIGURATION)

    def terms(self, instance_id: str) -> OAuthTerms | None:
        document = self.configuration(instance_id)
        return None if document is None else document.terms

    def check_attempt(self, instance_id: str, address: Address) -> None:
        """
        Raises:
            AttemptRefused: too many were wrong; nothing is looked at.
        """
        self._shared.check_attempt(instance_id, _NOBODY, address)

    def begin_attempt(self, instance_id: str, address: Address) -> None:
        """As wrong until it is right."""
        self._shared.begin_attempt(instance_id, _NOBODY, address)

    def find_proven(self, instance_id: str, token: str, address: Address) -> VerifiedToken | None:
        """What it was proven to be before.

        Raises:
            AttemptRefused: nothing is looked at.
        """
        self.check_attempt(instance_id, address)
        document = self.configuration(instance_id)
        return None if document is None else self.proven.find(token, document, self._clock.now_ms())

    async def prove(self, instance_id: str, token: str, address: Address) -> VerifiedToken:
        """It waits for its turn, and costs a thread some tenths of a millisecond.

        Raises:
            TokenRefused: it proves nobody.
            QueueFull: too many connections of the instance wait.
            AttemptRefused: too many were wrong; this one was not looked at.
        """
        async with self._shared.hashing_permits.hold(instance_id):
            known = self.find_proven(instance_id, token, address)
            if known is not None:
                return known
            document = self.configuration(instance_id)
            if document is None:
                raise TokenRefused("tokens are not taken here any more")
            self.begin_attempt(instance_id, address)
            now_ms = self._clock.now_ms()
            try:
                verified = await self._shared.loop.run_in_executor(
                    self._shared.hasher, self._verifier.verify, token, document, now_ms
                )
            except UnknownKey:
                if document.is_fetched:
                    self._wish_for_keys(instance_id)
                raise
        self._shared.was_right(instance_id, _NOBODY, address, was_counted=True)
        self.proven.note(token, document, verified)
        return verified

    def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        if before.oauth is not after.oauth:
            for instance_id in [id for id in self._requested_ms if not after.oauth.of_instance(id)]:
                del self._requested_ms[instance_id]

    def _wish_for_keys(self, instance_id: str) -> None:
        now_ms = self._clock.monotonic_ms()
        before_ms = self._requested_ms.get(instance_id)
        if self.request_keys is None or (before_ms is not None and now_ms - before_ms < KEY_REQUEST_INTERVAL_MS):
            return
        self._requested_ms[instance_id] = now_ms
        task = self._shared.loop.create_task(_request(self.request_keys, instance_id))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)


async def _request(request_keys: RequestKeys, instance_id: str) -> None:
    try:
        await request_keys(instance_id)
    except ClusterError:
        # The next token whose key is not known asks again.
        return
