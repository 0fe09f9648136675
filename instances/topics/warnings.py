"""Warnings about settings of a topic that brokers accept although they have no effect or an unintended one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MIN_INSYNC_REPLICAS = "min.insync.replicas"
MAX_MESSAGE_BYTES = "max.message.bytes"
DEFAULT_MAX_MESSAGE_BYTES = "1048588"
BYTE_RATES = ("penstock.produce.byte.rate", "penstock.consume.byte.rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWarning:
    """One warning; `code` is stable, `detail` is for people. `wanted` is the value of the setting; `replicas` or
    `batch_bytes` is the number that it is compared with, the other one is 0.
    """

    code: str
    detail: str
    setting: str
    wanted: int
    replicas: int = 0
    batch_bytes: int = 0


def topic_warnings(config: Mapping[str, str | None], replicas: int) -> tuple[TopicWarning, ...]:
    """Returns all warnings about a topic with these settings; none where they are not known."""
    candidates = [min_insync_above_replicas(config.get(MIN_INSYNC_REPLICAS), replicas)]
    batch_bytes = config.get(MAX_MESSAGE_BYTES, DEFAULT_MAX_MESSAGE_BYTES)
    candidates += [limit_below_one_batch(name, config.get(name), batch_bytes) for name in BYTE_RATES]
    return tuple(warning for warning in candidates if warning is not None)


def limit_below_one_batch(name: str, value: str | None, batch_bytes: str | None) -> TopicWarning | None:
    """Returns a warning if one batch of the topic may exceed the byte rate `name`: it is accepted whole, and later ones
    wait.
    """
    if not _is_number(value) or not _is_number(batch_bytes):
        return None
    limit, batch_bytes_max = int(value or 0), int(batch_bytes or 0)
    if not 0 < limit < batch_bytes_max:
        return None
    detail = (
        f"{name} is {limit} bytes/s, and one batch may have {batch_bytes_max} bytes ({MAX_MESSAGE_BYTES}): it passes"
        f" whole, and what follows waits up to {-(-batch_bytes_max // limit)} s."
    )
    return TopicWarning(
        code="limit_below_one_batch", detail=detail, setting=name, wanted=limit, batch_bytes=batch_bytes_max
    )


def _is_number(value: str | None) -> bool:
    return value is not None and value.isascii() and value.isdigit()


def min_insync_above_replicas(value: str | None, replicas: int) -> TopicWarning | None:
    """Returns a warning if `min.insync.replicas` is above the number of replicas, and can never be reached."""
    if not _is_number(value):
        return None
    wanted = int(value or 0)
    if not 0 < replicas < wanted:
        return None
    detail = (
        f"{MIN_INSYNC_REPLICAS} is {wanted}, and each partition has {replicas}: acks=all waits for no more than those."
    )
    return TopicWarning(
        code="min_insync_above_replicas",
        detail=detail,
        setting=MIN_INSYNC_REPLICAS,
        wanted=wanted,
        replicas=replicas,
    )
