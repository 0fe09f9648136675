"""Which names users may have. Kafka takes any name; names are refused that would mean something else, that no address
can hold, or that look like another name: a person who reads access rules must be able to trust what they see. Pure.
"""

from __future__ import annotations

import unicodedata
from typing import Final
from urllib.parse import quote

from instances.users.limits import USER_NAME_BYTES_MAX

# Whoever has not signed in, and in access rules everybody.
RESERVED: Final = frozenset({"ANONYMOUS", "*"})
PRINCIPAL_PREFIX: Final = "User:"
# In an address they mean a folder, and clients resolve them before they send.
FOLDERS: Final = frozenset({".", ".."})
NORMAL_FORM: Final = "NFKC"
# Alphabets that are written together, and whose letters are not taken for each other. The names are those with which
# Unicode's names of letters begin.
WRITTEN_TOGETHER: Final = frozenset({"LATIN", "CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"})


def name_bytes(name: str) -> int:
    """What a name takes in ZooKeeper."""
    return len(quote(name, safe="-_.").replace("~", "%7E"))


def fault_of(name: str) -> str | None:
    """The reason why no user may have this name, or None."""
    if name in RESERVED:
        return "This name means something else to Kafka. Choose another."
    if name in FOLDERS:
        return "The names . and .. mean a folder in an address. Choose another."
    if not name or name != name.strip() or not name.isprintable():
        return "Use printable characters, without spaces around them."
    if name_bytes(name) > USER_NAME_BYTES_MAX:
        return "The name is too long."
    if unicodedata.normalize(NORMAL_FORM, name) != name:
        return "The name is not in Unicode's normal form NFKC, so another name looks the same. Type it anew."
    if not alphabets_of(name) <= WRITTEN_TOGETHER and len(alphabets_of(name)) > 1:
        return "The name mixes letters of several alphabets, which may look alike. Use one alphabet."
    return None


def alphabets_of(name: str) -> set[str]:
    """The alphabets of a name's letters, as Unicode's names of the letters begin."""
    letters = (letter for letter in name if unicodedata.category(letter).startswith("L"))
    return {unicodedata.name(letter, "UNKNOWN").split(" ", 1)[0].split("-", 1)[0] for letter in letters}


def principal_of(name: str) -> str:
    """A user as access rules name it."""
    return PRINCIPAL_PREFIX + name
