"""Sentences in rows that are translated when they are shown: a column, and an entry of a JSON document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from tenants.errors import Message

UNIT_SEPARATOR = "\x1f"
# End of the name of the entry with the id and values of a message, beside that with its text.
BODY = "_message"


def entries(name: str, sentence: str, chars_max: int | None = None) -> dict[str, Any]:
    """Returns the entries of a JSON document that store a sentence: its English text, and id and values of a `Message`.

    A sentence longer than `chars_max` is cut and stored as text only.
    """
    text = str(sentence)[:chars_max]
    is_whole = len(text) == len(sentence)
    return {name: text, name + BODY: sentence.to_body() if isinstance(sentence, Message) and is_whole else None}


def entry(document: Mapping[str, Any], name: str) -> str:
    """Returns the sentence that `entries` stored in a document."""
    body = document.get(name + BODY)
    return Message.from_body(body) if body else str(document.get(name, ""))


class MessageField(models.TextField):
    """Text column that also stores the message id and the values of a `Message`.

    The column contains the English sentence. That of a `Message` is followed by a unit separator and the id and values
    as JSON. A sentence longer than `max_length` is cut and stored as plain text, so it is shown in English.
    """

    def from_db_value(self, value: str | None, _expression: object, _connection: BaseDatabaseWrapper) -> str | None:
        """Returns the text, as a `Message` if it was one."""
        if value is None:
            return None
        sentence, _separator, body = value.partition(UNIT_SEPARATOR)
        return Message.from_body(json.loads(body)) if body else sentence

    def get_prep_value(self, value: object) -> object:
        """Returns the content of the column for a text or a `Message`."""
        if not isinstance(value, str):
            return super().get_prep_value(value)
        sentence = str(value).replace(UNIT_SEPARATOR, " ")
        if self.max_length is not None and len(sentence) > self.max_length:
            return sentence[: self.max_length]
        return sentence + UNIT_SEPARATOR + json.dumps(value.to_body()) if isinstance(value, Message) else sentence
