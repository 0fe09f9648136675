"""/archives: isolated by tenant, limited, and never to a forbidden target."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape

from archives import address, job, limits, running, selectors, services
from archives.models import Archive, ArchiveFile, ArchivePartition, ArchiveState
from billing.models import UsageMinute
from tenants.actors import member_actor
from tenants.choices import Scope
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, Case, EndpointCases, assert_problem, make_member, pytest_generate_tests
from tests.testkit.fleet import make_running

__all__ = ["pytest_generate_tests"]

pytestmark = pytest.mark.django_db

KEYS = {"access_key_id": "AKIDEXAMPLE", "secret_access_key": "wJalrXUtnFEMI"}
BUCKET = "s3://acme-lake/orders?region=eu-central-1"


@pytest.fixture(autouse=True)
def root(settings: Any, tmp_path: Path) -> Path:
    settings.ARCHIVE_ROOT = tmp_path / "archives"
    return settings.ARCHIVE_ROOT


@pytest.fixture()
def owner() -> Member:
    return make_member()


def make_archive(owner: Member, url: str = "file:orders", **given: Any) -> Archive:
    instance = make_running(owner.tenant)
    return services.create(acting=member_actor(owner), instance=instance, topic="orders", url=url, **given)


class TestEndpointsOfArchives(EndpointCases):
    cases = (
        Case("GET", "/archives", Scope.ARCHIVES_READ),
        Case("GET", "/archives/{archive}", Scope.ARCHIVES_READ),
        Case("PATCH", "/archives/{archive}", Scope.ARCHIVES_WRITE, body={"is_paused": True}),
        Case("DELETE", "/archives/{archive}", Scope.ARCHIVES_WRITE, status=204),
        Case("POST", "/archives/{archive}/run", Scope.ARCHIVES_WRITE),
        Case("GET", "/archives/{archive}/files", Scope.ARCHIVES_READ),
    )

    def places(self, owner: Member) -> dict[str, str]:
        return {"archive": make_archive(owner).pk}


class TestCreationOfArchives(EndpointCases):
    """Cases of creation: the body names the instance, and another tenant's instance is not found."""

    cases = (
        Case(
            "POST", "/archives", Scope.ARCHIVES_WRITE, status=201,
            body={"instance_id": "ins-archive0", "topic": "orders", "url": BUCKET, **KEYS},
        ),
    )  # fmt: skip

    def places(self, owner: Member) -> dict[str, str]:
        make_running(owner.tenant, id="ins-archive0")
        return {}


def body(owner: Member, **given: Any) -> dict[str, Any]:
    return {"instance_id": make_running(owner.tenant).pk, "topic": "orders", "url": "file:orders", **given}


def test_an_instance_of_another_tenant_is_not_found(owner: Member) -> None:
    foreign = body(make_member())
    assert_problem(Api.of(owner).post("/archives", foreign), 404, "not_found")
    assert not Archive.objects.exists()


@pytest.mark.parametrize(
    "url",
    [
        "file:", "file:/etc", "file:///etc", "file://host/x", "file:../other", "file:a/../../b", "file:.hidden",
        "file:a//b", "file:a%2f..%2fb", "file:a\\..\\b", "file:a?x=1", "http://example.com/", "gs://b/x", "s3://",
        "s3:///x?region=eu-central-1",
        "s3://acme-lake/x", "s3://acme-lake/../x?region=eu-central-1", "s3://key:secret@acme-lake/x?region=eu-central-1",
        "s3://acme.evil.example/x?region=eu-central-1", "s3://acme-lake/x?region=evil.example/",
        "s3://Acme/x?region=eu-central-1",
        "s3://acme-lake/x?region=eu-central-1&region=us-east-1", "s3://acme-lake/x?region=eu-central-1&scheme=http",
        "s3://acme-lake/x?region=eu-central-1&anonymous=true",
        "s3://acme-lake/x?region=eu-central-1&endpoint=http://s3.example.com",
        "s3://acme-lake/x?region=eu-central-1&endpoint=https://127.0.0.1",
        "s3://acme-lake/x?region=eu-central-1&endpoint=https://[::1]",
        "s3://acme-lake/x?region=eu-central-1&endpoint=https://169.254.169.254", "s3://acme-lake/x?region=eu-central-1#f",
        "s3://acme-lake/x?region=eu-central-1&endpoint=https://u@s3.example.com",
        "s3://acme-lake/x y?region=eu-central-1",
        "s3://acme-lake/x?region=eu-central-1&endpoint=https://s3.example.com:22",
        "s3://acme-lake/x?region=eu-central-1&endpoint=10.0.0.1",
    ],
)  # fmt: skip
def test_an_address_that_leads_elsewhere_is_refused_and_changes_nothing(owner: Member, url: str) -> None:
    wanted = body(owner, url=url, **(KEYS if url.startswith("s3") else {}))
    problem = assert_problem(Api.of(owner).post("/archives", wanted), 400, "invalid_request")
    assert problem["errors"][0]["pointer"] == "/url"
    assert not Archive.objects.exists()


