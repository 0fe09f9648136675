"""Authentication of clients by token: recently proven tokens, and requests to refresh key sets. Configurations are in
the cluster metadata.
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

# Requests a refresh of the instance's key set from the control plane.
RequestKeys = Callable[[str], Awaitable[object]]
# A token names no user before it is verified.
_NOBODY: Final = None


class SharedWithPasswords(Protocol):
    """The hashing thread, its permit and the limits of attempts; implemented by `authentication.Authentication`."""

    loop: asyncio.AbstractEventLoop
    hashing_permits: Permits
    hasher: Executor

    def check_attempt(self, instance_id: str, name: str | None, address: Address) -> None: ...

    def begin_attempt(self, instance_id: str, name: str | None, address: Address) -> None: ...

    def was_right(self, instance_id: str, name: str | None, address: Address, *, was_counted: bool) -> None: ...


class TokenAuthentication:
    """Token authentication of one broker. `request_keys` is set by the assembly."""

    def __init__(self, shared: SharedWithPasswords, clock: Clock, current: CurrentImage, key: bytes) -> None:
        self.proven = ProvenTokens(key)
        self.request_keys: RequestKeys | None = None
        self._shared = shared
        self._clock = clock
        self._current = current
        self._verifier = TokenVerifier()
        # Monotonic time of the last request for keys, by instance.
        self._requested_ms: dict[str, int] = {}
        self._requests: set[asyncio.Task[None]] = set()

    def configuration(self, instance_id: str) -> OAuthDocument | None:
        """Returns the current OAuth configuration of an instance; None if it accepts no tokens."""
        return self._current.image.oauth.of_instance(instance_id).get(CONFIGURATION)

    def terms(self, instance_id: str) -> OAuthTerms | None:
        document = self.configuration(instance_id)
        return None if document is None else document.terms

    def check_attempt(self, instance_id: str, address: Address) -> None:
        """Checks that the attempt is allowed.

        Raises:
            AttemptRefused: too many attempts failed; the token is not checked.
        """
        self._shared.check_attempt(instance_id, _NOBODY, address)

    def begin_attempt(self, instance_id: str, address: Address) -> None:
        """Counts an attempt as failed until it succeeds."""
        self._shared.begin_attempt(instance_id, _NOBODY, address)

    def find_proven(self, instance_id: str, token: str, address: Address) -> VerifiedToken | None:
        """Returns the result of an earlier proof of the token.

        Raises:
            AttemptRefused: the token is not checked.
        """
        self.check_attempt(instance_id, address)
        document = self.configuration(instance_id)
        return None if document is None else self.proven.find(token, document, self._clock.now_ms())

    async def prove(self, instance_id: str, token: str, address: Address) -> VerifiedToken:
        """Verifies a token. Waits for its turn, and takes some tenths of a millisecond of a thread.

        Raises:
            TokenRefused: the token is invalid.
            QueueFull: too many connections of the instance wait.
            AttemptRefused: too many attempts failed; this one was not checked.
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
                    self._ask_for_keys(instance_id)
                raise
        self._shared.was_right(instance_id, _NOBODY, address, was_counted=True)
        self.proven.note(token, document, verified)
        return verified

    def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        if before.oauth is not after.oauth:
            for instance_id in [id for id in self._requested_ms if not after.oauth.of_instance(id)]:
                del self._requested_ms[instance_id]

    def _ask_for_keys(self, instance_id: str) -> None:
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
        # The next token with an unknown key requests the keys again.
        return
