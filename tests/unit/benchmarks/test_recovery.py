"""Options of the benchmark of a start."""

from __future__ import annotations

import sys

import pytest

from benchmarks import recovery


@pytest.mark.parametrize(("options", "cold"), [([], False), (["--cold"], True)])
def test_the_option_cold_is_passed_on(monkeypatch: pytest.MonkeyPatch, options: list[str], cold: bool) -> None:
    measured = []
    monkeypatch.setattr(recovery, "measure", lambda *_, uncached: measured.append(uncached))
    monkeypatch.setattr(sys, "argv", ["recovery", "--batches", "15 KB", *options])
    recovery.main()
    assert measured == [cold]
