"""Limits of a route's certificates, and the hashes that identify authorities and revoked certificates. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

# Certificates of authorities that may sign those of a route's clients.
CLIENT_CA_BYTES_MAX: Final = 65_536
CLIENT_CA_CERTIFICATES_MAX: Final = 20
# Length of a client's chain, with its own certificate and the authority's.
CLIENT_CHAIN_MAX: Final = 5
# A request body has at most 1 MiB, and a line end takes two characters in JSON.
REVOCATION_LIST_BYTES_MAX: Final = 1_000_000
REVOKED_MAX: Final = 10_000
# A route's own certificate with its intermediate certificates.
SERVER_CHAIN_BYTES_MAX: Final = 32_768
SERVER_CHAIN_MAX: Final = 6
PRIVATE_KEY_BYTES_MAX: Final = 16_384
RSA_BITS_MIN: Final = 2_048
# A signature with a longer key blocks the handshakes of other clients.
RSA_BITS_MAX: Final = 4_096
# Password of uploaded private keys, in the directory of the brokers' certificates.
ROUTE_KEYS_FILE: Final = "route_keys.key"

ENTRY_BYTES: Final = 16


def authority_key(subject: bytes, public_key: bytes) -> bytes:
    """Returns the identity of an authority, which stays when its certificate is renewed. Both arguments are DER."""
    return hashlib.sha256(b"authority" + len(subject).to_bytes(4, "big") + subject + public_key).digest()[:ENTRY_BYTES]


def revocation_entry(issuer_public_key: bytes, serial: bytes) -> bytes:
    """Returns the entry of a revoked certificate: a hash of the issuer's key, which unlike its name has one encoding,
    and of the serial number in DER.
    """
    return hashlib.sha256(b"revoked" + len(serial).to_bytes(4, "big") + serial + issuer_public_key).digest()[
        :ENTRY_BYTES
    ]


class Revoked:
    """A set of revocation entries: one sorted bytes object with a binary search."""

    __slots__ = ("_entries",)

    def __init__(self, entries: bytes = b"") -> None:
        assert len(entries) % ENTRY_BYTES == 0, "all entries have the same length"
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
            candidate = self._entries[middle * ENTRY_BYTES : (middle + 1) * ENTRY_BYTES]
            if candidate == entry:
                return True
            low, high = (middle + 1, high) if candidate < entry else (low, middle)
        return False

    @property
    def as_bytes(self) -> bytes:
        return self._entries
