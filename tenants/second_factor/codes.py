"""Validation of TOTP and recovery codes, each of which is valid once.

django-allauth stores used codes in the cache for one step of 30 s. Here the TOTP `Authenticator` row stores the last
used step, so that no older code is valid, regardless of the cache and of clock skew.
"""

from __future__ import annotations

import hmac

from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from allauth.mfa.utils import decrypt
from django.db import transaction

from tenants.limits import CODE_STEPS_TOLERATED
from tenants.models import User

STEP_S = 30
CODE_CHARS_MAX = 32
LAST_STEP = "last_step"


def normalized(code: str) -> str:
    """Returns a code without spaces and hyphens, for comparison."""
    return "".join(code.split()).replace("-", "")


def matching_step(secret: str, code: str, now_s: float) -> int | None:
    """Returns the step of 30 s to which this code belongs, within the tolerated skew; None for a wrong code. Pure.

    Every step is compared, in constant time.
    """
    current_step = int(now_s) // STEP_S
    result = None
    for candidate in range(current_step - CODE_STEPS_TOLERATED, current_step + CODE_STEPS_TOLERATED + 1):
        if hmac.compare_digest(format_hotp_value(hotp_value(secret, candidate)).encode(), code.encode()):
            result = candidate
    return result


@transaction.atomic
def use_code(user: User, code: str, now_s: float) -> Authenticator | None:
    """Consumes a TOTP or recovery code of the user; returns its authenticator, None for a wrong or used code."""
    code = normalized(code)
    rows = Authenticator.objects.select_for_update().filter(user=user).exclude(type=Authenticator.Type.WEBAUTHN)
    for row in rows.order_by("pk"):
        is_accepted = (
            _use_totp_code(row, code, now_s) if row.type == Authenticator.Type.TOTP else row.wrap().validate_code(code)
        )
        if is_accepted:
            # django-allauth marks a recovery code as used on another copy of the row.
            row.refresh_from_db()
            return row
    return None


def mark_used(user: User, step: int) -> None:
    """Marks the code with which the TOTP authenticator was set up as used."""
    row = Authenticator.objects.get(user=user, type=Authenticator.Type.TOTP)
    row.data[LAST_STEP] = step
    row.save(update_fields=["data"])


def _use_totp_code(row: Authenticator, code: str, now_s: float) -> bool:
    """Uses up a TOTP code. Returns False if it is wrong or was used before."""
    step = matching_step(decrypt(row.data["secret"]), code, now_s)
    if step is None or step <= row.data.get(LAST_STEP, -1):
        return False
    row.data[LAST_STEP] = step
    row.save(update_fields=["data"])
    return True
