"""What users of an instance have at most. Brokers refuse more, and the control plane says the same numbers at
`/limits`. Pure.
"""

from __future__ import annotations

from typing import Final

USERS_PER_INSTANCE_MAX: Final = 1_000
# An old and a new one while clients change over.
SECRETS_PER_USER_MAX: Final = 2
# As it stands in ZooKeeper, where what is not a letter, a digit or one of `-_.` takes three bytes for each of its own.
USER_NAME_BYTES_MAX: Final = 255
# Of the names that a form of the console offers while one is typed.
USERS_OFFERED_MAX: Final = 50
