"""Wrong passwords from many connections: `python -m tests.adversarial.password_swarm PORT ATTEMPTS CONNECTIONS
MECHANISM`.

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
from tests.testkit.scram import ScramClient
from tests.testkit.wire import WireClient

NICENESS: Final = 10
PATIENCE_S: Final = 0.15


async def attempt(port: int, number: int, mechanism: str) -> str:
    """Returns the result of one attempt."""
    try:
        client = await WireClient.connect(port)
    except OSError:
        return "not connected"
    try:
        handshake = await client.call(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism=mechanism))
        assert handshake.error_code == 0
        scram = ScramClient("alice", "wrong", 1)
        token = f"\0alice\0wrong-{number}".encode() if mechanism == "PLAIN" else scram.first()
        async with asyncio.timeout(PATIENCE_S):
            request = SaslAuthenticateRequest(auth_bytes=token)
            answer = await client.call(ApiKey.SASL_AUTHENTICATE, 2, request)
            if answer.error_code == 0:
                request = SaslAuthenticateRequest(auth_bytes=scram.final(bytes(answer.auth_bytes)))
                answer = await client.call(ApiKey.SASL_AUTHENTICATE, 2, request)
        return "let in" if answer.error_code == 0 else "refused"
    except TimeoutError:
        return "hung up"
    except (ConnectionError, asyncio.IncompleteReadError):
        return "cut"
    finally:
        await client.close()


async def main(port: int, attempts: int, connections: int, mechanism: str) -> dict[str, int]:
    numbers = iter(range(attempts))
    counts_by_result: dict[str, int] = {}

    async def attempt_repeatedly() -> None:
        for number in numbers:
            result = await attempt(port, number, mechanism)
            counts_by_result[result] = counts_by_result.get(result, 0) + 1

    await asyncio.gather(*(attempt_repeatedly() for _ in range(connections)))
    return counts_by_result


if __name__ == "__main__":
    os.nice(NICENESS)
    arguments = sys.argv[1:]
    results = asyncio.run(main(int(arguments[0]), int(arguments[1]), int(arguments[2]), arguments[3]))
    print(json.dumps(results), flush=True)
