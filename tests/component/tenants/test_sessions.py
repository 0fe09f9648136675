"""Sessions: visible to their owner only, ended singly or together, idle or old, and a mail about a new one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.backends.base import UpdateError
from django.core.cache import cache
from django.core.mail import EmailMessage
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tenants import limits, services
from tenants.actors import user_actor
from tenants.models import AuditEntry, Session, SignInPlace, User
from tests.testkit.api_cases import PASSWORD, make_member
from tests.testkit.beside import is_any_session_waiting, start_beside
from tests.testkit.factors import give_password
from tests.testkit.waiting import eventually

pytestmark = pytest.mark.django_db
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"
PHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605 (KHTML) Version/17.5 Safari/604"


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def user() -> User:
    return make_member().user


def enter(user: User, user_agent: str = FIREFOX, address: str = "192.0.2.1") -> Client:
    client = Client(REMOTE_ADDR=address, headers={"User-Agent": user_agent})
    assert give_password(client, user, PASSWORD).status_code == 302
    return client


def row_of(client: Client) -> Session:
    return Session.objects.get(session_key=client.session.session_key)


def is_in(client: Client) -> bool:
    return bool(client.get("/security/").status_code == 200)


def acknowledge(client: Client, page: str) -> None:
    """Sends the form below the notices of a page."""
    shown = re.findall(r'name="place" value="([^"]+)"', page)
    assert client.post(reverse("page-sign-ins-read"), {"place": shown}).status_code == 302


def long_ago(client: Client, **ago: Any) -> None:
    row = row_of(client)
    Session.objects.filter(pk=row.pk).update(last_seen_at=timezone.now() - timedelta(**ago))


def test_a_person_sees_their_sessions_and_nobody_elses(user: User) -> None:
    here, phone = enter(user), enter(user, PHONE, "192.0.2.7")
    stranger = enter(make_member().user, address="198.51.100.99")
    page = here.get("/security/").content.decode()
    assert page.count("Firefox on Linux") == page.count("Safari on iPhone") == page.count("this session") == 1
    assert "192.0.2.7" in page
    assert "198.51.100.99" not in page
    assert not [key for key in (here, phone, stranger) if key.session.session_key in page], "a key opens the session"


def test_a_session_is_ended_by_its_owner(user: User) -> None:
    here, phone = enter(user), enter(user, PHONE)
    ended = row_of(phone).public_id
    assert here.post(reverse("page-session-end", args=[ended])).status_code == 302
    assert (is_in(here), is_in(phone)) == (True, False)
    row = AuditEntry.objects.get(action="session.ended")
    assert (row.actor_id, row.target_id, row.before["browser"]) == (user.pk, ended, "Safari/iPhone")


def test_a_foreign_session_is_not_found_and_goes_on(user: User) -> None:
    other = enter(make_member().user)
    foreign = row_of(other)
    for name in (foreign.public_id, foreign.session_key, "ses-0000000000000000", "\x00"):
        assert enter(user).post(reverse("page-session-end", args=[name])).status_code == 404
    assert is_in(other)


def test_ones_own_is_ended_by_logging_out(user: User) -> None:
    here = enter(user)
    answer = here.post(reverse("page-session-end", args=[row_of(here).public_id]))
    assert answer.headers["Location"] == reverse("account_login")
    assert not is_in(here)


@pytest.mark.parametrize("this_too", [False, True])
def test_all_are_ended_at_once(user: User, this_too: bool) -> None:
    here, others, stranger = enter(user), [enter(user, PHONE), enter(user)], enter(make_member().user)
    here.post(reverse("page-sessions-end"), {"this_too": "on"} if this_too else {})
    assert [is_in(client) for client in (here, *others, stranger)] == [not this_too, False, False, True]
    assert AuditEntry.objects.get(action="sessions.ended").after["ended"] == (3 if this_too else 2)


def test_an_idle_session_ends(user: User, settings: Any) -> None:
    here = enter(user)
    long_ago(here, seconds=settings.SESSION_IDLE_S - 60)
    assert is_in(here)
    long_ago(here, seconds=settings.SESSION_IDLE_S + 1)
    assert not is_in(here)


def test_a_session_ends_in_any_case_and_no_request_puts_that_off(user: User, settings: Any) -> None:
    here = enter(user)
    end = row_of(here).expire_date
    assert abs(end - timezone.now() - timedelta(days=settings.SESSION_DAYS_MAX)) < timedelta(minutes=1)
    session = here.session
    session["anything"] = 1
    session.save()
    assert row_of(here).expire_date == end
    Session.objects.filter(pk=row_of(here).pk).update(expire_date=timezone.now() - timedelta(seconds=1))
    assert not is_in(here)


def test_when_it_was_seen_is_written_once_a_minute(user: User) -> None:
    here = enter(user)
    here.get("/security/")
    with CaptureQueriesContext(connection) as queries:
        here.get("/security/")
    assert not [query for query in queries if query["sql"].startswith(("UPDATE", "INSERT"))]
    long_ago(here, seconds=limits.SESSION_SEEN_EVERY_S + 1)
    with CaptureQueriesContext(connection) as queries:
        here.get("/security/")
    assert len([query for query in queries if query["sql"].startswith('UPDATE "tenants_session"')]) == 1
    assert timezone.now() - row_of(here).last_seen_at < timedelta(seconds=30)


@pytest.mark.parametrize("headers", [{"HX-Request": "true"}, {"Accept": "application/json"}])
def test_requests_that_an_open_page_makes_by_itself_keep_no_session_alive(user: User, headers: dict[str, str]) -> None:
    here = enter(user)
    long_ago(here, hours=1)
    before = row_of(here).last_seen_at
    here.get("/audit/", headers=headers)
    assert row_of(here).last_seen_at == before
    here.get("/audit/")
    assert row_of(here).last_seen_at > before


def test_ended_sessions_are_deleted(user: User, settings: Any) -> None:
    here, idle = enter(user), enter(user)
    long_ago(idle, seconds=settings.SESSION_IDLE_S + 1)
    assert services.delete_expired_sessions(timezone.now()) == 1
    assert is_in(here)


def test_a_request_does_not_bring_an_ended_session_back(user: User) -> None:
    here = enter(user)
    session = here.session
    assert session["_auth_user_id"] == user.pk, "the request has read it by now"
    Session.objects.all().delete()
    session["anything"] = 1
    with pytest.raises(UpdateError):
        session.save()
    assert not Session.objects.exists()


def test_sessions_per_account_are_limited(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenants.services.sessions.SESSIONS_PER_USER_MAX", 2)
    clients = [enter(user) for _ in range(3)]
    assert [is_in(client) for client in clients] == [False, True, True]


def test_a_sign_in_from_a_new_place_is_shown_to_other_sessions_and_not_to_itself(user: User) -> None:
    here = enter(user)
    assert "from a new place" not in here.get("/security/").content.decode(), "the first sign-in is no news"
    thief = enter(user, PHONE, "203.0.113.9")
    assert "from a new place" not in thief.get("/security/").content.decode()
    page = here.get("/security/").content.decode()
    acknowledge(thief, page)
    page = here.get("/security/").content.decode()
    assert "Safari/iPhone" in page
    assert "203.0.113.9" in page
    acknowledge(here, page)
    assert "from a new place" not in here.get("/security/").content.decode()
    enter(user, PHONE, "203.0.113.9")
    assert "from a new place" not in here.get("/security/").content.decode(), "it is known by now"


def test_only_the_notices_that_the_page_showed_are_acknowledged(user: User) -> None:
    here = enter(user)
    enter(user, PHONE, "203.0.113.9")
    page = here.get("/security/").content.decode()
    enter(user, PHONE, "198.51.100.7")
    acknowledge(here, page)
    page = here.get("/security/").content.decode()
    assert "Safari/iPhone, 198.51.100.7" in page
    assert "Safari/iPhone, 203.0.113.9" not in page
    assert here.post(reverse("page-sign-ins-read"), {"place": ["\0", "sin-"]}).status_code == 302


@pytest.mark.django_db(transaction=True)
def test_the_notice_of_a_sign_in_during_an_acknowledgement_is_kept(user: User) -> None:
    shown: list[str] = []

    def sign_in(network: str) -> None:
        place = services.record_sign_in(acting=user_actor(user), user=user, network=network, user_agent=PHONE)
        shown.extend([place.pk] if place else [])

    sign_in("192.0.2.0/24")
    sign_in("203.0.113.0/24")
    with transaction.atomic():
        sign_in("198.51.100.0/24")
        thread, failed = start_beside(
            lambda: services.acknowledge_sign_in_notices(user=user, place_ids=shown[:1], except_place=None)
        )
        eventually(
            lambda: is_any_session_waiting() or not thread.is_alive(),
            what="the acknowledgement to wait for the sign-in",
        )
    thread.join(20)
    assert not failed
    user.refresh_from_db()
    assert user.has_sign_in_notices
    assert [place.network for place in SignInPlace.objects.filter(user=user, is_unread=True)] == ["198.51.100.0/24"]


def test_a_new_place_is_mailed_where_mail_is_configured(
    user: User, settings: Any, mailoutbox: list[EmailMessage], django_capture_on_commit_callbacks: Any
) -> None:
    settings.MAIL_IS_CONFIGURED, settings.PUBLIC_URL = True, "https://console.example.com"
    enter(user)
    with django_capture_on_commit_callbacks(execute=True):
        enter(user, PHONE, "203.0.113.9")
    assert [mail.to for mail in mailoutbox] == [[user.email]]
    assert "203.0.113.9" in mailoutbox[0].body
    assert "https://console.example.com/security/" in mailoutbox[0].body


def test_places_are_forgotten_where_there_are_too_many(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenants.services.sign_ins.SIGN_IN_PLACES_PER_USER_MAX", 3)
    for number in range(5):
        enter(user, address=f"192.0.2.{number + 1}")
    kept = set(SignInPlace.objects.filter(user=user).values_list("network", flat=True))
    assert kept == {"192.0.2.3", "192.0.2.4", "192.0.2.5"}


def test_a_sign_in_leaves_a_row(user: User) -> None:
    enter(user)
    row = AuditEntry.objects.get(action="account.signed_in")
    assert (row.actor_id, row.ip, row.after["browser"]) == (user.pk, "192.0.2.1", "Firefox/Linux")
