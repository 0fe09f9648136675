"""Open logins by user, so that connections of a user that may no longer sign in are closed within a second."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from brokers.contract import paths
from brokers.contract.oauth import CONFIGURATION, OAuthTerms
from brokers.contract.users import Secret, UserDocument
from brokers.engine.cluster.image import ClusterImage

# Number of connections that are closed in one turn of the event loop.
CLOSED_PER_TURN_MAX: Final = 25
# Interval of the check for expired users.
EXPIRY_INTERVAL_S: Final = 0.5
REVOKED: Final = "the user may not be here any more"

PLAIN: Final = 0
OAUTHBEARER: Final = 3
# Kafka's limit: earlier re-authentications are answered with ILLEGAL_SASL_STATE.
REAUTHENTICATION_INTERVAL_MS_MIN: Final = 1_000


class Closable(Protocol):
    """A connection; implemented by `network.connection.Connection`."""

    def close(self, reason: str) -> None: ...


class Login:
    """Login of one connection: with a secret of a user, or with a token under the terms of a configuration. `mechanism`
    is PLAIN, OAUTHBEARER, or that of SCRAM as numbered in `contract.users`. `proof` is None for a login by certificate
    (`CertificateLogin`). A `lifetime_ms` of 0 is unlimited.
    """

    __slots__ = (
        "_logins", "_timer", "channel", "instance_id", "lifetime_ms", "mechanism", "reauthenticated_ms", "secret",
        "terms", "user",
    )  # fmt: skip

    def __init__(
        self,
        logins: Logins,
        channel: Closable,
        instance_id: str,
        user: str,
        mechanism: int,
        proof: Secret | OAuthTerms | None,
    ) -> None:
        self._logins = logins
        self._timer: asyncio.TimerHandle | None = None
        # Monotonic time of the last start of a re-authentication.
        self.reauthenticated_ms: int | None = None
        self.lifetime_ms = 0
        self.channel = channel
        self.instance_id = instance_id
        self.user = user
        self.secret = proof if isinstance(proof, Secret) else None
        self.terms = proof if isinstance(proof, OAuthTerms) else None
        self.mechanism = mechanism

    def is_valid(self, user: UserDocument | None, now_ms: int) -> bool:
        """True if the login is still valid. The user of a token need not exist, but must not be disabled or expired."""
        own_secret = self.secret
        if own_secret is None:
            return user is None or user.is_usable(now_ms)
        if user is None or not user.is_usable(now_ms):
            return False
        for secret in user.secrets:
            if secret.id == own_secret.id and secret.created_at_ms == own_secret.created_at_ms:
                matching_mechanisms = {
                    verifier.mechanism for verifier in secret.verifiers if verifier in own_secret.verifiers
                }
                return bool(matching_mechanisms) if self.mechanism == PLAIN else self.mechanism in matching_mechanisms
        return False

    def may_reauthenticate(self, now_ms: int) -> bool:
        """True if the connection may re-authenticate at this monotonic time, which is then recorded."""
        last_started_ms = self.reauthenticated_ms
        if last_started_ms is not None and now_ms - last_started_ms < REAUTHENTICATION_INTERVAL_MS_MIN:
            return False
        self.reauthenticated_ms = now_ms
        return True

    def expire_after(self, lifetime_ms: int, expire: Callable[[], object]) -> None:
        """Calls `expire` after the lifetime, unless the peer re-authenticates or disconnects before."""
        self.cancel_expiry()
        self.lifetime_ms = lifetime_ms
        self._timer = self._logins.loop.call_later(lifetime_ms / 1000, expire)

    def cancel_expiry(self) -> None:
        """Cancels the pending expiry."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Removes the login when its connection has closed."""
        self.cancel_expiry()
        self._logins.remove(self)


