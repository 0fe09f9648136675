"""Sessions in PostgreSQL, looked up by well-formed keys only, with idle and absolute timeouts.

A row is read with each request that uses the session; it also contains the last use (`tenants.models.Session`), which
is written at most once a minute (`tenants.sessions.record_seen`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.base import VALID_KEY_CHARS, CreateError, UpdateError
from django.contrib.sessions.backends.db import SessionStore as DatabaseSessions
from django.db import IntegrityError, transaction
from django.utils import timezone

from tenants.limits import ANONYMOUS_SESSION_HOURS_MAX

KEY_CHARS = frozenset(VALID_KEY_CHARS)


class SessionStore(DatabaseSessions):
    """Session store that treats malformed cookies as unknown: PostgreSQL refuses U+0000, for example."""

    row: Any = None  # row as it was read or created

    @classmethod
    def get_model_class(cls) -> Any:
        from tenants.models import Session  # apps are not ready when the settings name this module

        return Session

    def _validate_session_key(self, key: str | None) -> bool:
        return bool(super()._validate_session_key(key)) and KEY_CHARS.issuperset(key or "")  # type: ignore[misc]

    def _get_session_from_db(self) -> Any:
        row = super()._get_session_from_db()  # type: ignore[misc]
        if row is not None and row.last_seen_at <= timezone.now() - timedelta(seconds=settings.SESSION_IDLE_S):
            self._session_key = None  # the task `tenants.forget_ended_sessions` deletes it
            return None
        self.row = row
        return row

    def save(self, must_create: bool = False) -> None:
        """Inserts or updates the session; never restores a row that was deleted meanwhile. Only a sign-in sets a new
        start and end.
        """
        if self.session_key is None:
            self.create()
            return
        data = self._get_session(no_load=must_create)  # type: ignore[attr-defined]
        user_id = data.get(SESSION_KEY)
        if must_create:
            self._insert(data, user_id)
            return
        values = {"session_data": self.encode(data), "user_id": user_id}
        if user_id is not None and (self.row is None or self.row.user_id != user_id):
            values |= _session_times(is_signed_in=True)
        if not self.model.objects.filter(session_key=self.session_key).update(**values):
            raise UpdateError

    def _insert(self, data: dict[str, Any], user_id: str | None) -> None:
        row = self.get_model_class()(
            session_key=self.session_key, session_data=self.encode(data), user_id=user_id,
            **_session_times(is_signed_in=user_id is not None),
        )  # fmt: skip
        try:
            with transaction.atomic():
                row.save(force_insert=True)
        except IntegrityError:
            raise CreateError from None
        self.row = row


def _session_times(*, is_signed_in: bool) -> dict[str, Any]:
    """Returns the start, the last use and the absolute end of a session that starts now."""
    now = timezone.now()
    hours = settings.SESSION_DAYS_MAX * 24 if is_signed_in else ANONYMOUS_SESSION_HOURS_MAX
    return {"created_at": now, "last_seen_at": now, "expire_date": now + timedelta(hours=hours)}
