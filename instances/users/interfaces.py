"""Users of an instance, which are stored in ZooKeeper only, as an interface that `brokers` implements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from instances.interfaces import BrokerUnresponsive
from tenants.cached_values import cacheable
from tenants.interfaces import Interface

# An `expires_at_ms` that removes the expiry.
NEVER = -1


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class SecretDescription:
    """One of a user's passwords, without the password. `last_used_at_ms` is None if no use is known."""

    id: str
    created_at_ms: int
    last_used_at_ms: int | None
    mechanisms: tuple[str, ...]


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class UserDescription:
    """A user as brokers describe it: its last use on any broker, and its connections on all of them."""

    name: str
    superuser: bool
    disabled: bool
    expires_at_ms: int | None
    created_at_ms: int
    last_used_at_ms: int | None
    connections: int
    secrets: tuple[SecretDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserList:
    """Users of an instance. Uses and connections on unresponsive brokers are missing."""

    users: tuple[UserDescription, ...]
    silent: tuple[BrokerUnresponsive, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSecret:
    """A new password of a user. Brokers get its SCRAM credential, not the password."""

    id: str
    password: str = field(repr=False)


class Presence(Enum):
    """Precondition of a change on the existence of the user."""

    EITHER = 0
    REQUIRED = 1
    FORBIDDEN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class UserChange:
    """A change of one user; None leaves a value unchanged. `expires_at_ms` may be `NEVER`."""

    name: str
    presence: Presence = Presence.REQUIRED
    is_deleted: bool = False
    superuser: bool | None = None
    disabled: bool | None = None
    expires_at_ms: int | None = None
    removed_secrets: tuple[str, ...] = ()
    added_secrets: tuple[NewSecret, ...] = ()


class UserAdminClient(Protocol):
    """Admin client for users, as the instance's owner.

    All methods raise `tenants.errors.Unavailable` if no broker answers in time; a change raises the brokers' refusal.
    """

    def users(self, instance_id: str, names: Sequence[str] | None = None) -> UserList:
        """Returns all users, or those with these names that exist, in the order of names."""
        ...

    def user(self, instance_id: str, name: str) -> UserDescription:
        """Returns one user. Raises `NotFound`."""
        ...

    def change(self, instance_id: str, change: UserChange, *, validate_only: bool) -> None: ...


user_admin_client: Interface[UserAdminClient] = Interface("instances.users.interfaces.user_admin_client")