class Logins:
    """Open logins of one broker. `now_ms` returns wall time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> None:
        self.loop = loop
        self._now_ms = now_ms
        # By instance and user.
        self._open: dict[str, dict[str, dict[Login, None]]] = {}
        # Wall time at which the users among them expire, by instance and user.
        self._expiring: dict[tuple[str, str], int] = {}
        self._closing: deque[Login] = deque()

    def add(self, login: Login, user: UserDocument | None) -> None:
        """Adds a login. `user` is None if no user has the name that a certificate or a token proved."""
        logins_by_user = self._open.setdefault(login.instance_id, {})
        logins_by_user.setdefault(login.user, {})[login] = None
        if user is not None:
            self._record_expiry(login.instance_id, user)

    def remove(self, login: Login) -> None:
        logins_by_user = self._open.get(login.instance_id, {})
        user_logins = logins_by_user.get(login.user, {})
        user_logins.pop(login, None)
        if not user_logins and login.user in logins_by_user:
            del logins_by_user[login.user]
            self._expiring.pop((login.instance_id, login.user), None)
            if not logins_by_user:
                del self._open[login.instance_id]

    def count(self, instance_id: str, user: str) -> int:
        return len(self._open.get(instance_id, {}).get(user, ()))

    def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        """Closes the connections whose login is invalid after a change of users or of OAuth configurations."""
        if before.oauth is not after.oauth:
            self._revoke_tokens(before, after)
        if before.users is after.users:
            return
        for instance_id, logins_by_user in self._open.items():
            old, new = before.users.of_instance(instance_id), after.users.of_instance(instance_id)
            if old is new:
                continue
            for name in tuple(logins_by_user):
                node = paths.sanitise(name)
                user = new.get(node)
                if user is old.get(node):
                    continue
                self._revoke(instance_id, name, user)
                if user is not None:
                    self._record_expiry(instance_id, user)

    def expire(self, users_of: Callable[[str], Callable[[str], UserDocument | None]]) -> None:
        """Closes connections of expired users. `users_of(id)` returns a function that finds a user by node name."""
        now_ms = self._now_ms()
        for instance_id, name in [key for key, at_ms in self._expiring.items() if at_ms <= now_ms]:
            del self._expiring[instance_id, name]
            self._revoke(instance_id, name, users_of(instance_id)(paths.sanitise(name)))

    def _record_expiry(self, instance_id: str, user: UserDocument) -> None:
        if user.expires_at_ms is None:
            self._expiring.pop((instance_id, user.name), None)
        else:
            self._expiring[instance_id, user.name] = user.expires_at_ms

    def _revoke_tokens(self, before: ClusterImage, after: ClusterImage) -> None:
        """Closes logins by token if the terms changed. A change of the key set closes none: servers replace keys while
        tokens of the old ones are valid.
        """
        for instance_id, logins_by_user in self._open.items():
            document = after.oauth.of_instance(instance_id).get(CONFIGURATION)
            if document is before.oauth.of_instance(instance_id).get(CONFIGURATION):
                continue
            terms = None if document is None else document.terms
            self.close(
                [
                    login
                    for user_logins in logins_by_user.values()
                    for login in user_logins
                    if login.terms is not None and login.terms != terms
                ]
            )

    def _revoke(self, instance_id: str, name: str, user: UserDocument | None) -> None:
        now_ms = self._now_ms()
        user_logins: Iterable[Login] = self._open.get(instance_id, {}).get(name, ())
        self.close([login for login in user_logins if not login.is_valid(user, now_ms)])

    def close(self, invalid_logins: Sequence[Login]) -> None:
        """Closes the connections of these logins, some in each turn of the event loop."""
        if invalid_logins and not self._closing:
            self.loop.call_soon(self._close_some)
        self._closing.extend(invalid_logins)

    def _close_some(self) -> None:
        for _ in range(min(CLOSED_PER_TURN_MAX, len(self._closing))):
            self._closing.popleft().channel.close(REVOKED)
        if self._closing:
            self.loop.call_soon(self._close_some)
