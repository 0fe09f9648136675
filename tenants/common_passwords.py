"""Passwords that are tried first: a common one, dressed up to be long enough. Pure but for Django's list.

Of the 20,000 common passwords that come with Django hardly any has ten characters; what people make of them has.
"""

from __future__ import annotations

import re
from typing import Any

from django.contrib.auth.password_validation import CommonPasswordValidator
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

# A shorter word says too little: "love" begins many a good passphrase.
WORD_CHARS_MIN = 5
REPEATED_CHARS_MAX = 4
_LETTERS = str.maketrans("0134578@$!", "oleastbasi")
_ENDS = re.compile(r"^[\W\d_]+|[\W\d_]+$")


def candidates(password: str) -> set[str]:
    """What a password may be a common one in disguise of: without what stands before and behind its letters, and with
    letters in place of the digits and signs that look like them.
    """
    lowered = password.lower().strip()
    bare = _ENDS.sub("", lowered)
    plain = {bare, bare.translate(_LETTERS), _ENDS.sub("", lowered.translate(_LETTERS)), lowered.translate(_LETTERS)}
    return {lowered} | {word for word in plain if len(word) >= WORD_CHARS_MIN}


def is_repeated(password: str) -> bool:
    """Whether it is a short piece over and over, such as "abcabcabcabc"."""
    text = password.lower()
    sizes = range(1, min(REPEATED_CHARS_MAX, len(text) // 2) + 1)
    return any(text == (text[:size] * len(text))[: len(text)] for size in sizes)


class DisguisedPasswordValidator(CommonPasswordValidator):
    """Refuses what an attacker's first rules make of a common password."""

    def validate(self, password: str, user: Any = None) -> None:
        if is_repeated(password) or any(word in self.passwords for word in candidates(password)):
            raise ValidationError(_("This password is a common one with something around it."), code="too_common")

    def get_help_text(self) -> str:
        return str(_("Your password can’t be a common word with digits or signs around it."))
