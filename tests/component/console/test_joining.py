"""The page of an invitation link: tenant, inviter and role; or the reason why it is invalid, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tenants import services
from tenants.actors import member_actor
from tenants.models import Invitation, Member
from tests.component.console.conftest import PASSWORD

GUEST = "tom@halvorsen.example"
OWN_FORMS = {"/preferences/", "/accounts/logout/"}


def text_of(response: object) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.content.decode()))  # type: ignore[attr-defined]


def forms_of(response: object) -> set[str]:
    """Returns the targets of the page's own forms; empty stands for the page itself."""
    tags = re.findall(r"<form\b[^>]*>", response.content.decode())  # type: ignore[attr-defined]
    leads = {(re.findall(r'action="([^"]*)"', tag) or [""])[0] for tag in tags}
    return leads - OWN_FORMS


@pytest.fixture
def invited(owner: Member) -> tuple[Invitation, str]:
    """Creates an open invitation; returns it with the target of its link."""
    owner.user.name = "Ida Halvorsen"
    owner.user.save()
    invitation, secret = services.invite_member(acting=member_actor(owner), email=GUEST, role="developer")
    return invitation, reverse("page-join", args=[secret])


def _expire(invitation: Invitation) -> None:
    Invitation.objects.filter(pk=invitation.pk).update(expires_at=timezone.now() - timedelta(seconds=1))


def _accept(invitation: Invitation) -> None:
    Invitation.objects.filter(pk=invitation.pk).update(accepted_at=timezone.now())


def _revoke(invitation: Invitation) -> None:
    Invitation.objects.filter(pk=invitation.pk).update(revoked_at=timezone.now())


@pytest.mark.parametrize(
    ("change", "words"),
    [(_expire, "Ask ida@halvorsen.example for another one."), (_accept, "Log in with the address"), (_revoke, "Ask")],
)
def test_a_link_that_works_no_more_says_what_to_do_and_has_no_form(
    change: Callable[[Invitation], None], words: str, client: Client, ida: Client, invited: tuple[Invitation, str]
) -> None:
    invitation, link = invited
    change(invitation)
    for browser in (client, ida):
        for answer in (browser.get(link), browser.post(link, {"email": GUEST, "password": PASSWORD})):
            assert (answer.status_code, answer["Cache-Control"]) == (410, "no-store")
            assert words in text_of(answer)
            assert forms_of(answer) == set()


def test_a_wrong_link_says_so_without_a_form_and_without_a_team(client: Client, ida: Client, owner: Member) -> None:
    for browser in (client, ida):
        answer = browser.get(reverse("page-join", args=["psi_nonsense"]))
        assert answer.status_code == 404
        assert "There is no invitation under this link" in text_of(answer)
        assert owner.tenant.name not in text_of(answer)
        assert forms_of(answer) == set()


def test_a_link_that_works_names_the_team_who_invites_and_the_role(
    client: Client, invited: tuple[Invitation, str]
) -> None:
    shown = text_of(client.get(invited[1]))
    assert "Join Halvorsen Freight" in shown
    assert "Invited by Ida Halvorsen ida@halvorsen.example" in shown
    assert "Role Developer" in shown
    assert GUEST not in shown, "who found the link does not learn whom it is for"


def test_a_user_logged_in_under_another_address_is_refused_with_the_reason(
    stranger: Member, browse: Callable[[Member], Client], invited: tuple[Invitation, str]
) -> None:
    eve = browse(stranger)
    for answer in (eve.get(invited[1]), eve.post(invited[1])):
        assert "the invitation was sent to another address" in text_of(answer)
        assert forms_of(answer) == set()
    assert not Member.objects.filter(user=stranger.user, tenant=invited[0].tenant).exists()


def test_a_member_has_nothing_to_accept(ida: Client, owner: Member, invited: tuple[Invitation, str]) -> None:
    Invitation.objects.filter(pk=invited[0].pk).update(email=owner.user.email)
    assert "You are a member of Halvorsen Freight already" in text_of(ida.get(invited[1]))


def test_a_former_member_of_a_team_can_join_another(
    stranger: Member, browse: Callable[[Member], Client], invited: tuple[Invitation, str]
) -> None:
    Invitation.objects.filter(pk=invited[0].pk).update(email=stranger.user.email)
    eve = browse(stranger)
    Member.objects.filter(pk=stranger.pk).update(removed_at=timezone.now())
    assert "Role Developer" in text_of(eve.get(invited[1]))
    assert eve.post(invited[1]).status_code == 302
    assert Member.objects.filter(user=stranger.user, tenant=invited[0].tenant, removed_at=None).exists()
