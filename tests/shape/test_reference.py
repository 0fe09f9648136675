"""The generated pages of docs/reference/ are those of the code, and name what the code has."""

from __future__ import annotations

import re

import pytest

from tests.reference.environment import VARIABLES
from tests.reference.pages import FOLDER, PAGES
from tests.reference.sources import log_events, metrics, trees


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run: python -m tests.reference"


def test_every_variable_of_ours_that_is_read_is_described() -> None:
    names = {
        name for file, _ in trees() for name in re.findall(r'"(PENSTOCK_[A-Z_]+)"', file.read_text(encoding="utf-8"))
    }
    names -= {"PENSTOCK_RUN"}  # marks the processes of one run for the next one
    assert not names - set(VARIABLES)


def test_every_name_of_a_metric_in_the_sources_is_found() -> None:
    pattern = re.compile(r'"(penstock_(?:broker|instance|topic|group|metrics)_[a-z_]+)"')
    named = {name for file, _ in trees() for name in pattern.findall(file.read_text(encoding="utf-8"))}
    result = {metric.name for metric in metrics()}
    assert not named - result
    assert {"penstock_broker_transactions_timed_out", "penstock_cluster_offline_partitions"} <= result


def test_events_are_found_with_their_fields() -> None:
    loaded = next(event for event in log_events() if event.name == "coordinator_loaded")
    assert loaded.level == "info"
    assert {"topic", "partition", "records"} <= set(loaded.fields)
