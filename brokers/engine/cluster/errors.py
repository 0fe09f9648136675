"""What can go wrong between this broker and the cluster's documents; each class carries the protocol's error code.

Three kinds: the caller asked for something wrong (`Refused`), somebody else wrote first (`Conflict`), or the store
cannot be reached (`StoreUnavailable`).
"""

from __future__ import annotations

from typing import ClassVar


class ClusterError(Exception):
    """Base of this room. `wire_code` is the error code of spec A.5 a handler answers with."""

    wire_code: ClassVar[int] = -1


class StoreUnavailable(ClusterError):
    """ZooKeeper did not answer in time or the session is gone; nothing is known about the write."""

    wire_code = 7


class Conflict(ClusterError):
    """A compare-and-set lost: what was read is no longer what is stored."""

    wire_code = 7


class CreationsMoved(Conflict):
    """Somebody else made partitions of the instance since the image that was decided from."""


class TooManyChanges(ClusterError):
    """The instance changes what is in ZooKeeper faster than it may (KIP-599)."""

    wire_code = 89


class ControllerMoved(ClusterError):
    """The guard on `/controller_epoch` failed (ZK-4): another controller was elected."""

    wire_code = 41


class BrokerAlreadyRegistered(ClusterError):
    """A living process elsewhere holds this broker id (ZK-1)."""

    wire_code = 101


class Refused(ClusterError):
    """The request itself is wrong; the message may be shown to the tenant, it holds user names only."""

    wire_code = 42


class TopicExists(Refused):
    wire_code = 36


class InvalidTopicName(Refused):
    """The name breaks CTL-18 or collides with another one."""

    wire_code = 17


class ProhibitedTopic(Refused):
    """The name is that of a log that only Kafka's own controllers have."""


class UnknownTopic(Refused):
    wire_code = 3


class InvalidPartitions(Refused):
    wire_code = 37


class InvalidReplicationFactor(Refused):
    wire_code = 38


class InvalidReplicaAssignment(Refused):
    wire_code = 39


class PolicyViolation(Refused):
    """More than the instance was sold."""

    wire_code = 44


class InstanceNotWritable(Refused):
    """The instance is frozen or being deleted (CKA-14)."""

    wire_code = 44


class ResourceNotFound(Refused):
    """There is no such user, or secret."""

    wire_code = 91


class DuplicateResource(Refused):
    """The user, or the secret, is there already."""

    wire_code = 92


class UnacceptableCredential(Refused):
    wire_code = 93


class ReassignmentInProgress(Refused):
    """Replicas of the topic are moving (REP-33)."""

    wire_code = 60


class NoReassignmentInProgress(Refused):
    wire_code = 85


class PreferredLeaderNotAvailable(Refused):
    wire_code = 80


class EligibleLeadersNotAvailable(Refused):
    wire_code = 83


class ElectionNotNeeded(Refused):
    wire_code = 84
