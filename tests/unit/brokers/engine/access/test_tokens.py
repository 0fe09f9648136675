"""Token verification: signature, algorithm and key, issuer, audience, time, name (RFC 7519, RFC 8725)."""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from brokers.contract.oauth import OAuthDocument
from brokers.engine.access.tokens import (
    PROVEN_TOKENS_MAX,
    ProvenTokens,
    TokenRefused,
    TokenVerifier,
    UnknownKey,
    VerifiedToken,
)
from instances.oauth.limits import TOKEN_BYTES_MAX
from tests.testkit.oauth import Issuer, b64, make_key

ISSUER = Issuer()
DOCUMENT = ISSUER.document()
NOW_MS = int(time.time() * 1000)


def verify(token: str, document: OAuthDocument = DOCUMENT, now_ms: int | None = None) -> VerifiedToken:
    return TokenVerifier().verify(token, document, int(time.time() * 1000) if now_ms is None else now_ms)


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "ES512", "EdDSA", "RS256", "RS384", "RS512", "PS256", "PS512"])
def test_a_token_signed_with_a_key_of_the_set_proves_whom_it_names(algorithm: str) -> None:
    issuer = Issuer(algorithm=algorithm)
    verified = verify(issuer.token("alice", iat=NOW_MS // 1000, exp=NOW_MS / 1000 + 60), issuer.document(), NOW_MS)
    assert (verified.name, verified.terms) == ("alice", DOCUMENT.terms)
    assert abs(verified.expires_at_ms - NOW_MS - 60_000) <= 1


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"iss": "https://other.example.com/"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"iss": ["https://login.example.com/"]}, "issuer"),
        ({"aud": "other"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": "kafkax"}, "audience"),
        ({"exp": None}, "exp"),
        ({"exp": "9999999999"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": NOW_MS / 1000 - 60, "iat": 1}, "expired"),
        ({"exp": NOW_MS / 1000 + 10, "iat": NOW_MS / 1000 + 20}, "before it was made"),
        ({"iat": None}, "iat"),
        ({"iat": NOW_MS / 1000 + 600}, "future"),
        ({"nbf": NOW_MS / 1000 + 600}, "not valid yet"),
        ({"nbf": "soon"}, "nbf"),
        ({"sub": None}, "name the user"),
        ({"sub": ""}, "name the user"),
        ({"sub": 7}, "name the user"),
        ({"sub": " alice"}, "name the user"),
        ({"sub": "al\nice"}, "name the user"),
        ({"sub": "ANONYMOUS"}, "may have"),
        ({"sub": "*"}, "may have"),
        ({"sub": "x" * 256}, "may have"),
        ({"sub": "\u6c34" * 29}, "may have"),
    ],
)
def test_claims_that_are_wrong_prove_nobody(claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenRefused, match=reason):
        verify(ISSUER.token(**{"iat": NOW_MS // 1000, "exp": NOW_MS / 1000 + 3_600, **claims}), now_ms=NOW_MS)


def test_an_audience_may_be_one_of_several() -> None:
    assert verify(ISSUER.token(aud=["other", "kafka"])).name == "alice"


@pytest.mark.parametrize("literal", ["1e400", "-1e400", "NaN", "Infinity", "9" * 400])
def test_an_expiry_that_is_no_instant_is_refused_and_breaks_nothing(literal: str) -> None:
    claims = f'{{"iss":"{ISSUER.issuer}","aud":"kafka","sub":"alice","iat":1,"exp":{literal}}}'
    token = jwt.PyJWS().encode(claims.encode(), ISSUER.keys["one"], algorithm="ES256", headers={"kid": "one"})
    with pytest.raises(TokenRefused):
        verify(token)


def test_a_token_that_never_expires_ends_with_the_calendar() -> None:
    for expiry in (10**18, 1e308, 10**300):
        assert verify(ISSUER.token(exp=expiry)).expires_at_ms == 253_402_300_799_000


def test_clocks_may_be_off_by_the_skew_and_no_more() -> None:
    document = ISSUER.document(clock_skew_s=30)
    now_s = NOW_MS / 1000
    assert verify(ISSUER.token(exp=now_s - 29, iat=1), document, NOW_MS).expires_at_ms < NOW_MS
    assert verify(ISSUER.token(iat=now_s + 29, nbf=now_s + 29), document, NOW_MS).name == "alice"
    for claims in ({"exp": now_s - 30, "iat": 1}, {"iat": now_s + 31}, {"nbf": now_s + 31}):
        with pytest.raises(TokenRefused):
            verify(ISSUER.token(**claims), document, NOW_MS)


def test_another_claim_may_name_the_user() -> None:
    document = ISSUER.document(principal_claim="client_id")
    assert verify(ISSUER.token(client_id="orders-service"), document).name == "orders-service"
    with pytest.raises(TokenRefused, match="name the user"):
        verify(ISSUER.token(), document)


# -- signatures --------------------------------------------------------------------------------------------------------


def test_a_token_without_a_signature_proves_nobody() -> None:
    for algorithm in ("none", "None", "NONE", ""):
        header = b64({"alg": algorithm, "kid": "one", "typ": "JWT"})
        for signature in ("", "AAAA"):
            with pytest.raises(TokenRefused, match="algorithm"):
                verify(f"{header}.{b64(ISSUER.claims())}.{signature}")


@pytest.mark.parametrize("form", ["pem", "der", "raw"])
def test_the_public_key_is_no_secret_of_an_hmac(form: str) -> None:
    """RFC 8725, 2.1: a verifier that takes the public key for an HMAC secret accepts forged tokens."""
    issuer = Issuer(algorithm="RS256")
    public = issuer.keys["one"].public_key()
    secret = {
        "pem": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "der": public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        "raw": issuer.jwks["keys"][0]["n"].encode(),
    }[form]
    signed = f"{b64({'alg': 'HS256', 'kid': 'one'})}.{b64(issuer.claims())}"
    signature = b64(hmac.new(secret, signed.encode(), hashlib.sha256).digest())
    with pytest.raises(TokenRefused, match="algorithm"):
        verify(f"{signed}.{signature}", issuer.document())


def test_a_key_is_used_with_its_own_algorithm_alone() -> None:
    issuer = Issuer(algorithm="RS256")
    restricted = issuer.jwks
    restricted["keys"][0]["alg"] = "RS512"
    from instances.oauth.key_sets import keys_of

    with pytest.raises(TokenRefused, match="does not allow its algorithm"):
        verify(issuer.token(), issuer.document(keys=keys_of(restricted, is_pinned=True)))
    elliptic = Issuer(algorithm="ES384", kid="one")
    header = b64({"alg": "ES256", "kid": "one"})
    with pytest.raises(TokenRefused, match="does not allow its algorithm"):
        verify(f"{header}.{b64(elliptic.claims())}.{b64(bytes(64))}", elliptic.document())


def test_another_servers_key_of_the_same_id_proves_nobody() -> None:
    with pytest.raises(TokenRefused, match="signature"):
        verify(Issuer().token())


def test_a_key_that_is_not_in_the_set_has_an_error_of_its_own() -> None:
    with pytest.raises(UnknownKey):
        verify(Issuer(kid="two").token())


def test_a_token_that_names_no_key_is_taken_where_it_can_mean_one_alone() -> None:
    token = ISSUER.token(header={"kid": None})
    assert verify(token).name == "alice"
    several = Issuer(keys={"one": ISSUER.keys["one"], "two": make_key()})
    with pytest.raises(TokenRefused, match="names no key"):
        verify(token, several.document())
    with pytest.raises(TokenRefused, match="names no key"):
        verify(token, ISSUER.document(keys=()))


@pytest.mark.parametrize("kid", [7, [], {}, "k" * 256, "k" * 12_000])
def test_an_id_that_no_key_has_is_refused_at_once(kid: object) -> None:
    header = b64({"alg": "ES256", "kid": kid})
    with pytest.raises(TokenRefused, match="key id"):
        verify(f"{header}.{b64(ISSUER.claims())}.{b64(bytes(64))}")


def test_headers_that_must_be_understood_are_not() -> None:
    token = jwt.PyJWS().encode(
        b"{}", ISSUER.keys["one"], algorithm="ES256", headers={"kid": "one", "crit": ["b64"], "b64": True}
    )
    with pytest.raises(TokenRefused, match="understood"):
        verify(token)


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b.c",
        "a" * TOKEN_BYTES_MAX,
        "." * TOKEN_BYTES_MAX,
        b64("[" * 12_000) + ".e30.AA",
        b64('{"alg":"ES256","kid":"one","x":' + "[" * 8_000) + ".e30.AA",
        b64("[]") + ".e30.AA",
        b64('{"alg":["ES256"]}') + ".e30.AA",
        b64('{"alg":"ES256","kid":"one"}') + ".e30",
        b64('{"alg":"ES256","kid":"one"}') + ".e30.AA.AA.AA",
    ],
)
def test_an_invalid_token_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused):
        verify(token)


@given(st.text("abcdefghijABCDEFGHIJ0123456789-_.=+/~", max_size=300))
def test_random_text_is_refused_as_a_token(token: str) -> None:
    with pytest.raises(TokenRefused):
        verify(token)


@given(st.integers(0, 400), st.sampled_from("AZaz09-_."))
def test_a_token_that_was_changed_proves_nobody_or_the_same(at: int, character: str) -> None:
    """The last bits of a base64 letter can be unused, so a changed letter can spell the same token."""
    token = ISSUER.token("alice")
    changed = token[:at] + character + token[at + 1 :]
    try:
        assert verify(changed).name == "alice"
    except TokenRefused:
        return
    header, claims, _ = token.split(".")
    assert changed.split(".")[:2] == [header, claims]


def test_a_payload_that_is_no_object_proves_nobody() -> None:
    for payload in (b"[]", b"null", b"7", b"\xff", b"[" * 9_000):
        token = jwt.PyJWS().encode(payload, ISSUER.keys["one"], algorithm="ES256", headers={"kid": "one"})
        with pytest.raises(TokenRefused, match="claims"):
            verify(token)


# -- cache -------------------------------------------------------------------------------------------------------------


def test_a_proven_token_is_known_until_it_ends_or_the_configuration_changes() -> None:
    proven, token = ProvenTokens(b"key"), ISSUER.token()
    verified = verify(token)
    assert proven.find(token, DOCUMENT, NOW_MS) is None
    proven.record(token, DOCUMENT, verified)
    assert proven.find(token, DOCUMENT, NOW_MS) == verified
    assert proven.find(token, OAuthDocument.from_json(DOCUMENT.to_json()), NOW_MS) == verified
    assert proven.find(token + "A", DOCUMENT, NOW_MS) is None
    assert proven.find(token, DOCUMENT, verified.expires_at_ms) is None
    assert proven.find(token, ISSUER.document(audience="other"), NOW_MS) is None
    assert proven.find(token, ISSUER.document(keys=()), NOW_MS) is None


def test_proven_tokens_are_limited_and_found_by_their_hash_alone() -> None:
    proven = ProvenTokens(b"key")
    verified = VerifiedToken("alice", NOW_MS + 60_000, DOCUMENT.terms)
    for number in range(PROVEN_TOKENS_MAX + 10):
        proven.record(f"token-{number}", DOCUMENT, verified)
    assert len(proven) == PROVEN_TOKENS_MAX
    assert proven.find("token-0", DOCUMENT, NOW_MS) is None
    assert proven.find(f"token-{PROVEN_TOKENS_MAX}", DOCUMENT, NOW_MS) == verified
