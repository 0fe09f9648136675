"""/archives in a database: never to a forbidden server, and its password shown to nobody."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape

from archives import running, services
from archives.models import Archive, ArchivePartition
from tenants.actors import member_actor
from tenants.choices import Scope
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, Case, EndpointCases, assert_problem, make_member, pytest_generate_tests
from tests.testkit.fleet import make_running

__all__ = ["pytest_generate_tests"]

pytestmark = pytest.mark.django_db

BUCKET = "s3://acme-lake/orders?region=eu-central-1"
KEYS = {"access_key_id": "AKIDEXAMPLE", "secret_access_key": "wJalrXUtnFEMI"}
TABLE = "postgresql://db.example.com/lake?schema=kafka&table=orders"
LOGIN = {"database_user": "loader", "database_password": "open sesame"}


@pytest.fixture()
def owner() -> Member:
    return make_member()


def make_archive(owner: Member) -> Archive:
    instance = make_running(owner.tenant)
    return services.create(acting=member_actor(owner), instance=instance, topic="orders", url=TABLE, **LOGIN)


def body(owner: Member, **given: Any) -> dict[str, Any]:
    return {"instance_id": make_running(owner.tenant).pk, "topic": "orders", "url": TABLE, **given}


class TestEndpointsOfArchivesInDatabases(EndpointCases):
    cases = (
        Case("GET", "/archives/{archive}", Scope.ARCHIVES_READ),
        Case("PATCH", "/archives/{archive}", Scope.ARCHIVES_WRITE, body={"database_user": "writer"}),
        Case("DELETE", "/archives/{archive}", Scope.ARCHIVES_WRITE, status=204),
        Case("POST", "/archives/{archive}/run", Scope.ARCHIVES_WRITE),
        Case("GET", "/archives/{archive}/files", Scope.ARCHIVES_READ),
    )

    def places(self, owner: Member) -> dict[str, str]:
        return {"archive": make_archive(owner).pk}


class TestCreationOfArchivesInDatabases(EndpointCases):
    cases = (
        Case(
            "POST", "/archives", Scope.ARCHIVES_WRITE, status=201,
            body={"instance_id": "ins-archive0", "topic": "orders", "url": TABLE, **LOGIN},
        ),
    )  # fmt: skip

    def places(self, owner: Member) -> dict[str, str]:
        make_running(owner.tenant, id="ins-archive0")
        return {}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db.example.com/lake", "postgresql://db.example.com/lake?table=", "postgresql:///lake?table=orders",
        "postgresql://db.example.com/?table=orders", "postgresql://db.example.com/a/b?table=orders",
        "postgresql://ada@db.example.com/lake?table=orders", "postgresql://ada:x@db.example.com/lake?table=orders",
        "postgresql://a.example,b.example/lake?table=orders", "postgresql://%2Ftmp/lake?table=orders",
        "postgresql://db.example.com:22/lake?table=orders", "postgresql://db.example.com:0/lake?table=orders",
        "postgresql://127.0.0.1/lake?table=orders", "postgresql://[::1]/lake?table=orders",
        "postgresql://169.254.169.254/lake?table=orders", "postgresql://db.example.com/lake?table=penstock_loads",
        "postgresql://db.example.com/lake?table=orders&sslmode=disable",
        "postgresql://db.example.com/lake?table=orders&sslmode=prefer",
        "postgresql://db.example.com/lake?table=orders&passfile=/etc/passwd",
        "postgresql://db.example.com/lake?table=orders&table=others",
        "postgresql://db.example.com/lake?table=a%22b", "postgresql://db.example.com/lake?table=a;drop",
        "postgresql://db.example.com/lake?table=a.b", "postgresql://db.example.com/lake?schema=&table=orders",
        f"postgresql://db.example.com/lake?table={'x' * 64}", "postgresql://db.example.com/host=x?table=orders",
        "postgresql://db.example.com/lake?table=orders#f", "postgres://db.example.com/lake?table=orders",
    ],
)  # fmt: skip
def test_an_address_that_leads_elsewhere_is_refused_and_changes_nothing(owner: Member, url: str) -> None:
    problem = assert_problem(Api.of(owner).post("/archives", body(owner, url=url, **LOGIN)), 400, "invalid_request")
    assert problem["errors"][0]["pointer"] == "/url"
    assert not Archive.objects.exists()


@pytest.mark.parametrize(
    "given",
    [
        {}, {"database_user": "loader"}, {"database_password": "x"}, LOGIN | KEYS, LOGIN | {"access_key_id": "x"},
        LOGIN | KEYS | {"url": BUCKET}, LOGIN | {"url": "file:orders"},
        LOGIN | {"value_format": "json", "value_schema": [{"name": "id", "type": "integer"}]},
        LOGIN | {"database_password": "x" * 401}, LOGIN | {"database_password": "\U0001f511" * 400},
        LOGIN | {"database_user": "x" * 201},
    ],
)  # fmt: skip
def test_half_an_archive_is_refused(owner: Member, given: dict[str, Any], settings: Any, tmp_path: Any) -> None:
    settings.ARCHIVE_ROOT = tmp_path
    assert_problem(Api.of(owner).post("/archives", body(owner, **given)), 400, "invalid_request")
    assert not Archive.objects.exists()


def test_the_password_of_a_database_is_sealed_changed_and_shown_to_nobody(owner: Member) -> None:
    api = Api.of(owner)
    assert api.post("/archives?dry_run=true", body(owner, url=TABLE, **LOGIN)).status_code == 201
    assert not Archive.objects.exists()
    made = api.post("/archives", body(owner, url=TABLE, **LOGIN))
    assert made.status_code == 201, made.content
    stored = Archive.objects.get()
    assert running.decrypt(stored.database_password) == LOGIN["database_password"]
    path = f"/archives/{stored.pk}"
    changed = api.patch(path, {"database_user": "writer", "database_password": "another"})
    assert changed.json()["database_user"] == "writer"
    assert_problem(api.patch(path, {"database_password": ""}), 400, "invalid_request")
    stored.refresh_from_db()
    database = running.database_of(stored)
    assert (database.user, database.password) == ("writer", "another")
    for answer in (made, changed, api.get(path), api.get("/archives")):
        text = answer.content.decode()
        assert "open sesame" not in text and "another" not in text and stored.database_password not in text
    assert "another" not in repr(database)
    assert not any("another" in str([row.before, row.after]) for row in AuditEntry.objects.all())


def test_an_archive_in_a_database_is_made_shown_and_changed_on_the_page(owner: Member, client: Client) -> None:
    client.force_login(owner.user)
    form = body(
        owner, url=TABLE, interval_minutes=5, on_gap="skip", on_bad_record="skip", value_format="raw", **LOGIN
    )  # fmt: skip
    refused = client.post(reverse("page-archives"), form | {"database_password": ""})
    assert refused.status_code == 422 and "needs a user of the database" in refused.content.decode()
    assert client.post(reverse("page-archives"), form).status_code == 302
    archive = Archive.objects.get()
    ArchivePartition.objects.create(archive=archive, partition=0, next_offset=40, end_offset=40, loaded_rows=1_234)
    page = client.get(reverse("page-archive", args=[archive.pk])).content.decode()
    assert escape('FROM "kafka"."orders"') in page and "pyarrow" not in page and "1,234" in page
    assert "database_user" in page and "access_key_id" not in page and LOGIN["database_password"] not in page
    assert "1,234" in client.get(reverse("page-archives")).content.decode()
    change = {"interval_minutes": 7, "on_gap": "skip", "on_bad_record": "skip", "database_user": "writer"}
    assert client.post(reverse("page-archive", args=[archive.pk]), change).status_code == 302
    archive.refresh_from_db()
    assert (archive.interval_minutes, archive.database_user) == (7, "writer")
    assert running.decrypt(archive.database_password) == LOGIN["database_password"]


def test_a_deleted_archive_in_a_database_leaves_its_rows(owner: Member) -> None:
    archive = make_archive(owner)
    services.delete(acting=member_actor(owner), archive=archive)

    def no_session() -> Any:
        raise AssertionError("nothing is to be read")

    running.run_due(no_session, timezone.now())
    assert not Archive.objects.exists()
