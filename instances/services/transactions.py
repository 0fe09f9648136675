"""Abort of an open transaction of an instance, for its owner."""

from __future__ import annotations

from instances.access import require_reachable
from instances.groups.interfaces import transaction_admin_client
from instances.groups.transaction_selectors import DECIDED, ONGOING
from instances.models import Instance
from instances.services.group_common import scoped_ref
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, NotFound, Unavailable
from tenants.models import AuditEntry


@audit.atomic
def abort_transaction(*, acting: Actor, instance: Instance, transactional_id: str, dry_run: bool = False) -> AuditEntry:
    """Aborts an open transaction through its coordinator, which fences its producer as for InitProducerId (TXN-5).

    Raises `NotFound`, `Conflict(not_open)`, `Conflict(decided)` if it is committed or aborted already and a marker is
    missing, and `Unavailable` if its coordinator does not answer.
    """
    access.require(acting, Scope.GROUPS_WRITE)
    require_reachable(instance)
    descriptions = transaction_admin_client.implementation.describe(instance.pk, [transactional_id])
    if transactional_id not in descriptions:
        raise Unavailable("The transaction's coordinator does not answer at the moment.", retry_after_s=1)
    transaction = descriptions[transactional_id]
    if transaction is None:
        raise NotFound
    if transaction.state in DECIDED:
        raise Conflict("Its outcome is decided; what is missing is a marker.", code="decided")
    if transaction.state != ONGOING:
        raise Conflict("No transaction is open under this id.", code="not_open")
    after = {"fenced": True, "producer_id": transaction.producer_id, "producer_epoch": transaction.producer_epoch}
    target = scoped_ref("transaction", instance, transactional_id)
    entry = audit.record(acting, "transaction.aborted", target, None, after, tenant=instance.tenant)
    if not dry_run:
        with audit.in_doubt(entry):
            transaction_admin_client.implementation.abort(instance.pk, transactional_id)
    return entry
