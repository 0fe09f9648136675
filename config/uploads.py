"""Refusal of file uploads: no page or route accepts files, so none is stored in memory or on disk."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import BadRequest
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler


class NoFiles(FileUploadHandler):
    """Refuses a form at its first file."""

    def new_file(self, *_args: Any, **_kwargs: Any) -> None:
        raise BadRequest("files are not taken here")

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes | None:
        raise AssertionError("no file was begun")

    def file_complete(self, file_size: int) -> UploadedFile | None:
        return None
