"""Names that tenants use, and the internal names that the cluster uses for them (CKA-15, CKA-16). Pure.

An internal topic name is `<instance id>.<topic>`. A name that would be longer than Kafka's 249 characters, or that
looks like a hashed one, becomes `<instance id>.h.<hash>`, and the pair is stored in ZooKeeper
(`InstanceTopicDocument.name`). The mapping is injective: a plain name never starts with `h.`, and two instances
never share a prefix because an id has no dot.
"""

from __future__ import annotations

import re
from base64 import b32encode
from hashlib import sha256
from typing import Final

# Client id under which the control plane produces to demonstrate a limit ("push the limit"): client quotas apply to it.
DEMO_CLIENT_ID: Final = "penstock-demo"
TOPIC_NAME_LENGTH_MAX = 249
HASHED_PREFIX = "h."
# Kafka's own topics. Clients treat topics of these names as internal, so a tenant cannot create them.
RESERVED_TOPIC_NAMES = frozenset({"__consumer_offsets", "__transaction_state"})

# The log of a KRaft controller. Kafka refuses to create it even in a cluster without such a controller.
PROHIBITED_TOPIC_NAME = "__cluster_metadata"

_INSTANCE_ID = re.compile(r"ins-[a-z0-9]{8}\Z")
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")


def is_instance_id(text: str) -> bool:
    return _INSTANCE_ID.match(text) is not None


def is_valid_topic_name(name: str) -> bool:
    """True for 1 to 249 characters of `[a-zA-Z0-9._-]` other than `.` and `..` (CTL-18)."""
    return _TOPIC_NAME.match(name) is not None and name not in (".", "..")


def collision_key(name: str) -> str:
    """Returns a key that no two topics of an instance may share: `.` and `_` collide in metric names (CTL-18)."""
    return name.replace(".", "_")


def is_hashed(topic: str, instance_id: str) -> bool:
    """True if the tenant's topic is stored under a hash, so that its name must be stored beside it."""
    return topic.startswith(HASHED_PREFIX) or len(instance_id) + 1 + len(topic) > TOPIC_NAME_LENGTH_MAX


def internal_topic(instance_id: str, topic: str) -> str:
    """Returns the cluster's name of a tenant's topic.

    Raises:
        ValueError: `instance_id` does not have the syntax of an instance id, so the result would not be unique.
    """
    _require_instance_id(instance_id)
    if is_hashed(topic, instance_id):
        digest = b32encode(sha256(topic.encode()).digest()).decode().rstrip("=").lower()
        return f"{instance_id}.{HASHED_PREFIX}{digest}"
    return f"{instance_id}.{topic}"


def split_internal(internal: str) -> tuple[str | None, str]:
    """Returns the instance id and the part after its dot; None and the whole name for a topic of the cluster itself,
    such as `__usage`.

    A second part that starts with `h.` is a hash: the tenant's name is in the topic's document.
    """
    instance_id, dot, name_or_hash = internal.partition(".")
    if dot and name_or_hash and is_instance_id(instance_id):
        return instance_id, name_or_hash
    return None, internal


def plain_topic(internal: str) -> str | None:
    """Returns the tenant's name of an internal topic, or None if it is hashed."""
    name_or_hash = split_internal(internal)[1]
    return None if name_or_hash.startswith(HASHED_PREFIX) else name_or_hash


def internal_scoped(instance_id: str, name: str) -> str:
    """Returns the cluster's name of a group id, transactional id, user or client id: `<instance id>.<name>`, of any
    length (CKA-16).
    """
    _require_instance_id(instance_id)
    return f"{instance_id}.{name}"


def plain_scoped(instance_id: str, internal: str) -> str | None:
    """Returns the tenant's name of a scoped id, or None if it belongs to another instance."""
    prefix = f"{instance_id}."
    return internal[len(prefix) :] if internal.startswith(prefix) else None


def _require_instance_id(text: str) -> None:
    if not is_instance_id(text):
        raise ValueError(f"not an instance id: {text!r}")
