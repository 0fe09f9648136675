"""Archives of topics that get masks later: without `messages:unmask` they read no further."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from archives import running, services
from archives.models import Archive
from instances.models import Instance
from instances.topic_models import TopicMask
from tenants.actors import member_actor
from tenants.choices import Role
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.fleet import make_running

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def root(settings: Any, tmp_path: Path) -> None:
    settings.ARCHIVE_ROOT = tmp_path / "archives"


@pytest.fixture()
def owner() -> Member:
    return make_member()


@pytest.fixture()
def developer(owner: Member) -> Member:
    return make_member(Role.DEVELOPER, owner.tenant)


@pytest.fixture()
def instance(owner: Member) -> Instance:
    """An instance without routes, so that a run that is let in ends there."""
    made = make_running(owner.tenant)
    made.routes.all().delete()
    return made


def archive_of(member: Member, instance: Instance) -> Archive:
    return services.create(acting=member_actor(member), instance=instance, topic="orders", url="file:orders")


def mask(instance: Instance) -> None:
    TopicMask.objects.create(instance=instance, topic="orders", part="value", path=".card")


def error_of_a_run(archive: Archive) -> str:
    def no_session() -> Any:
        raise AssertionError("nothing is to be read")

    archive.refresh_from_db()
    return running.run_one(no_session, archive, timezone.now()).error


def is_let_in(archive: Archive) -> bool:
    return "by a password" in (error := error_of_a_run(archive)) or "asks for a user" in error


def test_an_archive_of_a_developer_reads_no_further_once_its_topic_has_masks(
    owner: Member, developer: Member, instance: Instance
) -> None:
    archive = archive_of(developer, instance)
    assert is_let_in(archive)
    mask(instance)
    assert "messages:unmask" in error_of_a_run(archive) and not is_let_in(archive)
    TopicMask.objects.all().delete()
    assert is_let_in(archive)


def test_an_archive_of_an_owner_goes_on_when_its_topic_gets_masks(owner: Member, instance: Instance) -> None:
    archive = archive_of(owner, instance)
    mask(instance)
    assert is_let_in(archive)


def test_a_member_with_unmask_lets_the_archive_go_on_by_running_it(
    owner: Member, developer: Member, instance: Instance
) -> None:
    archive = archive_of(developer, instance)
    mask(instance)
    path = f"/archives/{archive.pk}"
    assert Api.of(owner).get(path).json()["may_unmask"] is False
    problem = assert_problem(Api.of(developer).post(f"{path}/run"), 403, "permission_denied")
    assert "messages:unmask" in problem["detail"] and not is_let_in(archive)
    assert Api.of(owner).post(f"{path}/run").json()["may_unmask"] is True
    assert is_let_in(archive)
    assert AuditEntry.objects.filter(action="archive.run_asked", after__may_unmask=True).count() == 1
    assert Api.of(developer).post(f"{path}/run").status_code == 200


def test_an_owner_who_runs_an_archive_without_masks_grants_nothing(
    owner: Member, developer: Member, instance: Instance
) -> None:
    archive = archive_of(developer, instance)
    assert Api.of(owner).post(f"/archives/{archive.pk}/run").json()["may_unmask"] is False
    mask(instance)
    assert not is_let_in(archive)
