"""Users as instances needs them of the app above, as a port `brokers` plugs. They live in ZooKeeper alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from instances.interfaces import BrokerUnresponsive
from tenants.cached_values import cacheable
from tenants.interfaces import Interface

# Instead of an instant: whoever had an expiry has none any more.
NEVER = -1


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class SecretDescription:
    """One of a user's passwords; nobody keeps the password itself. `last_used_at_ms` None: not known to be used."""

    id: str
    created_at_ms: int
    last_used_at_ms: int | None
    mechanisms: tuple[str, ...]


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True)
class UserDescription:
    """A user as the brokers describe it: use is the newest of all brokers', connections are their sum."""

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
    """Users of an instance. Uses and connections of a silent broker are missing."""

    users: tuple[UserDescription, ...]
    silent: tuple[BrokerUnresponsive, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSecret:
    """A password to be given to a user. Brokers are told what proves it, not the password."""

    id: str
    password: str = field(repr=False)


class Presence(Enum):
    """Whether the user must be there already for a change to be made."""

    EITHER = 0
    REQUIRED = 1
    FORBIDDEN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class UserChange:
    """What becomes of one user; None leaves as it is. `expires_at_ms` may be `NEVER`."""

    name: str
    presence: Presence = Presence.REQUIRED
    is_deleted: bool = False
    superuser: bool | None = None
    disabled: bool | None = None
    expires_at_ms: int | None = None
    removed_secrets: tuple[str, ...] = ()
    added_secrets: tuple[NewSecret, ...] = ()


class UserAdminClient(Protocol):
    """The admin client to users, as the instance's owner.

    All raise `tenants.errors.Unavailable` when no broker answers in time; a change raises what the refusal means.
    """

    def users(self, instance_id: str) -> UserList:
        """All users, by name."""
        ...

    def user(self, instance_id: str, name: str) -> UserDescription:
        """Raises `NotFound`."""
        ...

    def change(self, instance_id: str, change: UserChange, *, validate_only: bool) -> None: ...


user_admin_client: Interface[UserAdminClient] = Interface("instances.users.interfaces.user_admin_client")
