"""Simulates clients that send one request at a time: `python -m benchmarks.sharing_serial`.

The simulation runs the limiters, pools and paces of three brokers, for requests of 1 KB to 1 MB under limits of 0.05 to
50 MB/s. It reports the part of the limit that passed after the first three seconds, and the greatest part in any ten
seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final, NamedTuple

from benchmarks.pooled_world import TICK_MS, PooledBrokers

KB: Final = 1_000
MB: Final = 1_000_000
BROKERS: Final = 3
SHAPES: Final = ("one key", "in turn", "at random", "moving", "first burst", "in turn after one", "all at once")
SIZES: Final = (KB, 20 * KB, 100 * KB, MB)
LIMITS: Final = (50 * KB, 500 * KB, 5 * MB, 50 * MB)
# Requests per second beyond which a simulation only takes longer.
RATE_MAX: Final = 1_000
BEGIN_MS: Final = 3_000
LENGTH_MS: Final = 23_000
# The least number of large requests under a small limit in a simulation.
REQUESTS_MIN: Final = 20


class Outcome(NamedTuple):
    """Figures of one case: admitted bytes as parts of the limit on average, and in the ten seconds with the most bytes.

    `excess_requests` is the excess over the limit in these ten seconds, in requests.
    """

    shape: str
    size_bytes: int
    limit_bps: int
    mean_share: float
    peak_share: float
    excess_requests: float


def cases() -> Iterator[tuple[str, int, int]]:
    """Yields (shape, bytes of a request, limit in bytes/s) of every simulated case."""
    for shape in SHAPES:
        for size_bytes in SIZES:
            for limit_bps in LIMITS:
                if limit_bps // size_bytes <= RATE_MAX:
                    yield shape, size_bytes, limit_bps


def targets(shape: str, number: int, now_ms: int, dice: Random) -> tuple[int, ...]:
    """Returns the brokers to which the next request may go."""
    match shape:
        case "in turn":
            return (number % BROKERS,)
        case "at random":
            return (dice.randrange(BROKERS),)
        case "moving":
            return (now_ms // 2_500 % BROKERS,)
        case "first burst":
            return (0,) if now_ms >= 1_000 else ()
        case "in turn after one":
            return (number % BROKERS if now_ms > 5_000 else 1,)
        case "all at once":
            return tuple(range(BROKERS))
    return (0,)


def run(shape: str, size_bytes: int, limit_bps: int, trip_ms: int = 2, seed: int = 1) -> Outcome:
    """Simulates one client, or one for each broker, that sends as soon as it is admitted."""
    brokers, dice, sent_count = PooledBrokers((1,) * BROKERS, limit_bps, trip_ms), Random(seed), 0
    length_ms = max(LENGTH_MS, REQUESTS_MIN * size_bytes * 1000 // limit_bps)
    length_ms -= length_ms % 100
    per_tick_max = 2 * TICK_MS * limit_bps // 1000 // size_bytes + 1
    while brokers.now_ms < length_ms:
        for broker in targets(shape, sent_count, brokers.now_ms, dice):
            for _ in range(per_tick_max):
                if not brokers.admit(broker, size_bytes):
                    break
                sent_count += 1
        brokers.tick()
    begin_ms = max(BEGIN_MS, length_ms // 7 // 100 * 100)
    admitted_share = brokers.admitted_between(begin_ms, length_ms) / (limit_bps * (length_ms - begin_ms) / 1000)
    peak_bytes = brokers.peak_bytes_in_10_s()
    return Outcome(
        shape,
        size_bytes,
        limit_bps,
        admitted_share,
        peak_bytes / limit_bps / 10,
        (peak_bytes - 10 * limit_bps) / size_bytes,
    )


def measure() -> Iterator[dict[str, Any] | str]:
    """Yields a line for each shape: the least that passed and the greatest excess, over all sizes and limits."""
    outcomes = [run(*case) for case in cases()]
    lines = ["| one request at a time | least of the limit | most in 10 s, small requests |", "|---|---|---|"]
    for shape in SHAPES:
        outcomes_of_shape = [outcome for outcome in outcomes if outcome.shape == shape]
        small = [outcome for outcome in outcomes_of_shape if outcome.size_bytes * 100 <= outcome.limit_bps]
        fitting = [outcome for outcome in outcomes_of_shape if outcome.size_bytes <= outcome.limit_bps]
        least, most = min(outcome.mean_share for outcome in fitting), max(outcome.peak_share for outcome in small)
        yield {"benchmark": "sharing, one request at a time", "shape": shape, "least": least, "most": most}
        lines.append(f"| {shape} | {least:.1%} | {most:.1%} |")
    yield "\n".join(lines)


def main() -> None:
    for line in measure():
        if isinstance(line, str):
            print(line)


if __name__ == "__main__":
    main()
