"""Read access to the usage of instances by minute, hour and day.

Rows of hours and days are read where they give the same result as rows of minutes, because rows of minutes are many and
are dropped when they are old (`billing.retention`). The parts of a span outside whole hours or days are read from
rows of minutes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from django.db import connection
from django.db.models import QuerySet, Sum
from django.utils import timezone
from django.utils.translation import gettext_noop

from billing.models import Direction, UsageDay, UsageHour, UsageMinute
from billing.retention.partitions import retained_since
from tenants.errors import FieldError, Invalid, Message

Step = Literal["minute", "hour", "day"]
GroupBy = Literal["topic", "user", "client_id"]
STEPS: dict[Step, timedelta] = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}
# Maximum number of steps of one request, so that no request scans a year of minutes.
STEPS_PER_REQUEST_MAX = 3_000
# Maximum number of rows of one read: tenants choose names of topics, users and client ids.
ROWS_PER_READ_MAX = 100_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class MinutesNotKept(Invalid):
    """The query parameter `parameter` requests minutes before `since`, which were dropped."""

    def __init__(self, since: datetime, parameter: str) -> None:
        message = Message(
            gettext_noop(
                "Usage before %(since)s is kept by hour, and by day for each topic, user and client id. Ask for whole "
                "hours or days in UTC."
            ),
            since=f"{since:%Y-%m-%d}",
        )
        super().__init__(message, errors=[FieldError(parameter=parameter, detail=message, code="minutes_not_kept")])


class TooManyRows(Invalid):
    """More names and steps were requested than one read allows."""

    def __init__(self) -> None:
        message = Message(
            gettext_noop("This is more than %(n)s rows. Ask for a shorter span, larger steps, or without names."),
            n=f"{ROWS_PER_READ_MAX:,}",
        )
        super().__init__(message, errors=[FieldError(parameter="start", detail=message, code="too_many_rows")])


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals:
    """Bytes and requests by direction in `[start, end)`."""

    start: datetime
    end: datetime
    produce_bytes: int
    consume_bytes: int
    produce_requests: int
    consume_requests: int


@dataclass(frozen=True, slots=True)
class _ReadSpan:
    """Span of time and the kind of rows it is read from: `minute`, `hour` or `day`."""

    start: datetime
    end: datetime
    by: Step


def usage_rows(
    instance_id: str,
    *,
    start: datetime,
    end: datetime,
    step: Step,
    group_by: Sequence[GroupBy] = (),
    topic: str | None = None,
) -> list[dict[str, Any]]:
    """Returns the usage of `[start, end)` by step and group, oldest first: `{start, direction, bytes, requests,
    <group>…}`; with `topic` that of one topic.

    Raises:
        MinutesNotKept: the answer needs minutes that were dropped.
        TooManyRows: the answer has more rows than one read allows.
    """
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
    has_names = bool(group_by) or topic is not None
    for part in _split_span(start, end, _coarsest_unit(step, has_names=has_names)):
        rows = _read_sums([instance_id], part, ("at", "direction", *group_by), topic)
        for at, direction, *names, count, requests in rows:
            total = sums[_floor_to_step(at, STEPS[step]), direction, *names]
            total[0] += count
            total[1] += requests
    return [
        {**dict(zip(("start", "direction", *group_by), key, strict=True)), "bytes": total[0], "requests": total[1]}
        for key, total in sorted(sums.items())
    ]


def usage_totals(instance_id: str, *, start: datetime, end: datetime) -> UsageTotals:
    """Returns the totals of one instance. Raises `MinutesNotKept` and `TooManyRows`."""
    return usage_totals_of([instance_id], start=start, end=end)[instance_id]


def usage_totals_of(instance_ids: Iterable[str], *, start: datetime, end: datetime) -> dict[str, UsageTotals]:
    """Returns the totals of each instance, including those without usage. Raises `MinutesNotKept` and `TooManyRows`."""
    ids = list(instance_ids)
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for part in _split_span(start, end, "hour"):
        for instance_id, direction, count, requests in _read_sums(ids, part, ("instance_id", "direction")):
            total = sums[instance_id, direction]
            total[0] += count
            total[1] += requests
    totals = {}
    for instance_id in ids:
        produced = sums[instance_id, Direction.PRODUCE]
        consumed = sums[instance_id, Direction.CONSUME]
        totals[instance_id] = UsageTotals(
            start=start,
            end=end,
            produce_bytes=produced[0],
            consume_bytes=consumed[0],
            produce_requests=produced[1],
            consume_requests=consumed[1],
        )
    return totals


def names_of(
    instance_ids: Collection[str], *, start: datetime, end: datetime, by: GroupBy, limit: int | None = None
) -> Iterator[tuple[str, str, int, int]]:
    """Yields (instance id, name, bytes produced, bytes consumed) of each topic, user or client id, most bytes first.

    There are at most `limit` rows; without a limit the number of rows is unbounded.

    Raises:
        MinutesNotKept: the answer needs minutes that were dropped.
    """
    parts = list(_split_span(start, end, "day"))
    selects = " UNION ALL ".join(
        f'SELECT instance_id, "{by}" AS name, direction, bytes FROM {_rows_of(part).model._meta.db_table}'  # noqa: S608
        f" WHERE instance_id = ANY(%s) AND {part.by} >= %s AND {part.by} < %s"
        for part in parts
    )
    values: list[Any] = []
    for part in parts:
        bounds = (part.start.date(), part.end.date()) if part.by == "day" else (part.start, part.end)
        values += [list(instance_ids), *bounds]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT instance_id, name, coalesce(sum(bytes) FILTER (WHERE direction = 'produce'), 0),"  # noqa: S608
            " coalesce(sum(bytes) FILTER (WHERE direction = 'consume'), 0)"
            f" FROM ({selects}) AS moved GROUP BY instance_id, name"
            " ORDER BY sum(bytes) DESC, instance_id, name LIMIT %s",
            [*values, limit],
        )
        while rows := cursor.fetchmany(2_000):
            for instance_id, name, produced, consumed in rows:
                yield instance_id, name, int(produced), int(consumed)


def minutes_of_hour(instance_id: str, hour: datetime) -> QuerySet[UsageMinute]:
    """Returns the minute rows of the hour that begins at `hour`, which may be very many. Raises `MinutesNotKept`."""
    part = _require_retained(_ReadSpan(hour, hour + STEPS["hour"], "minute"), "hour")
    return UsageMinute.objects.filter(instance_id=instance_id, minute__gte=part.start, minute__lt=part.end)


def _coarsest_unit(step: Step, *, has_names: bool) -> Step:
    """Returns the coarsest kind of rows that suffices for a step; rows of hours have no names."""
    if not has_names:
        return "minute" if step == "minute" else "hour"
    return "day" if step == "day" else "minute"


def _split_span(start: datetime, end: datetime, unit: Step) -> Iterator[_ReadSpan]:
    """Splits `[start, end)` into whole `unit`s, and minutes before and after them."""
    if unit == "minute":
        yield _require_retained(_ReadSpan(start, end, "minute"))
        return
    length = STEPS[unit]
    first, last = -_floor_duration(-(start - _EPOCH), length), _floor_duration(end - _EPOCH, length)
    if first >= last:
        yield _require_retained(_ReadSpan(start, end, "minute"))
        return
    if start < _EPOCH + first:
        yield _require_retained(_ReadSpan(start, _EPOCH + first, "minute"))
    yield _ReadSpan(_EPOCH + first, _EPOCH + last, unit)
    if _EPOCH + last < end:
        yield _require_retained(_ReadSpan(_EPOCH + last, end, "minute"))


def _require_retained(part: _ReadSpan, parameter: str = "start") -> _ReadSpan:
    since = retained_since(timezone.now())
    if part.start < since:
        raise MinutesNotKept(since, parameter)
    return part


def _floor_to_step(instant: datetime, length: timedelta) -> datetime:
    return _EPOCH + _floor_duration(instant - _EPOCH, length)


def _floor_duration(span: timedelta, length: timedelta) -> timedelta:
    return span // length * length


def _read_sums(
    instance_ids: Collection[str], part: _ReadSpan, names: Sequence[str], topic: str | None = None
) -> Iterator[tuple[Any, ...]]:
    """Yields rows of the named columns with bytes and requests; `at` is the start of the row's minute, hour or day."""
    rows = _rows_of(part).filter(instance_id__in=list(instance_ids))
    if topic is not None:
        rows = rows.filter(topic=topic)
    columns = [part.by if name == "at" else name for name in names]
    sums = (
        rows.values(*columns)
        .annotate(total_bytes=Sum("bytes"), total_requests=Sum("requests"))
        .order_by()
        .values_list(*columns, "total_bytes", "total_requests")
    )
    is_day = part.by == "day" and "at" in names
    index = names.index("at") if is_day else 0
    for number, row in enumerate(sums[: ROWS_PER_READ_MAX + 1].iterator(chunk_size=2_000)):
        if number == ROWS_PER_READ_MAX:
            raise TooManyRows
        yield (*row[:index], _midnight(row[index]), *row[index + 1 :]) if is_day else row


def _rows_of(part: _ReadSpan) -> QuerySet[Any]:
    if part.by == "minute":
        return UsageMinute.objects.filter(minute__gte=part.start, minute__lt=part.end)
    if part.by == "hour":
        hours = UsageHour.objects.filter(direction__in=Direction.values)
        return hours.filter(hour__gte=part.start, hour__lt=part.end)
    return UsageDay.objects.filter(day__gte=part.start.date(), day__lt=part.end.date())


def _midnight(day: Any) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
