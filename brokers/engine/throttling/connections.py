"""Rules by which connections of an instance are refused or delayed (QUO-50…52), and authentication attempts refused."""

from __future__ import annotations

from typing import Final

from brokers.engine.throttling.charging import Rule
from quotas.addresses import CONNECTION_CREATION_RATE

# Closed at once: the instance or the address has reached its number of connections.
LIMIT_RULE: Final = Rule("connection_limit", "connection_limit", None, None)
# Accepted later: connections of the instance were opened at a higher rate than a broker accepts.
RATE_RULE: Final = Rule("connection_rate", "connection_rate", None, None)
# Held unread, then closed: an address has exceeded the rate limit that the instance sets for addresses.
ADDRESS_RATE_RULE: Final = Rule("connection_rate", CONNECTION_CREATION_RATE, None, None)
# Refused unchecked: too many earlier attempts failed.
AUTHENTICATION_RULE: Final = Rule("authentication", "authentication", None, None)
