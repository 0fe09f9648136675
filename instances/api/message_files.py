"""HTTP response with a page of messages as a file, for the REST API and the console."""

from __future__ import annotations

from django.http import HttpResponse, HttpResponseBase
from django.utils.translation import gettext_noop

from instances.api.message_serializers import MessageOut
from instances.messages import files
from instances.services.messages import MessagePage
from tenants import csv_files
from tenants.errors import NotFound


def message_file(page: MessagePage, topic: str, file_format: str) -> HttpResponseBase:
    """Returns the messages of a page in one of `files.FILE_FORMATS`.

    The response is an attachment, so that a browser saves it and never renders it: its content comes from Kafka
    clients. Raises `NotFound` for the format `value` if the page has no message, or its message has no value.
    """
    if file_format == files.VALUE:
        return _value(page, topic)
    api_messages = MessageOut(page.messages, many=True).data
    name = f"{topic}{files.SUFFIXES[file_format]}"
    if file_format == files.CSV:
        return csv_files.response(name, files.CSV_COLUMNS, files.csv_rows(page.messages, api_messages))
    body = files.zipped(page.messages, api_messages) if file_format == files.ZIP else files.json_lines(api_messages)
    return _attachment(body, name, file_format)


def _value(page: MessagePage, topic: str) -> HttpResponse:
    record = page.messages[0].record if page.messages else None
    if record is None or record.value is None:
        raise NotFound(gettext_noop("There is no message with a value at this place."))
    return _attachment(record.value, f"{topic}-{record.partition}-{record.offset}.bin", files.VALUE)


def _attachment(body: bytes | str, name: str, file_format: str) -> HttpResponse:
    response = HttpResponse(body, content_type=files.MEDIA_TYPES[file_format])
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
