"""Authentication state of a broker's instances: failed attempts, proven passwords, open logins, last use of secrets.
The state ends with the process; users themselves are in the cluster metadata.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from brokers.contract import paths
from brokers.contract.oauth import CONFIGURATION, KEY_REQUEST_INTERVAL_MS, OAuthDocument, OAuthTerms
from brokers.contract.users import SCRAM_SHA_256, USER_NAME_BYTES_MAX, Secret, UserDocument, scram_salt
from brokers.engine.access import passwords
from brokers.engine.access.attempts import FailedAttempts
from brokers.engine.access.authorizer import Address
from brokers.engine.access.tokens import ProvenTokens, TokenRefused, TokenVerifier, UnknownKey, VerifiedToken
from brokers.engine.clock import Clock
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.handlers.logins import Logins
from brokers.engine.scheduling.accounts import Ownership
from brokers.engine.scheduling.permits import Permits

# Requests a refresh of the instance's key set from the control plane.
RequestKeys = Callable[[str], Awaitable[object]]
# A token names no user before it is verified.
NOBODY_YET: Final = None
# Connections of one instance that may wait for the check of a password or a token.
QUEUED_PER_INSTANCE_MAX: Final = 1_000
# The hashing thread yields the processor to the event loop.
HASHING_NICENESS: Final = 10
_PROVEN_KEY_BYTES: Final = 32


@dataclass(slots=True)
class AuthenticationCounts:
    """Counters of one instance since the start. `refused` attempts were not checked (`access.attempts`)."""

    succeeded: int = 0
    failed: int = 0
    refused: int = 0


class _InstanceState:
    __slots__ = ("attempts", "counts", "last_used_ms")

    def __init__(self) -> None:
        self.attempts = FailedAttempts()
        self.counts = AuthenticationCounts()
        # Wall time of the last sign-in, by user and secret.
        self.last_used_ms: dict[str, dict[str, int]] = {}


class Authentication:
    """Authentication state of one broker. `max_reauth_ms` is `connections.max.reauth.ms`, 0 without a limit."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, current: CurrentImage) -> None:
        self.loop = loop
        self.clock = clock
        self.max_reauth_ms = 0
        self.logins = Logins(loop, clock.now_ms)
        self.proven = passwords.ProvenPasswords(os.urandom(_PROVEN_KEY_BYTES))
        # One password or token is checked at a time, and tenants take turns.
        self.hashing_permits = Permits(1, Ownership(current.tenant_of), queued_per_instance_max=QUEUED_PER_INSTANCE_MAX)
        self.hasher: Executor = ThreadPoolExecutor(1, "password", _lower_priority)
        self._current = current
        self._by_instance: dict[str, _InstanceState] = {}
        self.tokens = TokenAuthentication(self, clock, current, os.urandom(_PROVEN_KEY_BYTES))

    # -- users --------------------------------------------------------------------------------------------------------

    def usable_user(self, instance_id: str, name: str) -> UserDocument | None:
        """Returns the user if it may sign in, by the current metadata."""
        user = self._current.image.users.of_instance(instance_id).get(paths.sanitise(name))
        return user if user is not None and user.is_usable(self.clock.now_ms()) else None

    def is_shut_out(self, instance_id: str, name: str) -> bool:
        """True if the user exists and may not sign in, even with a valid password or token."""
        user = self._current.image.users.of_instance(instance_id).get(paths.sanitise(name))
        return user is not None and not user.is_usable(self.clock.now_ms())

    def has_user(self, instance_id: str, name: str) -> bool:
        """True if the user exists, usable or not."""
        # No user has a longer name, and to sanitise it takes time.
        if len(name) > USER_NAME_BYTES_MAX:
            return False
        return paths.sanitise(name) in self._current.image.users.of_instance(instance_id)

    async def prove_password(self, instance_id: str, name: str, password: str, address: Address) -> Secret | None:
        """Returns the user's secret that this password proves, None if it proves none. Waits for the turn of the
        connection, and takes some milliseconds of a thread.

        Raises:
            QueueFull: too many connections of the instance wait.
            AttemptRefused: too many attempts failed; this one was not checked.
        """
        async with self.hashing_permits.hold(instance_id):
            # In the meantime the same password may have been proven, or too many attempts may have failed.
            secret = self.find_proven(instance_id, name, password, address)
            if secret is not None:
                return secret
            self.begin_attempt(instance_id, name, address)
            user = self.usable_user(instance_id, name)
            secret = await self.loop.run_in_executor(
                self.hasher,
                passwords.find_matching_secret,
                password,
                () if user is None else passwords.comparisons_of(user),
                scram_salt(instance_id, name, SCRAM_SHA_256),
            )
        if secret is not None and user is not None:
            self.record_success(instance_id, name, address, was_counted=True)
            self.proven.record(instance_id, user, secret, password)
        return secret

    def find_proven(self, instance_id: str, name: str, password: str, address: Address) -> Secret | None:
        """Returns the user's secret that this password proved before, None if that is not cached.

        Raises:
            AttemptRefused: too many attempts failed; this one was not checked.
        """
        self.check_attempt(instance_id, name, address)
        user = self.usable_user(instance_id, name)
        secret = None if user is None else self.proven.find(instance_id, user, password)
        if secret is not None:
            self.record_success(instance_id, name, address, was_counted=False)
        return secret

    # -- attempts -----------------------------------------------------------------------------------------------------

    def check_attempt(self, instance_id: str, name: str | None, address: Address) -> None:
        """Checks that the attempt is allowed.

        Raises:
            AttemptRefused: too many attempts failed.
        """
        state = self._state_of(instance_id)
        delay_ms = state.attempts.take_refusal_delay_ms(name, address, self.clock.monotonic_ms())
        if delay_ms:
            state.counts.refused += 1
            raise AttemptRefused(delay_ms)

    def begin_attempt(self, instance_id: str, name: str | None, address: Address) -> None:
        """Counts an attempt as failed until it succeeds, so that it also counts if its client disconnects."""
        self._state_of(instance_id).attempts.record_failure(name, address, self.clock.monotonic_ms())

    def record_failure(self, instance_id: str) -> None:
        """Counts a failed authentication."""
        self._state_of(instance_id).counts.failed += 1

    def record_success(self, instance_id: str, name: str | None, address: Address, *, was_counted: bool) -> None:
        """Records a correct password or token. `was_counted` is True if `begin_attempt` was called for it."""
        self._state_of(instance_id).attempts.record_success(name, address, was_counted=was_counted)

    def record_sign_in(self, instance_id: str, name: str, secret: Secret | None) -> None:
        """Records a sign-in; `secret` is None for a token or a client certificate."""
        state = self._state_of(instance_id)
        state.counts.succeeded += 1
        if secret is not None:
            state.last_used_ms.setdefault(name, {})[secret.id] = self.clock.now_ms()

    def counts(self) -> Iterator[tuple[str, AuthenticationCounts]]:
        """Yields the counters of each instance, in the order of their ids."""
        for instance_id, state in sorted(self._by_instance.items(), key=lambda item: item[0]):
            yield instance_id, state.counts

    def last_used_ms(self, instance_id: str, name: str) -> dict[str, int]:
        """Returns the wall time of the last use of each secret of a user, by secret id."""
        state = self._by_instance.get(instance_id)
        return {} if state is None else state.last_used_ms.get(name, {})

    def _state_of(self, instance_id: str) -> _InstanceState:
        state = self._by_instance.get(instance_id)
        if state is None:
            state = self._by_instance[instance_id] = _InstanceState()
        return state

    # -- expiry -------------------------------------------------------------------------------------------------------

    def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        """Closes revoked logins, and drops the state of deleted users, secrets and instances."""
        self.logins.on_image(before, after)
        self.tokens.on_image(before, after)
        if before.users is not after.users:
            for instance_id, state in self._by_instance.items():
                users = after.users.of_instance(instance_id)
                if users is not before.users.of_instance(instance_id):
                    self._forget_users(instance_id, state, users)
        if before.instances is not after.instances:
            for instance_id in [id for id in self._by_instance if id not in after.instances]:
                del self._by_instance[instance_id]

    def _forget_users(self, instance_id: str, state: _InstanceState, users: Mapping[str, UserDocument]) -> None:
        """Drops the state of deleted users and of deleted secrets."""
        for name in tuple(state.last_used_ms):
            user = users.get(paths.sanitise(name))
            if user is None:
                del state.last_used_ms[name]
                self.proven.forget(instance_id, name)
            else:
                current_ids = {secret.id for secret in user.secrets}
                for secret_id in state.last_used_ms[name].keys() - current_ids:
                    del state.last_used_ms[name][secret_id]

    def expire(self) -> None:
        """Ends expired logins; called every `logins.EXPIRY_INTERVAL_S`."""
        self.logins.expire(lambda instance_id: self._current.image.users.of_instance(instance_id).get)

    def close(self) -> None:
        self.hasher.shutdown(wait=False, cancel_futures=True)


