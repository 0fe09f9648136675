"""What a user may be called. Kafka takes any name; these are refused because they would mean something else. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from instances.users.limits import USER_NAME_BYTES_MAX

# Whoever has not signed in, and in access rules everybody.
RESERVED: Final = frozenset({"ANONYMOUS", "*"})
# An address that ends with one of these is another address.
DOT_NAMES: Final = frozenset({".", ".."})
PRINCIPAL_PREFIX: Final = "User:"


def name_bytes(name: str) -> int:
    """What a name takes in ZooKeeper."""
    return len(quote(name, safe="-_.").replace("~", "%7E"))


def fault_of(name: str) -> str | None:
    """What is wrong with a name, or None."""
    if name in RESERVED:
        return "This name means something else to Kafka. Choose another."
    if name in DOT_NAMES:
        return "This name cannot be part of an address. Choose another."
    if not name or name != name.strip() or not name.isprintable():
        return "Use printable characters, without spaces around them."
    if name_bytes(name) > USER_NAME_BYTES_MAX:
        return "The name is too long."
    return None


def principal_of(name: str) -> str:
    """A user as access rules name it."""
    return PRINCIPAL_PREFIX + name
