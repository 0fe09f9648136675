"""Column of a sentence that is translated when it is shown."""

from __future__ import annotations

import json

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from tenants.errors import Message

UNIT_SEPARATOR = "\x1f"


class MessageField(models.TextField):
    """Text column that keeps the message id and the values of a `Message`.

    The column has the English sentence. Behind that of a `Message` follow a unit separator and the id and values as
    JSON. A sentence longer than `max_length` is cut and kept as plain text, so it is shown in English.
    """

    def from_db_value(self, value: str | None, _expression: object, _connection: BaseDatabaseWrapper) -> str | None:
        """Returns the text, as a `Message` if it was one."""
        if value is None:
            return None
        sentence, _separator, body = value.partition(UNIT_SEPARATOR)
        return Message.from_body(json.loads(body)) if body else sentence

    def get_prep_value(self, value: object) -> object:
        """Returns what the column has for a text or a `Message`."""
        if not isinstance(value, str):
            return super().get_prep_value(value)
        sentence = str(value).replace(UNIT_SEPARATOR, " ")
        if self.max_length is not None and len(sentence) > self.max_length:
            return sentence[: self.max_length]
        return sentence + UNIT_SEPARATOR + json.dumps(value.to_body()) if isinstance(value, Message) else sentence
