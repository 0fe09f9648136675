"""The pipeline's connection to PostgreSQL has the options of Django's."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from psycopg.conninfo import conninfo_to_dict

from billing import dsn


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replaces the options of the default database, and may be changed."""
    replaced: dict[str, Any] = {}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", replaced)
    return replaced


def test_a_server_that_vanishes_is_given_up_as_soon_as_by_django(options: dict[str, Any]) -> None:
    limits = {
        "connect_timeout": 5, "tcp_user_timeout": 10_000, "keepalives_idle": 10, "keepalives_interval": 5,
        "keepalives_count": 2,
    }  # fmt: skip
    options |= limits

    parts = conninfo_to_dict(dsn.conninfo())

    assert {name: int(str(parts[name])) for name in limits} == limits


def test_options_of_the_database_url_hold_for_the_pipeline(options: dict[str, Any]) -> None:
    given = {"sslmode": "verify-full", "target_session_attrs": "read-write", "options": "-c search_path=penstock"}
    options |= given

    assert given.items() <= conninfo_to_dict(dsn.conninfo()).items()


def test_a_limit_of_zero_is_passed_on(options: dict[str, Any]) -> None:
    options["keepalives"] = 0

    assert conninfo_to_dict(dsn.conninfo())["keepalives"] == "0"


def test_options_that_django_alone_understands_are_left_out(options: dict[str, Any]) -> None:
    options |= {"pool": True, "server_side_binding": True, "isolation_level": 2}

    assert not {"pool", "server_side_binding", "isolation_level"} & conninfo_to_dict(dsn.conninfo()).keys()
