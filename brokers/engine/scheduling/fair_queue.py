"""A queue that shares a resource by tenant, then by instance, in proportion to weights.

Weighted deficit round robin in two levels, after Shreedhar and Varghese. Each tenant is granted a quantum in each round
and served while it has credit; so are the instances of a tenant. The cost of an item is charged when it is known, after
the item was served, so the credit may become negative; later rounds pay the debt. Use of the resource outside the queue
is charged in the same way, and paid before the account is served from the queue. An account that has used less than its
grants is served in the current round, before those that are already queued (the list of new flows of FQ-CoDel, RFC
8290): it waits for the item that is being served, never for a whole round. Serving an item takes a constant number of
steps; after an item that cost many quanta, the rounds in which all accounts are in debt are skipped in one step over
the queued tenants.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
A = TypeVar("A", bound="Account")

UNBOUNDED: Final = sys.maxsize
# Round of an account that was in no rotation yet.
NO_ROUND: Final = -1


class QueueFull(Exception):
    """Raised when an instance has its maximum number of items queued."""


class Account:
    """A member of a rotation: its weight, and the credit it has left."""

    __slots__ = ("credit", "round", "weight")

    def __init__(self, weight: float) -> None:
        assert weight > 0, "an account without weight is never served"
        self.weight = weight
        self.credit = 0.0
        # Last round whose grant it got.
        self.round = NO_ROUND


class Rotation(Generic[A]):
    """Accounts of one level that have something queued, in the order of service."""

    __slots__ = ("_accounts", "_quantum", "_round", "_sparse")

    def __init__(self, quantum: float) -> None:
        self._quantum = quantum
        self._round = 0
        # Accounts that were added without debt and have their grant of the current round; served before `_accounts`.
        self._sparse: deque[A] = deque()
        self._accounts: deque[A] = deque()

    def __len__(self) -> int:
        return len(self._sparse) + len(self._accounts)

    def add(self, account: A) -> None:
        """Adds an account: to the current round while it has some of that round's grant, else to the next one."""
        self.catch_up(account)
        if account.round == self._round and account.credit > 0.0:
            self._sparse.append(account)
            return
        if account.round <= self._round:  # else it left before it was served, and got that grant already
            self._grant(account)
        self._accounts.append(account)

    def catch_up(self, account: A) -> None:
        """Grants an account outside of the rotation the rounds that passed. They pay its debt, but leave it at most one
        grant of credit. A new account gets none: otherwise an account that is created for each item would always be
        served first.
        """
        if account.round == NO_ROUND:
            account.round = self._round
            return
        passed_rounds = self._round - account.round
        if passed_rounds > 0:
            grant = account.weight * self._quantum
            account.credit = min(grant, account.credit + passed_rounds * grant)
            account.round = self._round

    def remove(self, account: A) -> None:
        for accounts in (self._sparse, self._accounts):
            if accounts and accounts[0] is account:
                accounts.popleft()
                return
        (self._sparse if account in self._sparse else self._accounts).remove(account)

    def head(self) -> A:
        """Returns the account to serve next. There must be one."""
        accounts, sparse = self._accounts, self._sparse
        while sparse:
            account = sparse[0]
            if account.credit > 0.0:
                return account
            self._grant(sparse.popleft())
            accounts.append(account)
        account = accounts[0]
        remaining = len(accounts)
        while account.credit <= 0.0:
            if not remaining:
                self._pass_rounds()
            remaining -= 1
            self._grant(account)
            accounts.rotate(-1)
            account = accounts[0]
        self._round = account.round
        return account

    def _grant(self, account: A) -> None:
        """Grants an account its next round."""
        account.credit += account.weight * self._quantum
        account.round += 1

    def _pass_rounds(self) -> None:
        """Grants all accounts the rounds in which none of them would be served."""
        rounds = int(min(-account.credit / (account.weight * self._quantum) for account in self._accounts))
        for account in self._accounts:
            account.credit += rounds * account.weight * self._quantum
            account.round += rounds


