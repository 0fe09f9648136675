"""Wrong tokens from many connections: `python -m tests.adversarial.token_swarm PORT ATTEMPTS CONNECTIONS KIND`.

Hangs up before a late answer, and prints what it did as one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Final

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from instances.oauth.limits import KEY_ID_BYTES_MAX, TOKEN_BYTES_MAX
from tests.testkit.oauth import b64, message
from tests.testkit.wire import WireClient

NICENESS: Final = 10
PATIENCE_S: Final = 0.15
KINDS: Final = ("signature", "claims", "key", "nesting", "pairs")


def attack(kind: str) -> bytes:
    """A message as large as one may be that costs a broker as much as it can."""
    room = TOKEN_BYTES_MAX - len(message("")) - 2
    if kind == "pairs":
        return b"n,,\x01" + b"a=b\x01" * ((TOKEN_BYTES_MAX - 6) // 4) + b"\x01"
    if kind == "key":
        header = b64({"alg": "RS512", "kid": "k" * (room * 3 // 4 - 100)})
        return message(f"{header}.e30.AA")
    if kind == "nesting":
        return message(f"{b64('[' * (room * 3 // 4 - 100))}.e30.AA")
    header = b64({"alg": "RS512", "kid": "0".rjust(KEY_ID_BYTES_MAX, "k")})
    signature = b64(bytes(256))
    filling = room - len(header) - len(signature) - 2
    claims = "e" * filling if kind == "signature" else b64({"iss": "x" * (filling * 3 // 4 - 100)})
    return message(f"{header}.{claims}.{signature}")


async def attempt(port: int, token: bytes) -> str:
    """Returns the result of one attempt."""
    try:
        client = await WireClient.connect(port)
    except OSError:
        return "not connected"
    try:
        handshake = await client.call(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="OAUTHBEARER"))
        assert handshake.error_code == 0
        async with asyncio.timeout(PATIENCE_S):
            answer = await client.call(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token))
            while answer.error_code == 0 and answer.auth_bytes:  # it may try another one
                answer = await client.call(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token))
        return "let in" if answer.error_code == 0 else "refused"
    except TimeoutError:
        return "hung up"
    except (ConnectionError, asyncio.IncompleteReadError):
        return "cut"
    finally:
        await client.close()


async def main(port: int, attempts: int, connections: int, kind: str) -> dict[str, int]:
    token = attack(kind)
    numbers = iter(range(attempts))
    ended: dict[str, int] = {}

    async def one() -> None:
        for _ in numbers:
            how = await attempt(port, token)
            ended[how] = ended.get(how, 0) + 1

    await asyncio.gather(*(one() for _ in range(connections)))
    return ended


if __name__ == "__main__":
    os.nice(NICENESS)
    given = sys.argv[1:]
    did = asyncio.run(main(int(given[0]), int(given[1]), int(given[2]), given[3]))
    print(json.dumps(did), flush=True)
