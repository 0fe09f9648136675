"""Key sets: the keys that may prove tokens (RFC 7517), and refused sets."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed448
from hypothesis import given
from hypothesis import strategies as st

from brokers.contract.oauth import OAuthDocument
from instances.oauth.key_sets import KeySetRefused, PublicKey, keys_of, parse
from instances.oauth.limits import KEY_ID_BYTES_MAX, KEY_SET_BYTES_MAX, KEYS_PER_SET_MAX, RSA_KEY_BITS_MAX
from tests.testkit.oauth import Issuer, jwk_of, make_key

ELLIPTIC = jwk_of(make_key(), "one")
RSA = jwk_of(make_key("RS256"), "two")


def number(bits: int) -> str:
    return urlsafe_b64encode((1 << (bits - 1) | 1).to_bytes((bits + 7) // 8, "big")).rstrip(b"=").decode()


def test_keys_are_kept_with_the_algorithms_that_they_are_for() -> None:
    ed = jwk_of(make_key("EdDSA"), "three")
    large = jwk_of(ed448.Ed448PrivateKey.generate(), "four", alg="Ed448")
    kept = keys_of({"keys": [ELLIPTIC, {**RSA, "alg": "PS256"}, ed, large, RSA | {"kid": "five"}]}, is_pinned=True)
    assert [(key.id, key.algorithms) for key in kept] == [
        ("one", ("ES256",)),
        ("two", ("PS256",)),
        ("three", ("EdDSA",)),
        ("four", ("EdDSA",)),
        ("five", ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    ]


def test_a_stored_key_can_be_built_again() -> None:
    for key in keys_of({"keys": [ELLIPTIC, {**RSA, "alg": "PS256", "x5c": ["…"]}]}, is_pinned=True):
        assert PublicKey.from_body(json.loads(json.dumps(key.to_body()))) == key
        assert keys_of({"keys": [key.to_jwk()]}, is_pinned=True) == (key,)
        assert key.build() == key.build()


def test_a_fetched_key_set_may_hold_keys_for_other_purposes() -> None:
    others: list[Any] = [
        {"kty": "oct", "k": "AAAA", "kid": "hmac"},
        RSA | {"kid": "encrypts", "use": "enc"},
        RSA | {"kid": "signs", "key_ops": ["sign"]},
        RSA | {"kid": "leaked", "d": "AQAB"},
        RSA | {"kid": "short", "n": number(1024)},
        {"kty": "new"},
        7,
    ]
    assert [key.id for key in keys_of({"keys": [*others, ELLIPTIC]}, is_pinned=False)] == ["one"]
    for other in others:
        with pytest.raises(KeySetRefused, match="Key 0"):
            keys_of({"keys": [other, ELLIPTIC]}, is_pinned=True)
    with pytest.raises(KeySetRefused, match="no key that can prove"):
        keys_of({"keys": others}, is_pinned=False)


def test_a_private_key_is_named_as_what_it_is() -> None:
    with pytest.raises(KeySetRefused, match="secret part"):
        keys_of({"keys": [ELLIPTIC | {"d": "AAAA"}]}, is_pinned=True)


@pytest.mark.parametrize(
    "change",
    [
        {"kid": ""}, {"kid": 7}, {"kid": "k" * (KEY_ID_BYTES_MAX + 1)}, {"kid": "a\x00"}, {"kid": "\ud800"},
        {"n": 7}, {"n": None}, {"n": ""}, {"n": "!"}, {"n": RSA["n"] + "\x00"}, {"n": number(2047)},
        {"n": number(RSA_KEY_BITS_MAX + 1)}, {"e": "AQ"}, {"e": number(33)}, {"e": number(2048)},
        {"alg": "HS256"}, {"alg": "none"}, {"alg": "ES256"}, {"alg": 7}, {"kty": "EC"}, {"kty": None}, {"kty": ["RSA"]},
    ],
)  # fmt: skip
def test_keys_that_nobody_may_use_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(KeySetRefused):
        keys_of({"keys": [RSA | change]}, is_pinned=True)


@pytest.mark.parametrize("change", [{"crv": "secp256k1"}, {"crv": "P-384"}, {"x": "AAAA"}, {"y": ELLIPTIC["x"]}])
def test_points_that_are_on_no_curve_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(KeySetRefused):
        keys_of({"keys": [ELLIPTIC | change]}, is_pinned=True)


def test_two_keys_with_one_id_are_refused() -> None:
    with pytest.raises(KeySetRefused, match="one"):
        keys_of({"keys": [ELLIPTIC, ELLIPTIC]}, is_pinned=False)


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b"null", b'{"keys":{}}', b'{"keys":[]}', b"[" * 60_000, b"\xff"])
def test_an_invalid_key_set_is_refused(raw: bytes) -> None:
    for is_pinned in (True, False):
        with pytest.raises(KeySetRefused):
            parse(raw, is_pinned=is_pinned)


def test_the_largest_set_is_read_and_a_larger_one_is_not() -> None:
    keys = [jwk_of(make_key(), f"{at}".rjust(KEY_ID_BYTES_MAX, "k")) for at in range(KEYS_PER_SET_MAX)]
    raw = json.dumps({"keys": keys}).encode()
    padded = raw + b" " * (KEY_SET_BYTES_MAX - len(raw))
    kept = parse(padded, is_pinned=True)
    assert len(kept) == KEYS_PER_SET_MAX
    assert len(OAuthDocument(issuer="i" * 512, audience="a" * 512, keys=kept).to_json()) < 100_000
    with pytest.raises(KeySetRefused, match="bytes"):
        parse(padded + b" ", is_pinned=True)
    with pytest.raises(KeySetRefused, match="keys"):
        parse(json.dumps({"keys": [*keys, ELLIPTIC]}).encode(), is_pinned=True)


MEMBERS = st.sampled_from(["keys", "kty", "n", "e", "crv", "x", "kid", "alg", "use"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(MEMBERS, inner),
    max_leaves=12,
)


@given(JSON)
def test_any_document_is_refused_or_read(document: object) -> None:
    for found in (document, {"keys": document}, {"keys": [document]}):
        try:
            keys_of(found, is_pinned=False)
        except KeySetRefused:
            continue


def test_brokers_read_what_was_written_and_tell_documents_apart() -> None:
    document = Issuer().document(principal_claim="azp", clock_skew_s=0, is_fetched=True)
    assert OAuthDocument.from_json(document.to_json()) == document
    assert document.fingerprint != Issuer().document().fingerprint
    older = json.loads(document.to_json())
    del older["is_fetched"], older["clock_skew_s"], older["keys"]
    assert OAuthDocument.from_json(json.dumps(older | {"new": 1}).encode()).keys == ()
