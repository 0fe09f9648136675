"""How much of what an instance's clients administer is told one by one, and how the rest is summed up. Pure.

All of it is of one instance on one broker.
"""

from __future__ import annotations

from typing import Final

# Things that changed: so many at once after a pause, so many a minute in the long run. What is beyond is counted, by
# user, address and kind, and told of together.
CHANGES_LISTED_BURST: Final = 1_000
CHANGES_LISTED_PER_MINUTE: Final = 12
# Failed sign-ins, refused changes, and changes beyond that: first told after so long, then so often. Each of the three
# has so many kinds (user, address, action, reason) told apart.
TALLY_REPORTED_AFTER_S: Final = 2
TALLIES_REPORTED_EVERY_S: Final = 60
TALLIES_PER_INSTANCE_MAX: Final = 20
# Offsets committed for a group by no member of it: the first at once, then so often for the same user, address, client
# and group.
COMMITS_REPORTED_EVERY_S: Final = 3_600
COMMITS_REPORTED_KEYS_MAX: Final = 100
