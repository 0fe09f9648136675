"""Decoder of consumer subscriptions: the topics that the members of a group read (GRP-28).

Only the common beginning of all versions of the consumer protocol is decoded: an int16 version and the topics. The
broker needs nothing else (GRP-16).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as struct_error

from instances import naming

_HEAD = Struct(">hi")
_LENGTH = Struct(">H")


def decode_subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Returns the topics of all members as their clients name them, None if a subscription cannot be decoded."""
    result: set[str] = set()
    for subscription in subscriptions:
        names = _names(subscription)
        if names is None:
            return None
        result.update(names)
    return frozenset(result)


def internal_topics(group: str, names: Iterable[str]) -> frozenset[str]:
    """Returns the internal names of the topics `names`, under which offsets are stored. `group` is the group's internal
    name, from which the instance is known; a group of the cluster itself names internal topics.
    """
    instance_id, _ = naming.split_internal(group)
    if instance_id is None:
        return frozenset(names)
    return frozenset(naming.internal_topic(instance_id, name) for name in names)


def _names(subscription: bytes) -> list[str] | None:
    try:
        version, count = _HEAD.unpack_from(subscription, 0)
        at = _HEAD.size
        if version < 0 or not 0 <= count <= (len(subscription) - at) // _LENGTH.size:
            return None
        names = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(subscription, at)
            at += _LENGTH.size + length
            if at > len(subscription):
                return None
            names.append(str(subscription[at - length : at], "utf-8"))
    except (struct_error, UnicodeDecodeError):
        return None
    return names