def test_a_folder_is_refused_where_the_operator_has_named_no_root(owner: Member, settings: Any) -> None:
    settings.ARCHIVE_ROOT = None
    assert_problem(Api.of(owner).post("/archives", body(owner)), 400, "invalid_request")


def test_a_link_out_of_the_tenants_folder_is_not_followed(owner: Member, root: Path, tmp_path: Path) -> None:
    archive = make_archive(owner, "file:out/x")
    (root / owner.tenant.pk).mkdir(parents=True)
    (root / owner.tenant.pk / "out").symlink_to(tmp_path)
    with pytest.raises(address.AddressRefused), address.open_destination(running.store_of(archive)):
        pass


@pytest.mark.parametrize(
    "given",
    [
        {"topic": ".."}, {"topic": "a/b"}, {"url": BUCKET}, {"url": BUCKET, "access_key_id": "x"}, {"username": "ada"},
        {"password": "x"}, KEYS, {"interval_minutes": 0}, {"interval_minutes": 1_441}, {"on_gap": "guess"},
    ],
)  # fmt: skip
def test_half_an_archive_is_refused(owner: Member, given: dict[str, Any]) -> None:
    assert_problem(Api.of(owner).post("/archives", body(owner, **given)), 400, "invalid_request")
    assert not Archive.objects.exists()


ORDERS = [{"name": "id", "type": "integer"}, {"name": "at", "type": "timestamp"}]


def test_columns_pace_and_size_are_kept_as_they_were_given(owner: Member) -> None:
    api = Api.of(owner)
    given = {"value_format": "json", "value_schema": ORDERS, "run_after_bytes": 5_000_000, "bytes_per_s_max": 10_000}
    made = api.post("/archives", body(owner, **given))
    assert made.status_code == 201, made.content
    assert {name: made.json()[name] for name in given} == given
    changed = api.patch(f"/archives/{made.json()['id']}", {"run_after_bytes": None, "bytes_per_s_max": 2_000_000})
    assert (changed.json()["run_after_bytes"], changed.json()["bytes_per_s_max"]) == (None, 2_000_000)
    assert_problem(api.patch(f"/archives/{made.json()['id']}", {"value_format": "raw"}), 400, "invalid_request")


@pytest.mark.parametrize(
    "given",
    [
        {"value_format": "json"}, {"value_format": "json", "value_schema": []}, {"value_schema": ORDERS},
        {"value_format": "avro", "value_schema": ORDERS}, {"value_format": "protobuf", "value_schema": ORDERS},
        {"value_format": "json", "value_schema": ORDERS * 2_000},
        {"bytes_per_s_max": 9_999}, {"bytes_per_s_max": 10**12}, {"run_after_bytes": 1}, {"run_after_bytes": "5 MB"},
    ],
)  # fmt: skip
def test_columns_and_paces_that_cannot_be_are_refused(owner: Member, given: dict[str, Any]) -> None:
    assert_problem(Api.of(owner).post("/archives", body(owner, **given)), 400, "invalid_request")
    assert not Archive.objects.exists()


