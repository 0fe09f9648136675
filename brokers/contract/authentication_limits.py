"""Limits on failed authentications of an instance's clients on one broker; brokers enforce them and the control plane
publishes them.
"""

from __future__ import annotations

from typing import Final

# Failures for one user from one address, and from one address for all users: in a row, and per minute in the long term.
USER_FAILURES_BURST: Final = 10
USER_FAILURES_PER_MINUTE: Final = 10
ADDRESS_FAILURES_BURST: Final = 50
ADDRESS_FAILURES_PER_MINUTE: Final = 60
