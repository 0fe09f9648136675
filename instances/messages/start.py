"""Words for the place where reading begins: `newest`, `oldest`, `offset:N`, `time:2026-01-31T12:00:00Z`. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from instances.messages.interfaces import NEWEST, OFFSET, OLDEST, TIME, Start

OFFSET_MAX = 2**63 - 1
_OFFSET = re.compile(r"offset:(\d{1,19})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = 1_000


class WrongStart(ValueError):
    """The words name no place."""


def parse(words: str) -> Start:
    """Raises `WrongStart`; the message says what is expected."""
    if words in (NEWEST, OLDEST):
        return Start(words)
    if match := _OFFSET.fullmatch(words):
        offset = int(match[1])
        if offset <= OFFSET_MAX:
            return Start(OFFSET, offset)
    if words.startswith("time:"):
        return Start(TIME, _milliseconds(words.removeprefix("time:")))
    raise WrongStart("newest, oldest, offset:N or time:2026-01-31T12:00:00Z.")


def to_ms(moment: datetime) -> int:
    """Milliseconds since 1970, without the error of floating point."""
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * _MS + since.microseconds // _MS


def _milliseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongStart("A time is written as time:2026-01-31T12:00:00Z.") from None
    if moment.tzinfo is None:
        raise WrongStart("Say the offset from UTC, for example time:2026-01-31T12:00:00Z.")
    try:
        milliseconds = to_ms(moment)
    except OverflowError:
        raise WrongStart("The calendar ends before.") from None
    if milliseconds < 0:
        raise WrongStart("Times begin with 1970.")
    return milliseconds
