"""Texts that everything that a regular expression of RE2 finds contains. Pure.

Only a part of the syntax is understood, in which each character has one meaning; other expressions have no such text.
"""

from __future__ import annotations

import re
from typing import Final

_CLASSES: Final = r"\\[bBdDsSwW]"
# Characters that are their own names behind a backslash.
_ESCAPED: Final = r"""\\[.,:;=@\#%&~!<>/"'`\\|()\[\]{}*+?^$ -]"""
_IN_BRACKETS: Final = rf"(?:[^\]\[\\]|{_CLASSES}|{_ESCAPED})"
# An atom and what repeats it. A group is opaque: a text may not span it, and none is taken from it.
_TOKEN: Final = re.compile(
    rf"""(?:
        (?P<plain>[A-Za-z0-9\ _,:;=@\#%&~!<>/"'`-])
      | (?P<escaped>{_ESCAPED})
      | (?P<other>[.^$]|{_CLASSES}|\[\^?(?!\^){_IN_BRACKETS}+\])
      | (?P<opening>\((?:\?:|(?!\?)))
      | (?P<closing>\))
      | (?P<either>\|)
    )
    (?:(?P<optional>[*?]|\{{0[0-9]*(?:,[0-9]*)?\}})|(?P<repeated>\+|\{{[0-9]+(?:,[0-9]*)?\}}))?\??""",
    re.VERBOSE | re.ASCII,
)


def longest(expression: str) -> str:
    """Returns the longest text that is certainly in all matches, empty if none is known."""
    texts: list[str] = [""]
    at = depth = 0
    while at < len(expression):
        token = _TOKEN.match(expression, at)
        if token is None or (token["either"] and not depth):
            return ""
        at = token.end()
        depth += bool(token["opening"]) - bool(token["closing"])
        if depth < 0:
            return ""
        letter = token["plain"] or (token["escaped"] or "")[1:]
        if letter and not depth and not token["optional"]:
            texts[-1] += letter
        if not letter or depth or token["optional"] or token["repeated"]:
            texts.append("")
    return max(texts, key=len) if not depth else ""
