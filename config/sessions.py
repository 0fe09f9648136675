"""Sessions in PostgreSQL, asked for only by keys that we could have given out, and ended when idle or old.

A row is read with each request that asks who it is from, as before; when it was last seen stands in that row
(`tenants.models.Session`) and is written once a minute at most (`tenants.sessions.note_seen`).
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
    """A cookie may hold anything, U+0000 included, which PostgreSQL refuses: that is nobody's session, not a crash."""

    row: Any = None  # as it was read or made

    @classmethod
    def get_model_class(cls) -> Any:
        from tenants.models import Session  # apps are not ready when settings name this module

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
        """Insert, or change what a request changed: never a row that was ended meanwhile, and never its end."""
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
            values |= _beginning(is_signed_in=True)
        if not self.model.objects.filter(session_key=self.session_key).update(**values):
            raise UpdateError

    def _insert(self, data: dict[str, Any], user_id: str | None) -> None:
        row = self.get_model_class()(
            session_key=self.session_key, session_data=self.encode(data), user_id=user_id,
            **_beginning(is_signed_in=user_id is not None),
        )  # fmt: skip
        try:
            with transaction.atomic():
                row.save(force_insert=True)
        except IntegrityError:
            raise CreateError from None
        self.row = row


def _beginning(*, is_signed_in: bool) -> dict[str, Any]:
    """From when on a session counts, and when it ends whatever is done with it."""
    now = timezone.now()
    hours = settings.SESSION_DAYS_MAX * 24 if is_signed_in else ANONYMOUS_SESSION_HOURS_MAX
    return {"created_at": now, "last_seen_at": now, "expire_date": now + timedelta(hours=hours)}
