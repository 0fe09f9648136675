"""The attacks by name, against the ports of one instance: `python -m tests.adversarial.attacks NAME SECONDS PORT…`.

Prints its results as one JSON line. It gives way to the brokers (niceness): attackers have machines of their own.
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
# Results of one attack, printed as JSON.
AttackResult = dict[str, Any]
Attack = Callable[[Sequence[int], float], Coroutine[Any, Any, AttackResult]]
CODECS: Final = {"gzip": GZIP, "lz4": LZ4, "zstd": ZSTD, "snappy": SNAPPY}
TLS_PER_MINUTE: Final = 2_000
WAITING, STRANGERS = 3_000, 1_000
WRONG_PASSWORDS, PASSWORD_CONNECTIONS = 10_000, 100
# One is by five instances of five tenants; one is by an instance with the least quota beside one with the largest.
FIVE_TENANTS: Final = "five tenants together"
KINDS_OF_FIVE: Final = ("tiny-produce", "tiny-fetch", "empty-fetch", "long-poll", "tiny")
SMALLEST_BESIDE_LARGEST: Final = "smallest plan beside the largest"
PRODUCES: Final = ("many_bytes", "many_batches", "many_records", "many_headers")


def _frames_attack(frames: Callable[[], Sequence[bytes]], connections: int = CONNECTIONS) -> Attack:
    """Returns an attack that sends each frame repeatedly, one frame after another, to all ports."""

    async def run(ports: Sequence[int], seconds: float) -> AttackResult:
        built_frames = frames()
        share_s, answers = seconds / len(built_frames), 0
        for frame in built_frames:
            runs = (attack(port, frame, connections=connections, seconds=share_s) for port in ports)
            answers += sum(await asyncio.gather(*runs))
        return {"answers": answers, "bytes": max(map(len, built_frames))}

    return run


def _inflating_frame(codec_id: int) -> bytes:
    records = bytes(build_batch([Record(0, None, bytes(inflating.INFLATED_BYTES))], codec=codec_id))
    return test_long_produces.frame(TOPIC, 1, records)


def _coordinators_attack(step: str) -> Attack:
    async def run(ports: Sequence[int], seconds: float) -> AttackResult:
        attacks = [test_coordinators.Attack(port) for port in ports]
        await asyncio.gather(*(attack.run(getattr(attack, step), seconds) for attack in attacks))
        answers = {
            code: sum(attack.answers[code] for attack in attacks) for attack in attacks for code in attack.answers
        }
        return {"answers": {str(code): count for code, count in sorted(answers.items())}}

    return run


async def _run_swarms(module: str, ports: Sequence[int], *arguments: str) -> list[Any]:
    """Runs a swarm for each port, and returns the last line that each prints."""
    processes = [
        await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                f"tests.adversarial.{module}",
                *(argument.format(port=port) for argument in arguments),
            ),
            stdout=subprocess.PIPE,
        )
        for port in ports
    ]
    return [json.loads((await process.communicate())[0].splitlines()[-1]) for process in processes]


def _handshakes_attack(kind: str) -> Attack:
    async def run(ports: Sequence[int], seconds: float) -> AttackResult:
        per_minute = str(TLS_PER_MINUTE // len(ports))
        return {"swarms": await _run_swarms("handshake_swarm", ports, kind, "{port}", per_minute, str(seconds))}

    return run


def _passwords_attack(mechanism: str) -> Attack:
    """Returns an attack with a fixed number of passwords, however long that takes."""

    async def run(ports: Sequence[int], _seconds: float) -> AttackResult:
        attempts, connections = str(WRONG_PASSWORDS // len(ports)), str(PASSWORD_CONNECTIONS // len(ports))
        return {"swarms": await _run_swarms("password_swarm", ports, "{port}", attempts, connections, mechanism)}

    return run


def _names_attack(frames: Callable[[], list[bytes]]) -> Attack:
    async def run(ports: Sequence[int], seconds: float) -> AttackResult:
        tasks = [
            asyncio.create_task(named._send_repeatedly(port, frames())) for port in ports for _ in range(CONNECTIONS)
        ]
        await asyncio.wait(tasks, timeout=seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return {}

    return run


def _swarm_attack(kind: str, connections: int) -> Attack:
    async def run(ports: Sequence[int], seconds: float) -> AttackResult:
        if kind == "deaf-fetch":
            for port in ports:
                await test_connections.fill(port)
        processes = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.adversarial.swarm", kind, str(port)),
                *(str(connections // len(ports)), str(round(seconds))),
                stdout=subprocess.PIPE,
            )
            for port in ports
        ]
        lines = [(await process.communicate())[0].splitlines()[-1] for process in processes]
        return {"swarms": [json.loads(line) for line in lines]}

    return run


def _attack_together(kinds: Sequence[str], connections: int) -> Attack:
    """Returns an attack by several instances at once, one kind each; `ports` lists the ports of one after another."""

    async def run(ports: Sequence[int], seconds: float) -> AttackResult:
        brokers = len(ports) // len(kinds)
        swarms = (
            _swarm_attack(kind, connections)(ports[number * brokers : (number + 1) * brokers], seconds)
            for number, kind in enumerate(kinds)
        )
        return dict(zip(kinds, await asyncio.gather(*swarms), strict=True))

    return run


def _waiting_attack(kind: str) -> Attack:
    async def run(ports: Sequence[int], seconds: float) -> AttackResult:
        connections = str(WAITING // len(ports))
        return {"swarms": await _run_swarms("waiting_swarm", ports, kind, "{port}", connections, str(round(seconds)))}

    return run


async def _strangers_attack(ports: Sequence[int], seconds: float) -> AttackResult:
    """Runs strangers while an honest client connects from another address; `median_s` is how long that takes."""
    swarms = asyncio.create_task(
        _run_swarms("stranger_swarm", ports, "{port}", str(STRANGERS // len(ports)), str(round(seconds)))
    )
    entries_s: list[float] = []
    while not swarms.done():
        entries_s.append(await asyncio.to_thread(test_strangers.connect_honestly, ports[0]))
        await asyncio.sleep(0.1)
    entries_s.sort()
    return {"median_s": round(entries_s[len(entries_s) // 2], 3), "swarms": await swarms}


def _reconnects_attack(name: str) -> Attack:
    """Returns an attack with a new connection for each request, at all brokers."""

    async def run(ports: Sequence[int], seconds: float) -> AttackResult:
        steps = (test_reconnects.repeat_step(test_reconnects.STEPS[name], port, seconds) for port in ports)
        return {"mb_s": round(sum(await asyncio.gather(*steps)) / seconds / 1e6, 2)}

    return run


async def _random_attack(ports: Sequence[int], seconds: float) -> AttackResult:
    """Sends random legal requests until the time is over or a number is reached."""
    requests = Requests(Random(depth.SEED), (TOPIC, "g", "t", "another", "__consumer_offsets"), [])
    attackers = [Attacker(port) for port in ports for _ in range(2)]
    ends_s = asyncio.get_running_loop().time() + seconds
    sent = answers = 0
    while asyncio.get_running_loop().time() < ends_s:
        results = await asyncio.gather(*(attacker.send(requests.draw()) for attacker in attackers))
        sent, answers = sent + len(results), answers + sum(result is not None for result in results)
    for attacker in attackers:
        await attacker.close()
    return {"sent": sent, "answers": answers, "seed": depth.SEED}


def _attacks_by_name() -> dict[str, Attack]:
    attacks: dict[str, Attack] = {
        f"longest {api_key.name.lower()}": _frames_attack(
            lambda api_key=api_key: [
                frame for _, frame in longest_requests(api_key, ADVERTISED_TENANT[api_key][1], TOPIC)
            ]
        )
        for api_key in test_long_requests.OTHER_APIS
    }
    attacks["produce of 24,000 lines"] = _frames_attack(lambda: [test_long_requests.long_produce()])
    attacks["fetch of 24,000 lines"] = _frames_attack(
        lambda: [test_long_requests.long_fetch(epoch) for epoch in (-1, 0, 1)]
    )
    for name in PRODUCES:
        attacks[f"produce of {name.replace('_', ' ')}"] = _frames_attack(
            lambda name=name: [getattr(test_long_produces, name)()]
        )
    for name, codec_id in CODECS.items():
        attacks[f"inflating {name}"] = _frames_attack(
            lambda codec_id=codec_id: [_inflating_frame(codec_id)], inflating.CONNECTIONS // 3
        )
    for kind, connections in test_connections.KINDS:
        attacks[f"{connections:,} connections, {kind}"] = _swarm_attack(kind, connections)
    attacks[FIVE_TENANTS] = _attack_together(KINDS_OF_FIVE, 200)
    attacks[SMALLEST_BESIDE_LARGEST] = _swarm_attack("tiny-produce", 1_000)
    for step in ("commit", "join", "begin", "open"):
        attacks[f"coordinators, {step}"] = _coordinators_attack(step)
    for kind in waiting_swarm.KINDS:
        attacks[f"{WAITING:,} fetches that wait, {kind}"] = _waiting_attack(kind)
    attacks["names of quotas"] = _names_attack(named.name_quotas)
    attacks["configurations"] = _names_attack(named.configure)
    attacks["topics made and deleted"] = _names_attack(named.create_and_delete)
    attacks |= {f"new connections, {name}": _reconnects_attack(name) for name in test_reconnects.STEPS}
    attacks |= {f"handshakes, TLS {kind}": _handshakes_attack(kind) for kind in KINDS}
    attacks["handshakes, TLS of strangers"] = _strangers_attack
    attacks |= {
        f"handshakes, wrong {mechanism}": _passwords_attack(mechanism) for mechanism in ("PLAIN", "SCRAM-SHA-256")
    }
    attacks["random requests"] = _random_attack  # the last one: it leaves topics with other configurations behind
    return attacks


ATTACKS: Final = _attacks_by_name()
# Attacks by several instances of one tenant together: as many connections as one has, spread over all of them.
TOGETHER: Final = 8
BY_MANY: Final = {f"{name}, {TOGETHER} instances": name for name in ("1,000 connections, tiny", "coordinators, join")}
ATTACKS |= {name: ATTACKS[single] for name, single in BY_MANY.items()}


def attacked_security(name: str) -> str:
    """Returns the security of the route that an attack is for."""
    if not name.startswith("handshakes"):
        return PLAINTEXT
    return "tls" if "TLS" in name else "sasl_plaintext"


def main() -> None:
    os.nice(NICENESS)
    name, seconds, ports = sys.argv[1], float(sys.argv[2]), [int(port) for port in sys.argv[3:]]
    print(json.dumps(asyncio.run(ATTACKS[name](ports, seconds))), flush=True)


if __name__ == "__main__":
    main()
