"""Limits of the audit of one instance's clients on one broker: which changes are listed one by one, and how others are
summed up. Pure.
"""

from __future__ import annotations

from typing import Final

# Changed items that are listed: a burst after a pause, and a long-term rate. Further ones are counted by user, address
# and kind, and reported together (tallies).
CHANGES_LISTED_BURST: Final = 1_000
CHANGES_LISTED_PER_MINUTE: Final = 12
# Tallies of failed sign-ins, refused changes and unlisted changes: delay of the first report, interval of further ones,
# and the number of tallies (by user, address, action and reason) of each of the three.
TALLY_REPORTED_AFTER_S: Final = 2
TALLIES_REPORTED_EVERY_S: Final = 60
TALLIES_PER_INSTANCE_MAX: Final = 20
# Commits of offsets for a group by a client that is no member: interval of the reports for one user, address, client
# and group after the first, and the number of such combinations.
COMMITS_REPORTED_EVERY_S: Final = 3_600
COMMITS_REPORTED_KEYS_MAX: Final = 100
