"""Parser of the position where reading begins: `newest`, `oldest`, `offset:N`, `time:2026-01-31T12:00:00Z`. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from instances.messages.interfaces import NEWEST, OFFSET, OLDEST, TIME, Start

OFFSET_MAX = 2**63 - 1
_OFFSET = re.compile(r"offset:(\d{1,19})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS_PER_S = 1_000
_US_PER_MS = 1_000


class WrongStart(ValueError):
    """The text is not a start position. The message names the expected form."""


def parse(text: str) -> Start:
    """Returns the start position. Raises `WrongStart`."""
    if text in (NEWEST, OLDEST):
        return Start(text)
    if match := _OFFSET.fullmatch(text):
        offset = int(match[1])
        if offset <= OFFSET_MAX:
            return Start(OFFSET, offset)
    if text.startswith("time:"):
        return Start(TIME, _milliseconds(text.removeprefix("time:")))
    raise WrongStart("newest, oldest, offset:N or time:2026-01-31T12:00:00Z.")


def to_ms(instant: datetime) -> int:
    """Returns milliseconds since 1970, computed without floating point, which would round."""
    since_epoch = instant - _EPOCH
    return (since_epoch.days * 86_400 + since_epoch.seconds) * _MS_PER_S + since_epoch.microseconds // _US_PER_MS


def _milliseconds(text: str) -> int:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise WrongStart("A time is written as time:2026-01-31T12:00:00Z.") from None
    if instant.tzinfo is None:
        raise WrongStart("Say the offset from UTC, for example time:2026-01-31T12:00:00Z.")
    try:
        milliseconds = to_ms(instant)
    except OverflowError:
        raise WrongStart("The calendar ends before.") from None
    if milliseconds < 0:
        raise WrongStart("Times begin with 1970.")
    return milliseconds
