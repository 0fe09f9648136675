"""Limits of an instance's OAuth configuration. Brokers enforce them, and the control plane publishes them at `/limits`.
Pure.
"""

from __future__ import annotations

from typing import Final

# Size of a key set, pinned or fetched.
KEY_SET_BYTES_MAX: Final = 65_536
KEYS_PER_SET_MAX: Final = 64
KEY_ID_BYTES_MAX: Final = 255
# Verifying with a longer key takes milliseconds; a shorter one is not safe.
RSA_KEY_BITS_MIN: Final = 2_048
RSA_KEY_BITS_MAX: Final = 8_192
# The usual exponent, 65537, has 17 bits. The time of a verification grows with it.
RSA_EXPONENT_BITS_MAX: Final = 32
# Size of a client's SASL message: the token with GS2 header and extensions.
TOKEN_BYTES_MAX: Final = 16_384
ISSUER_CHARS_MAX: Final = 512
AUDIENCE_CHARS_MAX: Final = 512
KEY_SET_URL_CHARS_MAX: Final = 1_024
PRINCIPAL_CLAIM_CHARS_MAX: Final = 128
CLOCK_SKEW_S_MAX: Final = 300
DEFAULT_CLOCK_SKEW_S: Final = 30
DEFAULT_PRINCIPAL_CLAIM: Final = "sub"
FETCH_ERROR_CHARS_MAX: Final = 300
# Minimum intervals between fetches of a key set: periodic, after a failure, and for tokens that name unknown keys.
KEY_SET_REFRESH_S: Final = 300
KEY_SET_RETRY_S: Final = 30
KEY_SET_REQUESTED_REFRESH_S: Final = 15
