"""Which steps `--only` names."""

from __future__ import annotations

import argparse

import pytest

from benchmarks.__main__ import SIMULATED, benchmarks_by_name, select


def test_each_step_can_be_named_and_without_names_all_of_them_run() -> None:
    known = [SIMULATED, *benchmarks_by_name(argparse.Namespace())]

    assert select(None, known) == set(known)
    assert all(select(each, known) == {each} for each in known)
    assert select("sharing,loads", known) == {"sharing", "loads"}


def test_a_step_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(SystemExit, match="--only knows sharing, loads; not load"):
        select("load", ["sharing", "loads"])
