"""Sessions in PostgreSQL, asked for only by keys that we could have given out."""

from __future__ import annotations

from django.contrib.sessions.backends.base import VALID_KEY_CHARS
from django.contrib.sessions.backends.db import SessionStore as DatabaseSessions

KEY_CHARS = frozenset(VALID_KEY_CHARS)


class SessionStore(DatabaseSessions):
    """A cookie may hold anything, U+0000 included, which PostgreSQL refuses: that is nobody's session, not a crash."""

    def _validate_session_key(self, key: str | None) -> bool:
        return bool(super()._validate_session_key(key)) and KEY_CHARS.issuperset(key or "")  # type: ignore[misc]
