"""Which tests one worker keeps (`tests/testkit/sharing.py`): the product is not held up by what does not need it."""

from __future__ import annotations

from tests.testkit.sharing import PRODUCT, sort_key_of, unit_of


def test_only_what_uses_the_product_waits_for_it() -> None:
    assert unit_of("tests/product/browser/test_journey.py::test_a") == PRODUCT
    assert unit_of("tests/product/system/test_up.py::test_a") == PRODUCT
    assert unit_of("tests/interop/test_clients.py::test_a[gzip]") == PRODUCT
    assert unit_of("tests/product/browser/test_keys.py::test_a") == "tests/product/browser/test_keys"


def test_long_modules_that_share_nothing_are_taken_apart() -> None:
    assert (
        unit_of("tests/simulation/test_planted_bugs.py::test_a[x]")
        == "tests/simulation/test_planted_bugs.py::test_a[x]"
    )
    assert unit_of("tests/unit/quotas/test_rates.py::test_a[x]") == "tests/unit/quotas/test_rates"


def test_the_longest_tests_are_distributed_first() -> None:
    tests = [
        "tests/unit/quotas/test_rates.py::test_a",
        "tests/component/engine/test_process.py::test_a",
        "tests/product/system/test_usage.py::test_a",
        "tests/product/browser/test_keys.py::test_a",
        "tests/component/pipeline/test_faults.py::test_a",
        "tests/product/system/test_operators.py::test_a",
        "tests/product/system/test_up.py::test_a",
    ]
    assert sorted(tests, key=sort_key_of) == [tests[6], tests[5], tests[2], tests[4], tests[3], tests[1], tests[0]]
