"""How an instance learns that its connections are refused, or not accepted at once (QUO-50…52), and that somebody
tries passwords.
"""

from __future__ import annotations

from typing import Final

from brokers.engine.throttling.charging import Rule
from quotas.addresses import CONNECTION_CREATION_RATE

# Closed at once: the instance, or the address, has as many as it may.
LIMIT_RULE: Final = Rule("connection_limit", "connection_limit", None, None)
# Accepted later: more were opened than a broker takes from one instance in a second.
RATE_RULE: Final = Rule("connection_rate", "connection_rate", None, None)
# Kept unread and closed: more came from an address than the instance's own limit lets in.
ADDRESS_RATE_RULE: Final = Rule("connection_rate", CONNECTION_CREATION_RATE, None, None)
# Not looked at: too many before it were wrong.
AUTHENTICATION_RULE: Final = Rule("authentication", "authentication", None, None)
