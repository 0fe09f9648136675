"""The attacks by name, against the ports of one instance: `python -m tests.adversarial.attacks NAME SECONDS PORT…`.

Prints one JSON line of what it did. It gives way to the brokers (niceness): attackers have machines of their own.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, Final

from brokers.contract.routes import PLAINTEXT
from brokers.engine.protocol.apis import ADVERTISED_TENANT
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.records.compression import GZIP, LZ4, SNAPPY, ZSTD
from tests.adversarial import (
    test_connections,
    test_coordinators,
    test_long_produces,
    test_long_requests,
    test_reconnects,
    test_strangers,
    waiting_swarm,
)
from tests.adversarial import test_inflating_batches as inflating
from tests.adversarial import test_named_things as named
from tests.adversarial.handshake_swarm import KINDS
from tests.adversarial.hostile import TOPIC, attack, longest_requests
from tests.adversarial.random_requests import Requests
from tests.adversarial.test_random_requests import Attacker
from tests.testkit import depth

NICENESS: Final = 15
CONNECTIONS: Final = 4
# What it did, by kind.
Did = dict[str, Any]
Attack = Callable[[Sequence[int], float], Coroutine[Any, Any, Did]]
CODECS: Final = {"gzip": GZIP, "lz4": LZ4, "zstd": ZSTD, "snappy": SNAPPY}
TLS_PER_MINUTE: Final = 2_000
WAITING, STRANGERS = 3_000, 1_000
WRONG_PASSWORDS, PASSWORD_CONNECTIONS = 10_000, 100
# Of five instances of five tenants, and of one that bought the least beside a neighbour that bought the most.
FIVE_TENANTS: Final = "five tenants together"
KINDS_OF_FIVE: Final = ("tiny-produce", "tiny-fetch", "empty-fetch", "long-poll", "tiny")
SMALLEST_BESIDE_LARGEST: Final = "smallest plan beside the largest"
PRODUCES: Final = ("many_bytes", "many_batches", "many_records", "many_headers")


def _frames(frames: Callable[[], Sequence[bytes]], connections: int = CONNECTIONS) -> Attack:
    """Each frame again and again, one after the other, at all ports."""

    async def run(ports: Sequence[int], seconds: float) -> Did:
        made = frames()
        share_s, answers = seconds / len(made), 0
        for frame in made:
            each = (attack(port, frame, connections=connections, seconds=share_s) for port in ports)
            answers += sum(await asyncio.gather(*each))
        return {"answers": answers, "bytes": max(map(len, made))}

    return run


def _bomb(codec_id: int) -> bytes:
    records = bytes(build_batch([Record(0, None, bytes(inflating.INFLATED_BYTES))], codec=codec_id))
    return test_long_produces.frame(TOPIC, 1, records)


def _coordinators(step: str) -> Attack:
    async def run(ports: Sequence[int], seconds: float) -> Did:
        made = [test_coordinators.Attack(port) for port in ports]
        await asyncio.gather(*(each.run(getattr(each, step), seconds) for each in made))
        answers = {code: sum(each.answers[code] for each in made) for each in made for code in each.answers}
        return {"answers": {str(code): count for code, count in sorted(answers.items())}}

    return run


async def _said_by(module: str, ports: Sequence[int], *arguments: str) -> list[Any]:
    """Runs a swarm at each port, and returns the last line that each prints."""
    made = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", f"tests.adversarial.{module}", *(each.format(port=port) for each in arguments)),
            stdout=subprocess.PIPE,
        )
        for port in ports
    ]
    return [json.loads((await each.communicate())[0].splitlines()[-1]) for each in made]


def _handshakes(kind: str) -> Attack:
    async def run(ports: Sequence[int], seconds: float) -> Did:
        each = str(TLS_PER_MINUTE // len(ports))
        return {"swarms": await _said_by("handshake_swarm", ports, kind, "{port}", each, str(seconds))}

    return run


def _passwords(mechanism: str) -> Attack:
    """Returns an attack with a fixed number of passwords, however long that takes."""

    async def run(ports: Sequence[int], _seconds: float) -> Did:
        attempts, connections = str(WRONG_PASSWORDS // len(ports)), str(PASSWORD_CONNECTIONS // len(ports))
        return {"swarms": await _said_by("password_swarm", ports, "{port}", attempts, connections, mechanism)}

    return run


def _names(frames: Callable[[], list[bytes]]) -> Attack:
    async def run(ports: Sequence[int], seconds: float) -> Did:
        tasks = [asyncio.create_task(named._repeat(port, frames())) for port in ports for _ in range(CONNECTIONS)]
        await asyncio.wait(tasks, timeout=seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return {}

    return run


def _swarm(kind: str, connections: int) -> Attack:
    async def run(ports: Sequence[int], seconds: float) -> Did:
        if kind == "deaf-fetch":
            for port in ports:
                await test_connections.fill(port)
        made = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.adversarial.swarm", kind, str(port)),
                *(str(connections // len(ports)), str(round(seconds))),
                stdout=subprocess.PIPE,
            )
            for port in ports
        ]
        said = [(await each.communicate())[0].splitlines()[-1] for each in made]
        return {"swarms": [json.loads(line) for line in said]}

    return run


def _together(kinds: Sequence[str], connections: int) -> Attack:
    """A kind for each of several instances, whose ports follow each other, at all brokers at once."""

    async def run(ports: Sequence[int], seconds: float) -> Did:
        brokers = len(ports) // len(kinds)
        swarms = (
            _swarm(kind, connections)(ports[number * brokers : (number + 1) * brokers], seconds)
            for number, kind in enumerate(kinds)
        )
        return dict(zip(kinds, await asyncio.gather(*swarms), strict=True))

    return run


def _waiting(kind: str) -> Attack:
    async def run(ports: Sequence[int], seconds: float) -> Did:
        connections = str(WAITING // len(ports))
        return {"swarms": await _said_by("waiting_swarm", ports, kind, "{port}", connections, str(round(seconds)))}

    return run


async def _strangers(ports: Sequence[int], seconds: float) -> Did:
    """An honest client comes from another address meanwhile; how long that takes is part of what is said."""
    said = asyncio.create_task(
        _said_by("stranger_swarm", ports, "{port}", str(STRANGERS // len(ports)), str(round(seconds)))
    )
    entries_s: list[float] = []
    while not said.done():
        entries_s.append(await asyncio.to_thread(test_strangers.enter, ports[0]))
        await asyncio.sleep(0.1)
    entries_s.sort()
    return {"median_s": round(entries_s[len(entries_s) // 2], 3), "swarms": await said}


def _reconnects(name: str) -> Attack:
    """A new connection for each request, at all brokers."""

    async def run(ports: Sequence[int], seconds: float) -> Did:
        steps = (test_reconnects.repeat(test_reconnects.STEPS[name], port, seconds) for port in ports)
        return {"mb_s": round(sum(await asyncio.gather(*steps)) / seconds / 1e6, 2)}

    return run


async def _random(ports: Sequence[int], seconds: float) -> Did:
    """Sends random legal requests until the time is over or a number is reached."""
    requests = Requests(Random(depth.SEED), (TOPIC, "g", "t", "another", "__consumer_offsets"), [])
    attackers = [Attacker(port) for port in ports for _ in range(2)]
    ends_s = asyncio.get_running_loop().time() + seconds
    sent = answers = 0
    while asyncio.get_running_loop().time() < ends_s:
        results = await asyncio.gather(*(each.send(requests.draw()) for each in attackers))
        sent, answers = sent + len(results), answers + sum(result is not None for result in results)
    for each in attackers:
        await each.close()
    return {"sent": sent, "answers": answers, "seed": depth.SEED}


def _all() -> dict[str, Attack]:
    attacks: dict[str, Attack] = {
        f"longest {api_key.name.lower()}": _frames(
            lambda api_key=api_key: [
                frame for _, frame in longest_requests(api_key, ADVERTISED_TENANT[api_key][1], TOPIC)
            ]
        )
        for api_key in test_long_requests.OTHER_APIS
    }
    attacks["produce of 24,000 lines"] = _frames(lambda: [test_long_requests.long_produce()])
    attacks["fetch of 24,000 lines"] = _frames(lambda: [test_long_requests.long_fetch(epoch) for epoch in (-1, 0, 1)])
    for name in PRODUCES:
        attacks[f"produce of {name.replace('_', ' ')}"] = _frames(
            lambda name=name: [getattr(test_long_produces, name)()]
        )
    for name, codec_id in CODECS.items():
        attacks[f"inflating {name}"] = _frames(lambda codec_id=codec_id: [_bomb(codec_id)], inflating.CONNECTIONS // 3)
    for kind, connections in test_connections.KINDS:
        attacks[f"{connections:,} connections, {kind}"] = _swarm(kind, connections)
    attacks[FIVE_TENANTS] = _together(KINDS_OF_FIVE, 200)
    attacks[SMALLEST_BESIDE_LARGEST] = _swarm("tiny-produce", 1_000)
    for step in ("commit", "join", "begin", "open"):
        attacks[f"coordinators, {step}"] = _coordinators(step)
    for kind in waiting_swarm.KINDS:
        attacks[f"{WAITING:,} fetches that wait, {kind}"] = _waiting(kind)
    attacks["names of quotas"] = _names(named.name_quotas)
    attacks["configurations"] = _names(named.configure)
    attacks["topics made and deleted"] = _names(named.create_and_delete)
    attacks |= {f"new connections, {name}": _reconnects(name) for name in test_reconnects.STEPS}
    attacks |= {f"handshakes, TLS {kind}": _handshakes(kind) for kind in KINDS}
    attacks["handshakes, TLS of strangers"] = _strangers
    attacks |= {f"handshakes, wrong {mechanism}": _passwords(mechanism) for mechanism in ("PLAIN", "SCRAM-SHA-256")}
    attacks["random requests"] = _random  # the last one: it leaves topics with other configurations behind
    return attacks


ATTACKS: Final = _all()
# Attacks that several instances of one tenant make together: as many connections as of one, spread over all of them.
TOGETHER: Final = 8
BY_MANY: Final = {f"{name}, {TOGETHER} instances": name for name in ("1,000 connections, tiny", "coordinators, join")}
ATTACKS |= {name: ATTACKS[single] for name, single in BY_MANY.items()}


def security_of(name: str) -> str:
    """Which kind of route an attack is for."""
    if not name.startswith("handshakes"):
        return PLAINTEXT
    return "tls" if "TLS" in name else "sasl_plaintext"


def main() -> None:
    os.nice(NICENESS)
    name, seconds, ports = sys.argv[1], float(sys.argv[2]), [int(port) for port in sys.argv[3:]]
    print(json.dumps(asyncio.run(ATTACKS[name](ports, seconds))), flush=True)


if __name__ == "__main__":
    main()
