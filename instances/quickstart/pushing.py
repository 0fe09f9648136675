"""Turns of "push the limit": a demo client sends more than its quota admits, and the quota is removed."""

from __future__ import annotations

import logging

from instances.lifecycle.phases import REACHABLE
from instances.messages.interfaces import message_admin_client
from instances.models import Instance
from instances.naming import DEMO_CLIENT_ID
from instances.quickstart import runs
from instances.quickstart.limits import PUSH_TURNS
from instances.quickstart.samples import heavy_messages
from quotas import services as quota_services
from quotas.interfaces import EntityPart
from tenants.actors import system_actor
from tenants.errors import DomainError, NotFound

logger = logging.getLogger(__name__)

DEMO_CLIENT = EntityPart(name=DEMO_CLIENT_ID)


def push_turn(instance_id: str, topic: str, run: str, turn: int) -> bool:
    """Sends the messages of one turn; returns True if another turn follows. After the last one the quota is removed."""
    if not runs.is_current(instance_id, run, runs.PUSH):
        return False
    is_reachable = Instance.objects.filter(pk=instance_id, phase__in=[phase.value for phase in REACHABLE]).exists()
    try:
        if is_reachable:
            message_admin_client.implementation.send_as_demo(instance_id, topic, heavy_messages())
    except DomainError as error:
        logger.info("demo not sent", extra={"instance": instance_id, "code": error.code})
        is_reachable = not isinstance(error, NotFound)
    if is_reachable and turn + 1 < PUSH_TURNS:
        return True
    end_push(instance_id, run)
    return False


def end_push(instance_id: str, run: str) -> None:
    """Removes the quota of the demo client. Does nothing if another run has begun, or this one has ended."""
    if not runs.is_current(instance_id, run, runs.PUSH):
        return
    instance = Instance.objects.select_related("tenant").filter(pk=instance_id).first()
    try:
        if instance is not None:
            acting = system_actor("push-the-limit", instance.tenant)
            quota_services.delete_quota(acting=acting, instance=instance, user=None, client_id=DEMO_CLIENT)
    except NotFound:
        pass  # a member removed it
    except DomainError as error:
        logger.warning("demo quota not removed", extra={"instance": instance_id, "code": error.code})
        return  # the run stays, and the task at its end tries again
    runs.end(run)
