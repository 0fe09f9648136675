"""SCRAM credentials by RFC 7677, with the salt of their user and without the password."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode

import pytest

from brokers.contract import users as contract
from brokers.contract.users import DIGESTS, SCRAM_SHA_256, SCRAM_SHA_512
from brokers.dataplane.scram import SaltedPassword, salted_passwords
from instances.users import limits, naming

# RFC 7677, section 3: user `user`, password `pencil`.
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
AUTH_MESSAGE = (
    "n=user,r=rOprNGfwEbeRWgbNEkqO,"
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
)
SERVER_SIGNATURE = b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def made_for(
    instance_id: str = "ins-00000001", user: str = "alice", password: str = "psu_" + "x" * 43
) -> list[SaltedPassword]:
    return salted_passwords(instance_id, user, password)


def test_a_salted_password_signs_as_the_rfc_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brokers.dataplane.scram.scram_salt", lambda *_named: SALT)
    salted = next(item for item in made_for(password="pencil") if item.mechanism == SCRAM_SHA_256)
    server_key = hmac.digest(salted.salted_password, b"Server Key", "sha256")
    assert hmac.digest(server_key, AUTH_MESSAGE.encode(), "sha256") == SERVER_SIGNATURE


def test_a_password_is_salted_for_every_mechanism_that_brokers_know() -> None:
    made = made_for()
    assert [item.mechanism for item in made] == sorted(contract.MECHANISM_NAMES) == sorted(DIGESTS)
    assert len({item.salt for item in made}) == 2
    for item in made:
        assert len(item.salted_password) == hashlib.new(DIGESTS[item.mechanism]).digest_size
        assert contract.ITERATIONS_MIN <= item.iterations <= contract.ITERATIONS_MAX


def test_both_passwords_of_a_user_have_its_salt_and_no_other_user_has_it() -> None:
    salts = [item.salt for item in made_for(password="a")]
    assert [item.salt for item in made_for(password="b")] == salts
    for other in (made_for(user="bob"), made_for(instance_id="ins-00000002")):
        assert not set(salts) & {item.salt for item in other}


def test_neither_password_nor_what_proves_it_is_shown() -> None:
    (item,) = (item for item in made_for(password="pencil") if item.mechanism == SCRAM_SHA_512)
    assert repr(item) == "SaltedPassword(sha512)"


def test_a_password_that_would_have_to_be_normalised_is_not_taken() -> None:
    with pytest.raises(ValueError, match="ASCII"):
        made_for(password="p\u00e4ssword")


def test_the_control_plane_says_the_numbers_that_brokers_keep_to() -> None:
    assert limits.USERS_PER_INSTANCE_MAX == contract.USERS_MAX
    assert limits.SECRETS_PER_USER_MAX == contract.SECRETS_PER_USER_MAX
    assert limits.USER_NAME_BYTES_MAX == contract.USER_NAME_BYTES_MAX
    assert contract.RESERVED_NAMES == naming.RESERVED
