"""Literal texts that are part of every match of a regular expression (RE2). Pure.

Only a part of the syntax is supported, in which each character has one meaning; other expressions yield no text.
"""

from __future__ import annotations

import re
from typing import Final

_CLASSES: Final = r"\\[bBdDsSwW]"
# Characters that stand for themselves behind a backslash.
_ESCAPED: Final = r"""\\[.,:;=@\#%&~!<>/"'`\\|()\[\]{}*+?^$ -]"""
_IN_BRACKETS: Final = rf"(?:[^\]\[\\]|{_CLASSES}|{_ESCAPED})"
# An atom and its quantifier. Groups are opaque: no literal is taken from a group or extends across one.
_TOKEN: Final = re.compile(
    rf"""(?:
        (?P<plain>[A-Za-z0-9\ _,:;=@\#%&~!<>/"'`-])
      | (?P<escaped>{_ESCAPED})
      | (?P<other>[.^$]|{_CLASSES}|\[\^?(?!\^){_IN_BRACKETS}+\])
      | (?P<opening>\((?:\?:|(?!\?)))
      | (?P<closing>\))
      | (?P<alternation>\|)
    )
    (?:(?P<optional>[*?]|\{{0[0-9]*(?:,[0-9]*)?\}})|(?P<repeated>\+|\{{[0-9]+(?:,[0-9]*)?\}}))?\??""",
    re.VERBOSE | re.ASCII,
)


def longest_literal(expression: str) -> str:
    """Returns the longest text that is part of every match; empty if none is known."""
    texts: list[str] = [""]
    at = depth = 0
    while at < len(expression):
        token = _TOKEN.match(expression, at)
        if token is None or (token["alternation"] and not depth):
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
