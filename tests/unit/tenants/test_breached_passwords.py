"""Search for a leaked password in a file that does not fit into memory."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tenants.breached_passwords import BreachedPasswordValidator, contains_password, file_is_readable


def written(file: Path, passwords: set[str], end: str = "\r\n") -> Path:
    digests = sorted(hashlib.sha1(word.encode()).hexdigest().upper() for word in passwords)
    file.write_bytes("".join(f"{digest}:{number**7}{end}" for number, digest in enumerate(digests)).encode())
    return file


@given(st.sets(st.text(max_size=8), max_size=40), st.text(max_size=8), st.sampled_from(["\r\n", "\n"]))
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_only_passwords_in_the_file_are_found(tmp_path: Path, passwords: set[str], other: str, end: str) -> None:
    file = written(tmp_path / "leaked", passwords, end)
    assert [word for word in passwords if not contains_password(file, word)] == []
    assert contains_password(file, other) is (other in passwords)


def test_a_leaked_password_is_refused(tmp_path: Path, settings: Any) -> None:
    settings.BREACHED_PASSWORDS_FILE = str(written(tmp_path / "leaked", {"correct horse battery staple"}))
    assert file_is_readable() == []
    validator = BreachedPasswordValidator()
    validator.validate("another horse in the stable")
    with pytest.raises(ValidationError, match="leaked"):
        validator.validate("correct horse battery staple")


@pytest.mark.parametrize("content", [None, b"", b"password\n", b"\0" * 1000])
def test_an_invalid_file_is_reported_at_the_start_and_refuses_nobody(
    tmp_path: Path, settings: Any, content: bytes | None
) -> None:
    file = tmp_path / "leaked"
    if content is not None:
        file.write_bytes(content)
    settings.BREACHED_PASSWORDS_FILE = str(file)
    assert [message.id for message in file_is_readable()] == ["penstock.E002"]
    BreachedPasswordValidator().validate("whatever it is")


def test_without_a_file_nothing_is_looked_up(settings: Any) -> None:
    settings.BREACHED_PASSWORDS_FILE = ""
    assert file_is_readable() == []
    BreachedPasswordValidator().validate("correct horse battery staple")