def test_an_archive_is_due_as_soon_as_its_topic_has_taken_enough(owner: Member) -> None:
    """The unread bytes are those produced to this topic since the archive's last run."""
    archive = make_archive(owner, run_after_bytes=5_000_000)
    now = timezone.now()
    Archive.objects.update(last_run_at=now - timedelta(minutes=10), next_run_at=now + timedelta(minutes=50))

    def count(topic: str, minutes_ago: int, size: int, direction: str = "produce") -> None:
        minute = (now - timedelta(minutes=minutes_ago)).replace(second=0, microsecond=0)
        UsageMinute.objects.create(
            instance_id=archive.instance_id, minute=minute, topic=topic, user="", client_id=f"{size}-{minutes_ago}",
            direction=direction, bytes=size, requests=1,
        )  # fmt: skip

    for topic, minutes_ago, size, direction in (
        ("orders", 30, 9_000_000, "produce"), ("orders", 3, 9_000_000, "consume"), ("others", 3, 9_000_000, "produce"),
        ("orders", 3, 2_500_000, "produce"), ("orders", 2, 2_499_999, "produce"),
    ):  # fmt: skip
        count(topic, minutes_ago, size, direction)
    assert running.advance_by_received_bytes(now) == 0
    count("orders", 4, 1)
    assert running.advance_by_received_bytes(now) == 1
    archive.refresh_from_db()
    assert archive.next_run_at == now
    assert running.advance_by_received_bytes(now) == 0, "it is due"


def test_passwords_and_keys_are_sealed_and_shown_to_nobody(owner: Member) -> None:
    api = Api.of(owner)
    wanted = body(owner, url=BUCKET, username="ada", password="opensesame", **KEYS)
    made = api.post("/archives", wanted)
    assert made.status_code == 201, made.content
    stored = Archive.objects.get()
    for secret, kept in (("opensesame", stored.password), (KEYS["secret_access_key"], stored.secret_access_key)):
        assert secret not in kept and running.decrypt(kept) == secret
        for answer in (made, api.get(f"/archives/{stored.pk}"), api.get("/archives")):
            assert secret not in answer.content.decode() and kept not in answer.content.decode()
        assert secret not in repr(running.store_of(stored))
        assert not any(secret in str([row.before, row.after]) for row in AuditEntry.objects.all())


