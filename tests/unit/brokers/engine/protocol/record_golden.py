"""Write `tests/golden/protocol/`: the bytes of other codecs for our sample messages.

    python -m tests.unit.brokers.engine.protocol.record_golden

Run it when a message is added to the table, and read the diff. Every line comes from kio (or from kafka-python, where
kio lacks the version) after that codec has read the sample's values back; a version that neither has is left out. A
file per call: `direction version variant hex`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import APIS

from . import oracles
from .samples import VARIANTS, every_message, sample

GOLDEN = Path(__file__).parents[4] / "golden" / "protocol"


def lines_of(api_key: int) -> list[str]:
    """Return the golden lines of one API."""
    lines = []
    for key, version, direction in every_message():
        if key != api_key:
            continue
        for variant in VARIANTS:
            value = sample(key, version, direction, variant)
            write = codec.encode_request if direction == "request" else codec.encode_response
            ours = write(key, version, value)
            by_kio = oracles.through_kio(key, version, direction, ours)
            written = by_kio[0] if by_kio else oracles.through_kafka_python(key, version, direction, ours)
            if written is not None:
                lines.append(f"{direction} {version} {variant} {written.hex() or '-'}")
    return lines


def main() -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for api_key, api in APIS.items():
        path = GOLDEN / f"{api.key.name.lower()}.txt"
        path.write_text("".join(f"{line}\n" for line in lines_of(api_key)))
        sys.stdout.write(f"{path.name}\n")


if __name__ == "__main__":
    main()
