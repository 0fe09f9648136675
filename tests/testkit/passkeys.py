"""An authenticator in software: it creates one passkey and signs with it, like a browser."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2 import cbor
from fido2.cose import ES256
from fido2.utils import websafe_decode, websafe_encode

USER_PRESENT, USER_PRESENT_AND_VERIFIED, ATTESTED = 0x01, 0x05, 0x40


class SoftPasskey:
    """A security key in software."""

    def __init__(self, origin: str, credential_id: bytes = b"a passkey of the tests") -> None:
        self.origin, self.credential_id = origin, credential_id
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.signatures = 0

    def create(self, options: dict[str, Any]) -> str:
        """Returns the answer to `navigator.credentials.create`."""
        public_key = options["publicKey"]
        cose = dict(ES256.from_cryptography_key(self.key.public_key()))
        attested = b"\0" * 16 + struct.pack(">H", len(self.credential_id)) + self.credential_id + cbor.encode(cose)
        data = self._data(public_key["rp"]["id"], USER_PRESENT_AND_VERIFIED | ATTESTED) + attested
        return self._answer(
            clientDataJSON=self._client_data("webauthn.create", public_key),
            attestationObject=cbor.encode({"fmt": "none", "attStmt": {}, "authData": data}),
        )

    def get(self, options: dict[str, Any], user_handle: str = "", *, is_verified: bool = True) -> str:
        """Returns the answer to `navigator.credentials.get`, with `user_handle` for a discoverable passkey."""
        public_key = options["publicKey"]
        self.signatures += 1
        data = self._data(public_key["rpId"], USER_PRESENT_AND_VERIFIED if is_verified else USER_PRESENT)
        client_data = self._client_data("webauthn.get", public_key)
        signature = self.key.sign(data + hashlib.sha256(client_data).digest(), ec.ECDSA(hashes.SHA256()))
        user_handle_part = {"userHandle": user_handle.encode()} if user_handle else {}
        return self._answer(clientDataJSON=client_data, authenticatorData=data, signature=signature, **user_handle_part)

    def _data(self, rp_id: str, flags: int) -> bytes:
        return hashlib.sha256(rp_id.encode()).digest() + struct.pack(">BI", flags, self.signatures)

    def _client_data(self, kind: str, public_key: dict[str, Any]) -> bytes:
        challenge = websafe_encode(websafe_decode(public_key["challenge"]))
        return json.dumps({"type": kind, "challenge": challenge, "origin": self.origin}).encode()

    def _answer(self, **parts: bytes) -> str:
        own_id = websafe_encode(self.credential_id)
        return json.dumps(
            {
                "type": "public-key",
                "id": own_id,
                "rawId": own_id,
                "response": {name: websafe_encode(part) for name, part in parts.items()},
                "clientExtensionResults": {},
            }
        )
