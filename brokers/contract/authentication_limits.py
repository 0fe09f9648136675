"""How often clients of an instance may give wrong passwords to one broker: what brokers enforce and the control plane
publishes.
"""

from __future__ import annotations

from typing import Final

# Of one user from one address, and of one address whomever it names: in a row, and so many a minute in the long run.
USER_FAILURES_BURST: Final = 10
USER_FAILURES_PER_MINUTE: Final = 10
ADDRESS_FAILURES_BURST: Final = 50
ADDRESS_FAILURES_PER_MINUTE: Final = 60
