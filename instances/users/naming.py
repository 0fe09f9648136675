"""Rules for names of users. Kafka accepts any name. Here names are refused that have a special meaning, that do not fit
into an address, or that look like another name, so that a reader of access rules can rely on what they see. Pure.
"""

from __future__ import annotations

import unicodedata
from typing import Final
from urllib.parse import quote

from instances.users.limits import USER_NAME_BYTES_MAX

# Kafka's names of clients that have not signed in, and, in access rules, of all users.
RESERVED: Final = frozenset({"ANONYMOUS", "*"})
PRINCIPAL_PREFIX: Final = "User:"
# Clients resolve these path segments before they send a request.
DOT_SEGMENTS: Final = frozenset({".", ".."})
NORMAL_FORM: Final = "NFKC"
# Alphabets that one name may mix, because their letters do not look alike: the first words of Unicode's
# names of letters.
COMBINABLE_ALPHABETS: Final = frozenset({"LATIN", "CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"})


def name_bytes(name: str) -> int:
    """Returns the length of an encoded name in ZooKeeper."""
    return len(quote(name, safe="-_.").replace("~", "%7E"))


def name_fault(name: str) -> str | None:
    """Returns the reason why no user may have this name, or None."""
    if name in RESERVED:
        return "This name means something else to Kafka. Choose another."
    if name in DOT_SEGMENTS:
        return "The names . and .. mean a folder in an address. Choose another."
    if not name or name != name.strip() or not name.isprintable():
        return "Use printable characters, without spaces around them."
    if name_bytes(name) > USER_NAME_BYTES_MAX:
        return "The name is too long."
    if unicodedata.normalize(NORMAL_FORM, name) != name:
        return "The name is not in Unicode's normal form NFKC, so another name looks the same. Type it anew."
    if not alphabets_of(name) <= COMBINABLE_ALPHABETS and len(alphabets_of(name)) > 1:
        return "The name mixes letters of several alphabets, which may look alike. Use one alphabet."
    return None


def alphabets_of(name: str) -> set[str]:
    """Returns the alphabets of a name's letters: the first words of Unicode's names of them."""
    letters = (letter for letter in name if unicodedata.category(letter).startswith("L"))
    return {unicodedata.name(letter, "UNKNOWN").split(" ", 1)[0].split("-", 1)[0] for letter in letters}


def principal_of(name: str) -> str:
    """Returns the principal of a user in access rules."""
    return PRINCIPAL_PREFIX + name
