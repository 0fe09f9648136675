"""The logins of the ready block: stored in the state directory, and usable after a power cut damaged the file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

import manage
from config.supervisor import seed
from config.supervisor.state import StateDirectory
from instances.models import Instance
from instances.users import interfaces as user_interfaces
from tenants.actors import member_actor
from tenants.demo import demo_owner
from tenants.models import ApiToken, AuditEntry, Member, Tenant, User
from tenants.operator_token import TENANT_NAME, TOKEN_NAME, ensure_operator_token
from tenants.services import create_operator, create_own_tenant, create_token
from tests.testkit.api_cases import Api
from tests.testkit.fake_users import FakeUsers
from tests.testkit.fleet import make_running, plugged

pytestmark = pytest.mark.django_db


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    (tmp_path / "secrets").mkdir()
    return StateDirectory(tmp_path)


def works(email: str, password: str) -> bool:
    return User.objects.get(email=email).check_password(password)


def test_the_same_logins_are_shown_at_every_start(state: StateDirectory) -> None:
    said: list[str] = []
    assert seed.ensure_accounts(state, with_demo=True, say=said.append) == seed.ensure_accounts(
        state, with_demo=True, say=said.append
    )
    assert said == []


@pytest.mark.parametrize("torn", ["", "\0\0\0\0", '{"operator_passw', "[]", '{"operator_password": null}'])
@pytest.mark.parametrize("first_with_demo", [True, False])
def test_a_torn_file_of_logins_gives_those_it_had_new_passwords_that_work(
    state: StateDirectory, torn: str, first_with_demo: bool
) -> None:
    seed.ensure_accounts(state, with_demo=True, say=print)
    (state.root / "secrets" / seed.LOGINS_FILE).write_text(torn)
    said: list[str] = []
    seed.ensure_accounts(state, with_demo=first_with_demo, say=said.append)
    shown = seed.ensure_accounts(state, with_demo=True, say=said.append)
    assert shown.tenant is not None
    assert works(shown.operator.username, shown.operator.password)
    assert works(shown.tenant.login.username, shown.tenant.login.password)
    assert [words.split(": ")[1].split()[0] for words in said] == [seed.OPERATOR_EMAIL, seed.DEMO_EMAIL]
    replaced = AuditEntry.objects.filter(action="password.replaced")
    assert sorted(entry.after["email"] for entry in replaced) == [seed.DEMO_EMAIL, seed.OPERATOR_EMAIL]


def test_a_torn_file_before_anybody_has_an_account_is_written_anew(state: StateDirectory) -> None:
    (state.root / "secrets" / seed.LOGINS_FILE).write_text("")
    said: list[str] = []
    shown = seed.ensure_accounts(state, with_demo=False, say=said.append)
    assert works(shown.operator.username, shown.operator.password)
    assert said == []


# --- the demo instance's user -----------------------------------------------------------------------------------------


@pytest.fixture
def users() -> Iterator[FakeUsers]:
    result = FakeUsers()
    with plugged(user_interfaces.user_admin_client, result):
        yield result


def demo(state: StateDirectory) -> tuple[Member, Instance]:
    seed.ensure_accounts(state, with_demo=True, say=print)
    member = demo_owner(seed.DEMO_EMAIL)
    return member, make_running(member.tenant, name=seed.DEMO_INSTANCE)


def once(is_done: Callable[[], bool], _what: str, _program: str) -> None:
    assert is_done()


def test_the_demo_instances_user_has_full_access_and_the_same_password_at_every_start(
    state: StateDirectory, users: FakeUsers
) -> None:
    member, instance = demo(state)
    first = seed.demo_user(state, member, instance, wait=once)
    assert seed.demo_user(state, member, instance, wait=once) == first
    (secret,) = users.users_by_key[instance.pk, seed.DEMO_USER].secrets
    assert users.passwords == {secret.id: first.password}
    assert users.users_by_key[instance.pk, seed.DEMO_USER].superuser
    assert first.password not in repr(first)


def test_a_password_of_the_demo_user_that_is_gone_is_made_anew(state: StateDirectory, users: FakeUsers) -> None:
    member, instance = demo(state)
    shown = [seed.demo_user(state, member, instance, wait=once)]
    for _ in range(2):  # the second time the user has two, of which nobody knows either
        (state.root / "secrets" / seed.LOGINS_FILE).write_text("{}")
        shown.append(seed.demo_user(state, member, instance, wait=once))
    working = {users.passwords[item.id] for item in users.users_by_key[instance.pk, seed.DEMO_USER].secrets}
    assert shown[-1].password in working
    assert len({login.password for login in shown}) == 3
    users.users_by_key.clear()
    assert seed.demo_user(state, member, instance, wait=once).password not in {login.password for login in shown}


def test_the_demo_user_waits_for_brokers(state: StateDirectory, users: FakeUsers) -> None:
    member, instance = demo(state)
    users.is_down = True

    def at_last(is_done: Callable[[], bool], _what: str, _program: str) -> None:
        assert not is_done()
        users.is_down = False
        assert is_done()

    assert seed.demo_user(state, member, instance, wait=at_last).username == seed.DEMO_USER


def ask_as_operator(token: str) -> int:
    return int(Api(token).get("/operator/clusters").status_code)


@pytest.mark.parametrize("with_demo", [True, False])
def test_the_operators_token_works_and_is_kept(state: StateDirectory, with_demo: bool) -> None:
    token = seed.ensure_accounts(state, with_demo=with_demo, say=print).operator_token
    assert ask_as_operator(token) == 200
    assert Api(token).get("/instances").status_code == 403
    kept = state.root / "secrets" / seed.LOGINS_FILE
    assert json.loads(kept.read_text())["operator_token"] == token
    assert kept.stat().st_mode & 0o777 == 0o600
    assert seed.ensure_accounts(state, with_demo=with_demo, say=print).operator_token == token


def test_a_token_of_the_operator_that_is_lost_or_revoked_is_replaced_and_works_no_more(state: StateDirectory) -> None:
    first = seed.ensure_accounts(state, with_demo=False, say=print).operator_token
    (state.root / "secrets" / seed.LOGINS_FILE).write_text("")
    second = seed.operator_token(state)
    assert [ask_as_operator(token) for token in (first, second)] == [401, 200]
    ApiToken.objects.update(revoked_at=timezone.now())
    third = seed.operator_token(state)
    assert [ask_as_operator(token) for token in (second, third)] == [401, 200]
    assert Tenant.objects.count() == 1


def test_the_operators_token_is_not_one_of_a_customers_tenant_with_the_operators_tenants_name() -> None:
    operator, _is_new = create_operator(email="ops@example.com", password="a long enough passphrase")
    customer = create_own_tenant(user=operator, name=TENANT_NAME)
    secret = ensure_operator_token(email=operator.email, stored_secret=None)
    token = ApiToken.objects.get()
    assert token.tenant_id != customer.tenant_id
    assert ask_as_operator(secret) == 200
    assert ensure_operator_token(email=operator.email, stored_secret=secret) == secret
    assert Tenant.objects.count() == 2


def test_a_kept_token_of_another_tenant_is_replaced() -> None:
    operator, _is_new = create_operator(email="ops@example.com", password="a long enough passphrase")
    customer = create_own_tenant(user=operator, name=TENANT_NAME)
    _token, kept = create_token(acting=member_actor(customer), name=TOKEN_NAME, scopes=["operator"])
    secret = ensure_operator_token(email=operator.email, stored_secret=kept)
    assert [ask_as_operator(each) for each in (kept, secret)] == [401, 200]


def test_the_command_prints_the_token(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(state.root))
    with pytest.raises(CommandError, match="no operator"):
        call_command("operator_token")
    token = seed.ensure_accounts(state, with_demo=False, say=print).operator_token
    capsys.readouterr()
    call_command("operator_token")
    assert capsys.readouterr().out == f"{token}\n"
    create_operator(email="ops@example.com", password="a long enough passphrase")
    secrets = []
    for _ in range(2):
        call_command("operator_token", "--email", "ops@example.com")
        secrets.append(capsys.readouterr().out.strip())
    assert [ask_as_operator(secret) for secret in secrets] == [401, 200]
    assert ask_as_operator(token) == 200
    assert secrets[1] not in (state.root / "secrets" / seed.LOGINS_FILE).read_text()
    User.objects.filter(email="ops@example.com").update(is_staff=False)
    assert ask_as_operator(secrets[1]) == 403
    with pytest.raises(CommandError, match="no operator"):
        call_command("operator_token", "--email", "ops@example.com")


def test_the_state_directory_of_the_command_is_taken_before_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_DIR", "/before")
    for words in (["--state-dir", "/given"], ["--email", "a@b.example", "--state-dir=/given"]):
        monkeypatch.setenv("PENSTOCK_STATE_DIR", "/before")
        manage._take_state_dir(words)
        assert os.environ["PENSTOCK_STATE_DIR"] == "/given"
    monkeypatch.setenv("PENSTOCK_STATE_DIR", "/before")
    manage._take_state_dir(["--email", "a@b.example"])
    assert os.environ["PENSTOCK_STATE_DIR"] == "/before"
