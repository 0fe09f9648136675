"""What brokers accept of a topic, and its owner should know all the same. Pure."""

from __future__ import annotations

from dataclasses import dataclass

MIN_INSYNC_REPLICAS = "min.insync.replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWarning:
    """`code` is stable, `detail` is for people; `wanted` and `replicas` are the numbers in it."""

    code: str
    detail: str
    wanted: int
    replicas: int


def min_insync_above_replicas(value: str | None, replicas: int) -> TopicWarning | None:
    """A write with acks=all waits for no more replicas than there are: a larger number promises what nobody keeps."""
    if value is None or not value.isascii() or not value.isdigit():
        return None
    wanted = int(value)
    if not 0 < replicas < wanted:
        return None
    detail = (
        f"{MIN_INSYNC_REPLICAS} is {wanted}, and each partition has {replicas}: acks=all waits for no more than those."
    )
    return TopicWarning(code="min_insync_above_replicas", detail=detail, wanted=wanted, replicas=replicas)