class TenantAccount(Account):
    """A tenant: one account, whatever the number of its instances."""

    __slots__ = ("instances", "key")

    def __init__(self, quantum: float, key: str = "", weight: float = 1.0) -> None:
        super().__init__(weight)
        self.key = key
        self.instances: Rotation[InstanceQueue[Any]] = Rotation(quantum)

    @property
    def is_queued(self) -> bool:
        return len(self.instances) > 0


class InstanceQueue(Account, Generic[T]):
    """Items of one instance, in the order of their arrival."""

    __slots__ = ("items", "key", "tenant")

    def __init__(self, tenant: TenantAccount, key: str = "", weight: float = 1.0) -> None:
        super().__init__(weight)
        self.key = key
        self.tenant = tenant
        self.items: OrderedDict[T, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.items)


class FairQueue(Generic[T]):
    """Queued items of all instances. Serve one with `next_instance`, `pop` and `charge`."""

    __slots__ = ("_items_max", "_tenants")

    def __init__(self, quantum: float, items_per_instance_max: int = UNBOUNDED) -> None:
        self._items_max = items_per_instance_max
        self._tenants: Rotation[TenantAccount] = Rotation(quantum)

    def __len__(self) -> int:
        """Returns the number of tenants with queued items."""
        return len(self._tenants)

    def enqueue(self, instance: InstanceQueue[T], item: T) -> None:
        """Appends an item, unless it is already queued. Raises `QueueFull` if the instance has its maximum queued."""
        if item in instance.items:
            return
        if len(instance.items) >= self._items_max:
            raise QueueFull
        if not instance.items:
            self._add(instance)
        instance.items[item] = None

    def cancel(self, instance: InstanceQueue[T], item: T) -> bool:
        """Removes a queued item. Returns False if it is not queued."""
        if item not in instance.items:
            return False
        del instance.items[item]
        if not instance.items:
            self._remove(instance)
        return True

    def next_instance(self) -> InstanceQueue[T] | None:
        """Returns the instance to serve next, None if nothing is queued."""
        if not len(self._tenants):
            return None
        return self._tenants.head().instances.head()

    def pop(self, instance: InstanceQueue[T]) -> T:
        """Removes and returns the oldest item of the instance."""
        item = instance.items.popitem(last=False)[0]
        if not instance.items:
            self._remove(instance)
        return item

    def charge(self, instance: InstanceQueue[T], cost: float) -> None:
        """Charges the instance and its tenant for their use, from the queue or outside of it."""
        tenant = instance.tenant
        if not instance.items:
            tenant.instances.catch_up(instance)
            if not len(tenant.instances):
                self._tenants.catch_up(tenant)
        instance.credit -= cost
        tenant.credit -= cost

    def is_in_debt(self, tenant: TenantAccount, allowance: float) -> bool:
        """True if others are queued, and the tenant, which is not, has more debt than `allowance`."""
        if not len(self._tenants) or tenant.is_queued:
            return False
        self._tenants.catch_up(tenant)
        return tenant.credit < -allowance

    def set_weight(self, account: Account, weight: float) -> None:
        """Changes the weight of an account from its next round on."""
        assert weight > 0, "an account without weight is never served"
        account.weight = weight

    def suspend(self, instance: InstanceQueue[T]) -> None:
        """Keeps the queued items of the instance from being served until `resume`."""
        self._remove(instance)

    def resume(self, instance: InstanceQueue[T]) -> None:
        """Adds a suspended instance, with its items, to the queue again."""
        self._add(instance)

    def move(self, instance: InstanceQueue[T], tenant: TenantAccount) -> None:
        """Moves the instance with its queued items to another tenant."""
        if instance.items:
            self._remove(instance)
        instance.tenant = tenant
        instance.credit, instance.round = 0.0, NO_ROUND
        if instance.items:
            self._add(instance)

    def _add(self, instance: InstanceQueue[T]) -> None:
        tenant = instance.tenant
        if not len(tenant.instances):
            self._tenants.add(tenant)
        tenant.instances.add(instance)

    def _remove(self, instance: InstanceQueue[T]) -> None:
        tenant = instance.tenant
        tenant.instances.remove(instance)
        if not len(tenant.instances):
            self._tenants.remove(tenant)