def test_a_tenant_has_a_named_number_of_archives_and_one_of_a_topic_at_an_address(
    owner: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ARCHIVES_PER_TENANT_MAX", 2)
    api, wanted = Api.of(owner), body(owner)
    assert api.post("/archives", wanted).status_code == 201
    assert_problem(api.post("/archives", wanted), 409, "name_taken")
    assert api.post("/archives", {**wanted, "topic": "payments"}).status_code == 201
    problem = api.post("/archives", {**wanted, "topic": "returns"})
    assert_problem(problem, problem.status_code)
    assert problem.status_code >= 400 and Archive.objects.count() == 2


def test_a_paused_archive_is_not_due_and_is_not_run_until_it_is_resumed(owner: Member) -> None:
    archive = make_archive(owner)
    api = Api.of(owner)
    assert api.patch(f"/archives/{archive.pk}", {"is_paused": True}).json()["state"] == "paused"
    assert running.run_due(no_session, timezone.now()) == 0
    assert_problem(api.post(f"/archives/{archive.pk}/run"), 409, "paused")
    assert api.patch(f"/archives/{archive.pk}", {"is_paused": False}).json()["state"] == "active"
    assert api.post(f"/archives/{archive.pk}/run").status_code == 200


def test_the_command_says_how_many_runs_were_made(owner: Member, capsys: pytest.CaptureFixture[str]) -> None:
    archive = make_archive(owner)
    archive.instance.routes.all().delete()
    call_command("archives", "run")
    call_command("archives", "run")
    assert capsys.readouterr().out == "1 runs\n0 runs\n"


def no_session() -> Any:
    raise AssertionError("nothing is to be read")


def test_a_deleted_archive_is_not_found_and_its_folder_is_deleted_by_the_next_run(owner: Member, root: Path) -> None:
    archive, kept = make_archive(owner), make_archive(owner)
    folders = [root / owner.tenant.pk / "orders" / each.pk for each in (archive, kept)]
    for folder in folders:
        (folder / "orders").mkdir(parents=True)
        (folder / "orders" / "00000-00000000000000000000.parquet").write_bytes(b"PAR1")
    services.change(acting=member_actor(owner), archive=kept, changes={"is_paused": True})
    api = Api.of(owner)
    assert api.delete(f"/archives/{archive.pk}").status_code == 204
    assert_problem(api.get(f"/archives/{archive.pk}"), 404, "not_found")
    assert [each["id"] for each in api.get("/archives").json()["items"]] == [kept.pk]
    running.run_due(no_session, timezone.now())
    assert [folder.exists() for folder in folders] == [False, True]
    assert list(Archive.objects.all()) == [kept]


def test_an_archive_beyond_the_tenants_disk_share_reports_an_error(
    owner: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = make_archive(owner)
    ArchiveFile.objects.create(
        archive=archive, path="x", partition=0, first_offset=0, last_offset=0, rows=1, bytes=10, content_sum=1
    )
    monkeypatch.setattr(limits, "FILE_BYTES_PER_TENANT_MAX", 10)
    running.run_due(no_session, timezone.now())
    archive.refresh_from_db()
    assert "which is the most" in archive.error and archive.next_run_at > timezone.now()


def test_an_archive_of_very_many_small_files_is_not_run_either(owner: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = make_archive(owner)
    for number in range(3):
        ArchiveFile.objects.create(
            archive=archive,
            path=f"x{number}",
            partition=0,
            first_offset=0,
            last_offset=0,
            rows=1,
            bytes=1,
            content_sum=1,
        )  # fmt: skip
    monkeypatch.setattr(limits, "FILES_PER_TENANT_MAX", 3)
    running.run_due(no_session, timezone.now())
    archive.refresh_from_db()
    assert "3 files, which is the most" in archive.error and archive.next_run_at > timezone.now()


def test_lag_of_a_topic_that_was_made_anew_is_all_of_the_new_one(owner: Member) -> None:
    archive = make_archive(owner)
    ArchivePartition.objects.create(
        archive=archive, partition=0, next_offset=100, end_offset=60, is_of_deleted=True, error="Why"
    )
    (shown,) = Api.of(owner).get(f"/archives/{archive.pk}").json()["partitions"]
    assert shown["lag"] == 60 == selectors.progress_of(archive).lag


def test_progress_and_errors_are_shown_for_each_partition(owner: Member) -> None:
    archive = make_archive(owner)
    ArchivePartition.objects.create(
        archive=archive, partition=0, next_offset=40, end_offset=100, skipped_records=2, missed_offsets=7, error="Why"
    )
    (shown,) = Api.of(owner).get(f"/archives/{archive.pk}").json()["partitions"]
    assert (shown["lag"], shown["skipped_records"], shown["missed_offsets"], shown["error"]) == (60, 2, 7, "Why")


def test_a_route_to_a_host_that_the_tenant_named_is_not_used(owner: Member) -> None:
    archive = make_archive(owner)
    archive.instance.routes.update(
        security="plaintext", endpoints={"1": "169.254.169.254:80"}, advertised_host="169.254.169.254"
    )
    running.run_due(no_session, timezone.now())
    archive.refresh_from_db()
    assert "at the brokers' own hosts" in archive.error


def test_an_instance_whose_routes_ask_for_a_user_says_so(owner: Member) -> None:
    archive = make_archive(owner)
    archive.instance.routes.update(security="sasl_plaintext", endpoints={"1": "127.0.0.1:1"})
    running.run_due(no_session, timezone.now())
    archive.refresh_from_db()
    assert "asks for a user" in archive.error and archive.state == ArchiveState.ACTIVE


def test_a_run_that_was_asked_for_while_another_is_under_way_is_due_after_it(owner: Member) -> None:
    """The run's own schedule replaces only the one it was started by."""
    made = make_archive(owner)
    taken = Archive.objects.get(pk=made.pk)
    asked = Api.of(owner).post(f"/archives/{made.pk}/run").json()["next_run_at"]
    finished_report = job.ArchiveRunReport(records=0, files=0, is_caught_up=True, error="")
    for note in (
        lambda: job.store_report(taken, timezone.now(), finished_report),
        lambda: job.store_failure(taken, timezone.now(), "The password is wrong."),
    ):
        note()
        made.refresh_from_db()
        assert made.next_run_at == datetime.fromisoformat(asked) and made.last_run_at is not None
    assert made.error == "The password is wrong."
    job.store_report(made, timezone.now(), finished_report)
    made.refresh_from_db()
    assert made.next_run_at > timezone.now() and made.error == ""


def test_an_archive_that_is_deleted_while_it_runs_is_deleted_at_once(owner: Member) -> None:
    made = make_archive(owner)
    taken = Archive.objects.get(pk=made.pk)
    services.delete(acting=member_actor(owner), archive=made)
    job.store_failure(taken, timezone.now(), "The bucket is gone.")
    running.run_due(no_session, timezone.now())
    assert not Archive.objects.exists()


def test_a_deletion_that_fails_leaves_its_reason_and_is_tried_again_after_a_pause(
    owner: Member, root: Path, tmp_path: Path
) -> None:
    archive = make_archive(owner, "file:out/x")
    (root / owner.tenant.pk).mkdir(parents=True)
    link = root / owner.tenant.pk / "out"
    link.symlink_to(tmp_path)
    services.delete(acting=member_actor(owner), archive=archive)
    now = timezone.now()
    assert running.run_due(no_session, now) == 1
    archive.refresh_from_db()
    assert archive.error == "The folder is not the tenant's."
    pause = timedelta(minutes=limits.RETRY_MINUTES)
    assert running.run_due(no_session, now + pause / 2) == 0
    link.unlink()
    assert running.run_due(no_session, now + pause) == 1
    assert not Archive.objects.exists()


@pytest.fixture()
def browse(client: Client) -> Callable[[Member], Client]:
    def signed_in(member: Member) -> Client:
        client.force_login(member.user)
        return client

    return signed_in


def test_the_page_shows_progress_errors_and_how_the_files_are_read(
    owner: Member, browse: Callable[[Member], Client]
) -> None:
    archive = make_archive(owner, BUCKET, **KEYS)
    Archive.objects.update(error="The bucket is <gone>.")
    ArchivePartition.objects.create(archive=archive, partition=3, next_offset=40, end_offset=1_040, skipped_records=7)
    pages = browse(owner)
    table = pages.get(reverse("page-archives")).content.decode()
    assert "The bucket is &lt;gone&gt;." in table and "1,000" in table and "orders" in table
    page = pages.get(reverse("page-archive", args=[archive.pk])).content.decode()
    assert "The bucket is &lt;gone&gt;." in page and "1,000" in page
    assert escape(f'spark.read.parquet("s3a://acme-lake/orders/{archive.pk}/orders")') in page
    place = f"s3://acme-lake/orders/{archive.pk}/orders?region=eu-central-1"
    assert escape(f'ds.dataset("{place}", partitioning="hive").to_table()') in page
    assert KEYS["secret_access_key"] not in page


ID = '{"name": "id", "type": "long"}'


def test_an_archive_is_made_paused_resumed_and_deleted_on_the_page(
    owner: Member, browse: Callable[[Member], Client]
) -> None:
    pages = browse(owner)
    form = body(
        owner, interval_minutes=5, on_gap="skip", on_bad_record="fail", value_format="json", mb_per_s_max=3,
        value_schema='[{"name": "id", "type": "integer"}]',
    )  # fmt: skip
    for wrong in (
        {"url": "file:../x"},
        {"value_schema": "[" * 20_000},
        {"value_schema": "{"},
        {"mb_per_s_max": 0},
        *(
            {"value_format": "avro", "value_schema": f'{{"type": "record", "doc": "{text}", "fields": [{ID}]}}'}
            for text in ("\\u0000", "\\ud800", "x" * 20_000)
        ),
    ):
        assert pages.post(reverse("page-archives"), form | wrong).status_code == 422
    assert pages.post(reverse("page-archives"), form).status_code == 302
    archive = Archive.objects.get()
    assert (archive.interval_minutes, archive.on_gap, archive.on_bad_record) == (5, "skip", "fail")
    assert (archive.value_schema, archive.bytes_per_s_max) == ([{"name": "id", "type": "integer"}], 3_000_000)
    for act, state in (("pause", "paused"), ("run", "paused"), ("resume", "active"), ("delete", "deleting")):
        assert pages.post(reverse("page-archive-act", args=[archive.pk, act]), {"confirmed": "yes"}).status_code == 302
        archive.refresh_from_db()
        assert archive.state == state


def test_another_tenants_archive_cannot_be_changed_on_the_page(
    owner: Member, browse: Callable[[Member], Client]
) -> None:
    archive = make_archive(owner)
    pages = browse(make_member())
    for act in ("run", "pause", "resume", "delete"):
        assert pages.post(reverse("page-archive-act", args=[archive.pk, act])).status_code == 404
    own_page = reverse("page-archive", args=[archive.pk])
    assert pages.get(own_page).status_code == pages.post(own_page, {"interval_minutes": 1}).status_code == 404
    assert archive.pk not in pages.get(reverse("page-archives")).content.decode()
    archive.refresh_from_db()
    assert archive.state == ArchiveState.ACTIVE


def test_changes_on_the_page_leave_empty_secrets_as_they_are(owner: Member, browse: Callable[[Member], Client]) -> None:
    archive = make_archive(owner, BUCKET, username="ada", password="opensesame", **KEYS)
    pages = browse(owner)
    form = {
        "interval_minutes": 7, "run_after_mb": 5, "on_gap": "skip", "on_bad_record": "skip", "username": "ada",
        "access_key_id": KEYS["access_key_id"],
    }  # fmt: skip
    assert pages.post(reverse("page-archive", args=[archive.pk]), form).status_code == 302
    archive.refresh_from_db()
    assert (archive.interval_minutes, archive.run_after_bytes, archive.bytes_per_s_max) == (7, 5_000_000, None)
    assert running.decrypt(archive.password) == "opensesame"
    assert running.decrypt(archive.secret_access_key) == KEYS["secret_access_key"]
    assert pages.post(reverse("page-archive", args=[archive.pk]), form | {"access_key_id": ""}).status_code == 422
    assert pages.post(reverse("page-archive", args=[archive.pk]), form | {"username": ""}).status_code == 302
    archive.refresh_from_db()
    assert (archive.username, archive.password) == ("", "")


def test_an_archive_on_our_disks_is_changed_without_keys(owner: Member, browse: Callable[[Member], Client]) -> None:
    archive = make_archive(owner)
    pages = browse(owner)
    assert "access_key_id" not in pages.get(reverse("page-archive", args=[archive.pk])).content.decode()
    form = {"interval_minutes": 9, "on_gap": "skip", "on_bad_record": "skip"}
    assert pages.post(reverse("page-archive", args=[archive.pk]), form).status_code == 302
    archive.refresh_from_db()
    assert (archive.interval_minutes, archive.on_gap, archive.access_key_id) == (9, "skip", "")


def test_a_thousand_partitions_are_pages_of_fifty(
    owner: Member, browse: Callable[[Member], Client], django_assert_max_num_queries: Any
) -> None:
    archive = make_archive(owner)
    ArchivePartition.objects.bulk_create(
        ArchivePartition(archive=archive, partition=number, next_offset=0, end_offset=7) for number in range(1_000)
    )
    pages = browse(owner)
    with django_assert_max_num_queries(30):
        page = pages.get(reverse("page-archive", args=[archive.pk])).content.decode()
    assert page.count('<td class="num">') == 50 and "7,000" in page


def test_an_archive_that_has_ended_is_neither_run_nor_changed(owner: Member) -> None:
    archive = make_archive(owner)
    Archive.objects.update(state=ArchiveState.ENDED)
    api = Api.of(owner)
    assert_problem(api.post(f"/archives/{archive.pk}/run"), 409, "ended")
    assert_problem(api.patch(f"/archives/{archive.pk}", {"is_paused": False}), 409, "ended")
    assert api.delete(f"/archives/{archive.pk}").status_code == 204
