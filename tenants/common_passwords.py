"""Detection of common passwords that were extended to be long enough. Pure except for Django's list.

Hardly any of Django's 20,000 common passwords has ten characters, but their usual variations do.
"""

from __future__ import annotations

import re
from typing import Any

from django.contrib.auth.password_validation import CommonPasswordValidator
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

# Shorter words are ignored: "love" begins many good passphrases.
WORD_CHARS_MIN = 5
REPEATED_CHARS_MAX = 4
_LETTERS = str.maketrans("0134578@$!", "oleastbasi")
_ENDS = re.compile(r"^[\W\d_]+|[\W\d_]+$")


def candidates(password: str) -> set[str]:
    """Returns the common passwords of which this may be a variation.

    Characters before and after the letters are removed, and digits and signs are replaced by similar letters.
    """
    lowered = password.lower().strip()
    letters_only = _ENDS.sub("", lowered)
    variants = {
        letters_only,
        letters_only.translate(_LETTERS),
        _ENDS.sub("", lowered.translate(_LETTERS)),
        lowered.translate(_LETTERS),
    }
    return {lowered} | {word for word in variants if len(word) >= WORD_CHARS_MIN}


def is_repeated(password: str) -> bool:
    """True if the password repeats a short piece, such as "abcabcabcabc"."""
    text = password.lower()
    sizes = range(1, min(REPEATED_CHARS_MAX, len(text) // 2) + 1)
    return any(text == (text[:size] * len(text))[: len(text)] for size in sizes)


class DisguisedPasswordValidator(CommonPasswordValidator):
    """Refuses simple variations of common passwords, which attackers try first."""

    def validate(self, password: str, user: Any = None) -> None:
        if is_repeated(password) or any(word in self.passwords for word in candidates(password)):
            raise ValidationError(_("This password is a common one with something around it."), code="too_common")

    def get_help_text(self) -> str:
        return str(_("Your password can’t be a common word with digits or signs around it."))
