"""Wrong tokens from many connections: `python -m tests.adversarial.token_swarm PORT ATTEMPTS CONNECTIONS KIND`.

Closes the connection before a late answer, and prints the number of each result as one JSON line.
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


def costly_message(kind: str) -> bytes:
    """Returns the largest allowed message, built so that it costs a broker as much as possible."""
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
            while answer.error_code == 0 and answer.auth_bytes:  # the client may try another one
                answer = await client.call(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token))
        return "let in" if answer.error_code == 0 else "refused"
    except TimeoutError:
        return "hung up"
    except (ConnectionError, asyncio.IncompleteReadError):
        return "cut"
    finally:
        await client.close()


async def main(port: int, attempts: int, connections: int, kind: str) -> dict[str, int]:
    token = costly_message(kind)
    numbers = iter(range(attempts))
    counts_by_result: dict[str, int] = {}

    async def attempt_repeatedly() -> None:
        for _ in numbers:
            result = await attempt(port, token)
            counts_by_result[result] = counts_by_result.get(result, 0) + 1

    await asyncio.gather(*(attempt_repeatedly() for _ in range(connections)))
    return counts_by_result


if __name__ == "__main__":
    os.nice(NICENESS)
    arguments = sys.argv[1:]
    results = asyncio.run(main(int(arguments[0]), int(arguments[1]), int(arguments[2]), arguments[3]))
    print(json.dumps(results), flush=True)
