"""The logins of the ready block: kept in the state directory, and still good after a power cut has torn their file."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.supervisor import seed
from config.supervisor.state import StateDirectory
from tenants.models import AuditEntry, User

pytestmark = pytest.mark.django_db


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    (tmp_path / "secrets").mkdir()
    return StateDirectory(tmp_path)


def works(email: str, password: str) -> bool:
    return User.objects.get(email=email).check_password(password)


def test_the_same_logins_are_shown_at_every_start(state: StateDirectory) -> None:
    said: list[str] = []
    assert seed.people(state, with_demo=True, say=said.append) == seed.people(state, with_demo=True, say=said.append)
    assert said == []


@pytest.mark.parametrize("torn", ["", "\0\0\0\0", '{"operator_passw', "[]", '{"operator_password": null}'])
@pytest.mark.parametrize("first_with_demo", [True, False])
def test_a_torn_file_of_logins_gives_those_it_had_new_passwords_that_work(
    state: StateDirectory, torn: str, first_with_demo: bool
) -> None:
    seed.people(state, with_demo=True, say=print)
    (state.root / "secrets" / seed.LOGINS_FILE).write_text(torn)
    said: list[str] = []
    seed.people(state, with_demo=first_with_demo, say=said.append)
    shown = seed.people(state, with_demo=True, say=said.append)
    assert shown.tenant is not None
    assert works(shown.operator.username, shown.operator.password)
    assert works(shown.tenant.login.username, shown.tenant.login.password)
    assert [words.split(": ")[1].split()[0] for words in said] == [seed.OPERATOR_EMAIL, seed.DEMO_EMAIL]
    replaced = AuditEntry.objects.filter(action="password.replaced")
    assert sorted(entry.after["email"] for entry in replaced) == [seed.DEMO_EMAIL, seed.OPERATOR_EMAIL]


def test_a_torn_file_before_anybody_has_an_account_is_written_anew(state: StateDirectory) -> None:
    (state.root / "secrets" / seed.LOGINS_FILE).write_text("")
    said: list[str] = []
    shown = seed.people(state, with_demo=False, say=said.append)
    assert works(shown.operator.username, shown.operator.password)
    assert said == []
