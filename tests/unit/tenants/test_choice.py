"""Error texts of refused choices, with a bounded list of the valid ones."""

from __future__ import annotations

import pytest
from rest_framework.exceptions import ValidationError

from tenants.api.strict import CHOICES_NAMED_MAX, Choice


@pytest.mark.parametrize("given", ["z", 1, {"x": 1}, ["a"]])
def test_a_refusal_lists_the_choices(given: object) -> None:
    with pytest.raises(ValidationError, match=r"Choices: a, b\."):
        Choice(choices=["a", "b"]).run_validation(given)


def test_a_long_list_is_cut() -> None:
    words = [f"word-{number}" for number in range(CHOICES_NAMED_MAX + 1)]
    with pytest.raises(ValidationError) as refusal:
        Choice(choices=words).run_validation("z")
    assert str(refusal.value.detail[0]).endswith(f"word-{CHOICES_NAMED_MAX - 1}, ….")  # type: ignore[index]
