"""Queries that the database cancels: their error in pages and over REST, apart from other database errors."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.test import Client

from config.environment import BASE_DIR, PROCESS_VARIABLE
from tenants.slow_queries import is_query_cancelled
from tests.testkit.api_cases import Api, assert_problem, make_member

pytestmark = pytest.mark.django_db


def sleep_too_long(*_args: Any, **_options: Any) -> Any:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 20")
        cursor.execute("SELECT pg_sleep(30)")


def test_a_call_whose_query_is_given_up_says_so_and_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archives.access.archives_of", sleep_too_long)
    answer = Api.of(make_member()).get("/archives")
    assert_problem(answer, 503, "took_too_long")
    assert answer["Retry-After"] == "5"


def test_a_page_whose_query_is_given_up_says_so(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archives.selectors.list_with_progress", sleep_too_long)
    client.force_login(make_member().user)
    page = client.get("/archives/")
    assert (page.status_code, page["Retry-After"]) == (503, "5")
    assert "takes too long" in page.content.decode()


def test_other_database_errors_are_not_taken_for_a_timeout() -> None:
    assert not is_query_cancelled(OperationalError("the connection is lost"))
    assert not is_query_cancelled(ValueError())


@pytest.mark.parametrize(("process", "shown"), [("web", "20s"), ("worker", "0"), ("pipeline", "0")])
def test_queries_are_given_up_for_the_web_server_alone(process: str, shown: str) -> None:
    """Tasks that take hours go on in the worker."""
    given = connection.settings_dict
    place = f"host={given['HOST']}&port={given['PORT'] or 5432}"
    url = f"postgres://{given['USER']}:{given['PASSWORD']}@/{given['NAME']}?{place}"
    code = (
        "import django; django.setup()\n"
        "from django.db import connection\n"
        "with connection.cursor() as cursor:\n"
        "    cursor.execute('SHOW statement_timeout')\n"
        "    print(cursor.fetchone()[0])"
    )
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "config.settings", PROCESS_VARIABLE: process, "DATABASE_URL": url,
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=BASE_DIR, capture_output=True, check=True)
    assert done.stdout.decode().strip() == shown
