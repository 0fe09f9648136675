"""Limits of an instance's users. Brokers enforce them, and the control plane publishes them at `/limits`. Pure."""

from __future__ import annotations

from typing import Final

USERS_PER_INSTANCE_MAX: Final = 1_000
# An old and a new password while clients change over.
SECRETS_PER_USER_MAX: Final = 2
# Encoded length in ZooKeeper, where each byte that is not a letter, a digit or one of `-_.` takes three.
USER_NAME_BYTES_MAX: Final = 255
# Names that a form of the console offers as completions.
USERS_OFFERED_MAX: Final = 50
