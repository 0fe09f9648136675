"""OpenID provider of tests, as a process: `python -m tests.testkit.oidc_provider DIRECTORY`.

It is built on Authlib, which checks clients, redirect URIs, codes and PKCE. `POST /control` sets whom it signs in, what
its tokens claim, and its faults; it prints its port when it listens.
"""

from __future__ import annotations

import os
import ssl
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import AuthorizationCodeMixin, ClientMixin
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import OpenIDCode
from cryptography.hazmat.primitives.asymmetric import ec
from flask import Flask, Response, jsonify, redirect, request
from jwt.algorithms import ECAlgorithm
from werkzeug.serving import make_server

from tests.testkit.oidc import CLIENT_ID, CLIENT_SECRET
from tests.testkit.tls import make_certificate

HUGE_BYTES = 1_000_000
SLOW_S = 30.0

KEYS = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("published", "other")}


@dataclass
class Control:
    """Behaviour that a test sets."""

    claims: dict[str, Any] = field(default_factory=dict)  # replace those of the token; null removes one
    key: str = "published"
    algorithm: str = "ES256"
    fault: str = ""  # slow, huge, redirect, list, no_logout
    error: str = ""


class Client(ClientMixin):  # type: ignore[misc]
    def get_client_id(self) -> str:
        return CLIENT_ID

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri.endswith("/callback/")

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == CLIENT_SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "client_secret_basic"

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


@dataclass
class Code(AuthorizationCodeMixin):  # type: ignore[misc]
    code: str
    redirect_uri: str
    scope: str
    nonce: str
    code_challenge: str
    code_challenge_method: str

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def get_nonce(self) -> str:
        return self.nonce

    def get_auth_time(self) -> int:
        return int(time.time())

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> None:
        return None


CODES: dict[str, Code] = {}
CONTROL = Control()


class CodeGrant(AuthorizationCodeGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic",)

    def save_authorization_code(self, code: str, request: Any) -> None:
        data = request.payload.data
        CODES[code] = Code(
            code, request.payload.redirect_uri, request.payload.scope, data.get("nonce"), data.get("code_challenge"),
            data.get("code_challenge_method"),
        )  # fmt: skip

    def query_authorization_code(self, code: str, client: Any) -> Code | None:
        return CODES.get(code)

    def delete_authorization_code(self, authorization_code: Code) -> None:
        del CODES[authorization_code.code]

    def authenticate_user(self, authorization_code: Code) -> str:
        return "person"


class IdToken(OpenIDCode):  # type: ignore[misc]
    """Signs with PyJWT, because the library refuses to make the tokens of an attacker."""

    def exists_nonce(self, nonce: str, request: Any) -> bool:
        return False

    def encode_id_token(self, token: Any, request: Any) -> str:
        now_s = int(time.time())
        claims: dict[str, Any] = {
            "iss": app.config["ISSUER"], "aud": CLIENT_ID, "iat": now_s, "exp": now_s + 300,
            "sub": "subject-1", "email": "ada@example.com", "email_verified": True, "name": "Ada",
        }  # fmt: skip
        claims |= self.get_authorization_code_claims(request.authorization_code) | CONTROL.claims
        claims = {name: value for name, value in claims.items() if value is not None}
        if CONTROL.algorithm == "none":
            return jwt.encode(claims, None, algorithm="none")  # type: ignore[arg-type]
        if CONTROL.algorithm == "HS256":
            return jwt.encode(claims, CLIENT_SECRET * 2, algorithm="HS256", headers={"kid": "published"})
        return jwt.encode(claims, KEYS[CONTROL.key], algorithm="ES256", headers={"kid": "published"})


app = Flask(__name__)
server = AuthorizationServer(app, query_client=lambda client_id: Client() if client_id == CLIENT_ID else None,
                             save_token=lambda token, request: None)  # fmt: skip
server.register_grant(CodeGrant, [IdToken(), CodeChallenge(required=True)])


@app.get("/.well-known/openid-configuration")
def configuration() -> Any:
    issuer = app.config["ISSUER"]
    if CONTROL.fault == "slow":
        time.sleep(SLOW_S)
    if CONTROL.fault == "huge":
        return Response(b" " * HUGE_BYTES, mimetype="application/json")
    if CONTROL.fault == "redirect":
        return redirect("https://127.0.0.1:1/")
    if CONTROL.fault == "list":
        return jsonify([issuer])
    ending = {} if CONTROL.fault == "no_logout" else {"end_session_endpoint": f"{issuer}/end"}
    return jsonify(
        **ending, issuer=issuer, authorization_endpoint=f"{issuer}/authorize", token_endpoint=f"{issuer}/token",
        jwks_uri=f"{issuer}/keys", response_types_supported=["code"],
        token_endpoint_auth_methods_supported=["client_secret_basic"],
    )  # fmt: skip


@app.get("/keys")
def keys() -> Any:
    key = ECAlgorithm.to_jwk(KEYS["published"].public_key(), as_dict=True)
    return jsonify(keys=[{**key, "kid": "published", "use": "sig", "alg": "ES256"}])


@app.get("/authorize")
def authorize() -> Any:
    if CONTROL.error:
        return redirect(f"{request.args['redirect_uri']}?error={CONTROL.error}&state={request.args['state']}")
    return server.create_authorization_response(request=request, grant_user="person")


@app.get("/end")
def end() -> Any:
    """Ends the session of the person whom the hint names: sign-ins fail from then on."""
    hint = jwt.decode(
        request.args["id_token_hint"], KEYS["published"].public_key(), algorithms=["ES256"], audience=CLIENT_ID,
        options={"verify_exp": False},
    )  # fmt: skip
    onward = request.args["post_logout_redirect_uri"]
    if hint["sub"] != "subject-1" or request.args["client_id"] != CLIENT_ID or not onward.endswith("/ended/"):
        return Response("refused", 400)
    CONTROL.error = "login_required"
    return redirect(onward)


@app.post("/token")
def token() -> Any:
    return server.create_token_response()


@app.post("/control")
def control() -> Any:
    CONTROL.__dict__.update(Control().__dict__ | request.get_json())
    return jsonify({})


def main() -> None:
    directory = Path(sys.argv[1])
    certificate = make_certificate(directory, "oidc")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    running = make_server("127.0.0.1", 0, app, threaded=True, ssl_context=context)
    app.config["ISSUER"] = f"https://127.0.0.1:{running.server_port}"
    print(running.server_port, flush=True)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    running.serve_forever()


def _end_with_parent() -> None:
    sys.stdin.read()  # ends when the test's process does
    os._exit(0)


if __name__ == "__main__":
    main()
