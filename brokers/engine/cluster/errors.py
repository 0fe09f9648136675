"""Errors of cluster metadata; each class has the protocol's error code.

Most are of three kinds: the request is wrong (`Refused`), another writer was first (`Conflict`), or ZooKeeper cannot be
reached (`StoreUnavailable`). The others are a limit (`TooManyChanges`) and a role that this process does not have
(`ControllerMoved`, `BrokerAlreadyRegistered`).
"""

from __future__ import annotations

from typing import ClassVar


class ClusterError(Exception):
    """Base of the errors of this package; `wire_code` is the error code of the Kafka protocol for the response."""

    wire_code: ClassVar[int] = -1


class StoreUnavailable(ClusterError):
    """ZooKeeper did not answer in time or the session is lost; the outcome of the write is unknown."""

    wire_code = 7


class Conflict(ClusterError):
    """A compare-and-set failed: the stored value has changed since it was read."""

    wire_code = 7


class CreationsMoved(Conflict):
    """Another broker created partitions of the instance after the image on which this decision is based."""


class TooManyChanges(ClusterError):
    """The instance changes metadata in ZooKeeper faster than allowed (KIP-599)."""

    wire_code = 89


class ControllerMoved(ClusterError):
    """The guard on `/controller_epoch` failed (ZK-4): another controller was elected."""

    wire_code = 41


class BrokerAlreadyRegistered(ClusterError):
    """A live process at another address has this broker id (ZK-1)."""

    wire_code = 101


class Refused(ClusterError):
    """The request is wrong; the message may be shown to the tenant and contains only user-visible names."""

    wire_code = 42


class TopicExists(Refused):
    wire_code = 36


class InvalidTopicName(Refused):
    """The name violates CTL-18 or collides with another one."""

    wire_code = 17


class ProhibitedTopic(Refused):
    """The name is `__cluster_metadata`, which Kafka reserves for its metadata log."""


class UnknownTopic(Refused):
    wire_code = 3


class InvalidPartitions(Refused):
    wire_code = 37


class InvalidReplicationFactor(Refused):
    wire_code = 38


class InvalidReplicaAssignment(Refused):
    wire_code = 39


class PolicyViolation(Refused):
    """The request exceeds the instance's plan."""

    wire_code = 44


class InstanceNotWritable(Refused):
    """The instance is frozen or being deleted (CKA-14)."""

    wire_code = 44


class ResourceNotFound(Refused):
    """The user or secret does not exist."""

    wire_code = 91


class DuplicateResource(Refused):
    """The user or secret exists already."""

    wire_code = 92


class UnacceptableCredential(Refused):
    wire_code = 93


class ReassignmentInProgress(Refused):
    """Replicas of the topic are being reassigned (REP-33)."""

    wire_code = 60


class NoReassignmentInProgress(Refused):
    wire_code = 85


class PreferredLeaderNotAvailable(Refused):
    wire_code = 80


class EligibleLeadersNotAvailable(Refused):
    wire_code = 83


class ElectionNotNeeded(Refused):
    wire_code = 84
