"""One turn of sample data: sent as the console sends messages, so that it counts against the instance's bandwidth."""

from __future__ import annotations

import logging

from django.utils import timezone

from instances.lifecycle.phases import REACHABLE
from instances.messages.interfaces import message_admin_client
from instances.models import Instance
from instances.quickstart import runs
from instances.quickstart.limits import SAMPLE_TURNS
from instances.quickstart.samples import sample_messages
from tenants.errors import DomainError, NotFound, QuotaExceeded

logger = logging.getLogger(__name__)


def send_turn(instance_id: str, topic: str, run: str, turn: int) -> bool:
    """Sends the messages of one turn; returns True if another turn follows. A run ends with its minute, with its
    instance, and with its topic.
    """
    if not runs.is_current(instance_id, run):
        return False
    is_reachable = Instance.objects.filter(pk=instance_id, phase__in=[phase.value for phase in REACHABLE]).exists()
    continues = is_reachable and turn < SAMPLE_TURNS and _send(instance_id, topic, turn) and turn + 1 < SAMPLE_TURNS
    if not continues:
        runs.end(run)
    return continues


def _send(instance_id: str, topic: str, turn: int) -> bool:
    """Sends the messages of one turn. Returns False if no later turn can be sent either."""
    try:
        results = message_admin_client.implementation.send(instance_id, topic, sample_messages(turn, timezone.now()))
    except (NotFound, QuotaExceeded) as error:
        logger.info("sample data ends", extra={"instance": instance_id, "code": error.code})
        return False
    except DomainError as error:
        logger.info("sample data not sent", extra={"instance": instance_id, "code": error.code})
        return True
    return not any(isinstance(result.error, QuotaExceeded) for result in results)
