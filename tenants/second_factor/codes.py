"""Which code is right, and that each is right once.

The library remembers used codes in the cache, for one step of 30 s. Here the row of the app remembers the last step
that was used: nothing older is right any more, wherever the cache is and however far the clock is off.
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


def plain(code: str) -> str:
    """A code as it is compared: people write spaces and hyphens into it."""
    return "".join(code.split()).replace("-", "")


def matching_step(secret: str, code: str, now_s: float) -> int | None:
    """The step of 30 s whose code this is, of those that a clock may be off; None for a wrong code. Pure.

    Every step is compared, right or not, and each in constant time.
    """
    step = int(now_s) // STEP_S
    found = None
    for candidate in range(step - CODE_STEPS_TOLERATED, step + CODE_STEPS_TOLERATED + 1):
        if hmac.compare_digest(format_hotp_value(hotp_value(secret, candidate)).encode(), code.encode()):
            found = candidate
    return found


@transaction.atomic
def use_code(user: User, code: str, now_s: float) -> Authenticator | None:
    """Use up a code of the person's app, or a recovery code; what it was of, None for a wrong or used one."""
    code = plain(code)
    rows = Authenticator.objects.select_for_update().filter(user=user).exclude(type=Authenticator.Type.WEBAUTHN)
    for row in rows.order_by("pk"):
        is_right = _is_apps(row, code, now_s) if row.type == Authenticator.Type.TOTP else row.wrap().validate_code(code)
        if is_right:
            row.refresh_from_db()
            return row
    return None


def mark_used(user: User, step: int) -> None:
    """The code with which an app was set up has been used as well."""
    row = Authenticator.objects.get(user=user, type=Authenticator.Type.TOTP)
    row.data[LAST_STEP] = step
    row.save(update_fields=["data"])


def _is_apps(row: Authenticator, code: str, now_s: float) -> bool:
    step = matching_step(decrypt(row.data["secret"]), code, now_s)
    if step is None or step <= row.data.get(LAST_STEP, -1):
        return False
    row.data[LAST_STEP] = step
    row.save(update_fields=["data"])
    return True
