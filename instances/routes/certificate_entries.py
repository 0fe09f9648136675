"""How many certificates a route may have, and how brokers know authorities and revoked certificates. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

# Certificates of authorities that may sign those of a route's clients.
CLIENT_CA_BYTES_MAX: Final = 65_536
CLIENT_CA_CERTIFICATES_MAX: Final = 20
# Of what a client shows, its own and the authority's included.
CLIENT_CHAIN_MAX: Final = 5
# A body of a request is 1 MiB, and a line's end takes two characters in JSON.
REVOCATION_LIST_BYTES_MAX: Final = 1_000_000
REVOKED_MAX: Final = 10_000
# A route's own certificate, with those between it and its authority.
SERVER_CHAIN_BYTES_MAX: Final = 32_768
SERVER_CHAIN_MAX: Final = 6
PRIVATE_KEY_BYTES_MAX: Final = 16_384
RSA_BITS_MIN: Final = 2_048
# Beyond, one signature takes so long that handshakes of others wait.
RSA_BITS_MAX: Final = 4_096
# In the directory of the brokers' certificates: what encrypts private keys of uploaded ones.
ROUTE_KEYS_FILE: Final = "route_keys.key"

ENTRY_BYTES: Final = 16


def authority_key(subject: bytes, public_key: bytes) -> bytes:
    """What stays the same of an authority when its certificate is renewed. Both as DER."""
    return hashlib.sha256(b"authority" + len(subject).to_bytes(4, "big") + subject + public_key).digest()[:ENTRY_BYTES]


def revocation_entry(issuer_public_key: bytes, serial: bytes) -> bytes:
    """One certificate on a list: by the key that signed it, which has one spelling, and not by the issuer's name.
    `serial` as DER has it.
    """
    return hashlib.sha256(b"revoked" + len(serial).to_bytes(4, "big") + serial + issuer_public_key).digest()[
        :ENTRY_BYTES
    ]


class Revoked:
    """Entries of lists, in few bytes: they are searched by halves."""

    __slots__ = ("_entries",)

    def __init__(self, entries: bytes = b"") -> None:
        assert len(entries) % ENTRY_BYTES == 0, "entries have one length"
        self._entries = entries

    @classmethod
    def of(cls, entries: Iterable[bytes]) -> Revoked:
        return cls(b"".join(sorted(set(entries))))

    def __len__(self) -> int:
        return len(self._entries) // ENTRY_BYTES

    def __contains__(self, entry: object) -> bool:
        assert isinstance(entry, bytes) and len(entry) == ENTRY_BYTES
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            found = self._entries[middle * ENTRY_BYTES : (middle + 1) * ENTRY_BYTES]
            if found == entry:
                return True
            low, high = (middle + 1, high) if found < entry else (low, middle)
        return False

    @property
    def as_bytes(self) -> bytes:
        return self._entries