class TokenAuthentication:
    """Authentication by token: recently proven tokens, and requests to refresh key sets. Configurations are in the
    cluster metadata. `shared` has the hashing thread, its permit and the limits of attempts; the assembly sets
    `request_keys`.
    """

    def __init__(self, shared: Authentication, clock: Clock, current: CurrentImage, key: bytes) -> None:
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

    def find_proven(self, instance_id: str, token: str, address: Address) -> VerifiedToken | None:
        """Returns the result of an earlier verification of the token, None if that is not cached.

        Raises:
            AttemptRefused: too many attempts failed; this one was not checked.
        """
        self._shared.check_attempt(instance_id, NOBODY_YET, address)
        document = self.configuration(instance_id)
        return None if document is None else self.proven.find(token, document, self._clock.now_ms())

    async def prove(self, instance_id: str, token: str, address: Address) -> VerifiedToken:
        """Verifies a token. Waits for the turn of the connection, and takes some tenths of a millisecond of a thread.

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
            self._shared.begin_attempt(instance_id, NOBODY_YET, address)
            now_ms = self._clock.now_ms()
            try:
                verified = await self._shared.loop.run_in_executor(
                    self._shared.hasher, self._verifier.verify, token, document, now_ms
                )
            except UnknownKey:
                if document.is_fetched:
                    self._request_keys(instance_id)
                raise
        self._shared.record_success(instance_id, NOBODY_YET, address, was_counted=True)
        self.proven.record(token, document, verified)
        return verified

    def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        if before.oauth is not after.oauth:
            for instance_id in [id for id in self._requested_ms if not after.oauth.of_instance(id)]:
                del self._requested_ms[instance_id]

    def _request_keys(self, instance_id: str) -> None:
        now_ms = self._clock.monotonic_ms()
        last_requested_ms = self._requested_ms.get(instance_id)
        if self.request_keys is None or (
            last_requested_ms is not None and now_ms - last_requested_ms < KEY_REQUEST_INTERVAL_MS
        ):
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


class AttemptRefused(Exception):
    """Too many failed attempts. `delay_ms` is the delay of the response."""

    def __init__(self, delay_ms: int) -> None:
        super().__init__("too many failed attempts; try again later")
        self.delay_ms = delay_ms


def _lower_priority() -> None:
    """Lowers the priority of the calling thread, if the operating system supports that."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), HASHING_NICENESS)
