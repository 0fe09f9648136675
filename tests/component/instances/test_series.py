"""Points of the live chart: a broker without data does not remove the others' data."""

from __future__ import annotations

from instances.interfaces import BrokerUnresponsive, Traffic
from instances.views.series import series

NOW_MS = 100_500


def traffic(*points: tuple[int, int, int, int], alive: dict[int, int], silent: tuple[int, ...] = ()) -> Traffic:
    return Traffic(
        now_ms=NOW_MS,
        step_ms=1_000,
        alive_since_ms=max(alive.values(), default=NOW_MS),
        known_by_broker={id: ((since, NOW_MS),) for id, since in alive.items()} | dict.fromkeys(silent, ()),
        points=points,
        by_broker=dict.fromkeys(alive, (0, 0)),
        silent=tuple(BrokerUnresponsive(broker_id=item, reason="does not answer") for item in silent),
    )


def test_before_the_restart_of_one_broker_the_others_stay_drawn_and_its_part_is_named() -> None:
    result = series(traffic((90_000, 7, 8, 0), alive={1: 0, 2: 95_000}), since_ms=89_000, first_running_ms=0)
    assert result.gaps == []
    assert result.points[:3] == [(89_000, 0, 0, 0), (90_000, 7, 8, 0), (91_000, 0, 0, 0)]
    assert result.partial == [(89_000, 95_000, (2,))]


def test_while_one_broker_is_silent_the_others_stay_drawn() -> None:
    result = series(traffic((97_000, 7, 8, 0), alive={1: 0}, silent=(2,)), since_ms=96_000, first_running_ms=0)
    assert [point[0] for point in result.points] == [96_000, 97_000, 98_000, 99_000]
    assert (result.gaps, result.partial) == ([], [(96_000, 100_000, (2,))])


def test_a_second_unknown_to_every_broker_is_a_gap_and_no_zero() -> None:
    result = series(traffic(alive={1: 98_000, 2: 99_000}), since_ms=96_000, first_running_ms=0)
    assert result.gaps == [(96_000, 98_000)]
    assert result.points == [(98_000, 0, 0, 0), (99_000, 0, 0, 0)]
    assert result.partial == [(98_000, 99_000, (2,))]


def test_where_every_broker_tells_nothing_is_in_part() -> None:
    result = series(traffic((98_000, 1, 2, 3), alive={1: 0, 2: 0}), since_ms=97_000, first_running_ms=0)
    assert (result.gaps, result.partial) == ([], [])
    assert result.points == [(97_000, 0, 0, 0), (98_000, 1, 2, 3), (99_000, 0, 0, 0)]
