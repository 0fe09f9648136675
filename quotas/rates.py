"""Rate of a byte stream over a sliding window, as Kafka measures it (QUO-9…13). Pure; the caller provides the clock.

The window is a ring of `count` + 1 samples of `width_ms` each. The sum of all samples and the oldest start are stored,
so that recording and measuring take constant time. The samples are iterated only when one is old enough to be purged
(QUO-11).
"""

from __future__ import annotations

from typing import Final, NamedTuple

SAMPLE_COUNT = 11
SAMPLE_WIDTH_MS = 1_000


class SampleSettings(NamedTuple):
    """Window over which a rate is measured: the number of its samples, and the duration of each in ms (QUO-9)."""

    sample_count: int = SAMPLE_COUNT
    width_ms: int = SAMPLE_WIDTH_MS


SAMPLE_SETTINGS: Final = SampleSettings()


class Rate:
    """Counter of a rate. Times are integer milliseconds of a monotonic clock; values are whole bytes.

    `total` is the sum over the window and `window_ms` its length, both valid after `measure`.
    """

    __slots__ = (
        "_current_index",
        "_current_start_ms",
        "_last_record_ms",
        "_oldest_start_ms",
        "_purge_at_ms",
        "_span_ms",
        "_starts_ms",
        "_sums",
        "_window_ms_min",
        "count",
        "total",
        "width_ms",
        "window_ms",
    )

    def __init__(self, settings: SampleSettings = SAMPLE_SETTINGS) -> None:
        count, width_ms = settings
        assert count >= 2, "a rate needs at least two samples"
        assert width_ms >= 1, "a sample lasts at least a millisecond"
        self.count = count
        self.width_ms = width_ms
        self.total = 0
        self.window_ms = 0
        self._span_ms = count * width_ms
        self._window_ms_min = (count - 1) * width_ms
        # Each of these lists has one entry per sample: its start, the time of its last record, and its sum in bytes.
        self._starts_ms: list[int] = []
        self._last_record_ms: list[int] = []
        self._sums: list[int] = []
        self._current_index = 0
        self._current_start_ms = 0
        self._oldest_start_ms = 0
        self._purge_at_ms = 0

    def record(self, value: int, now_ms: int) -> None:
        """Records a value in the current sample, or in a new one if the current sample is complete (QUO-10)."""
        if not self._starts_ms or now_ms - self._current_start_ms >= self.width_ms:
            self._advance(now_ms)
        index = self._current_index
        self._sums[index] += value
        self._last_record_ms[index] = now_ms
        self.total += value

    def measure(self, now_ms: int) -> None:
        """Drops samples that are too old, then sets `total` and `window_ms` (QUO-11, QUO-12)."""
        if now_ms >= self._purge_at_ms:
            self._purge(now_ms)
        elapsed_ms = now_ms - self._oldest_start_ms
        if elapsed_ms < self._window_ms_min:
            # Fewer than `count` - 1 full samples have passed; the missing samples count as idle time.
            elapsed_ms = self._window_ms_min + elapsed_ms % self.width_ms
        self.window_ms = elapsed_ms or 1

    def per_second(self, now_ms: int) -> float:
        """Returns the observed rate (QUO-13)."""
        self.measure(now_ms)
        return self.total * 1000 / self.window_ms

    def scale(self, factor: float) -> None:
        """Adjusts the recorded values after the limit was multiplied by `factor`.

        After a reduction the values are scaled down: otherwise ten seconds at a large share would cause minutes of
        delay at a small one. After an increase they do not change (QUO-7), so that the excess of a single large request
        does not grow with the limit.
        """
        if factor >= 1:
            return
        sums = self._sums
        self.total = 0
        for index, value in enumerate(sums):
            sums[index] = round(value * factor)
            self.total += sums[index]

    def _advance(self, now_ms: int) -> None:
        starts_ms = self._starts_ms
        if len(starts_ms) <= self.count:
            starts_ms.append(now_ms)
            self._last_record_ms.append(now_ms)
            self._sums.append(0)
            self._current_index = len(starts_ms) - 1
        else:
            # The sample after the newest is the oldest. It is overwritten, and its bytes are subtracted from `total`.
            self._current_index = (self._current_index + 1) % (self.count + 1)
            self.total -= self._sums[self._current_index]
            starts_ms[self._current_index] = self._last_record_ms[self._current_index] = now_ms
            self._sums[self._current_index] = 0
        self._current_start_ms = now_ms
        self._oldest_start_ms = min(starts_ms)
        self._purge_at_ms = min(self._last_record_ms) + self._span_ms

    def _purge(self, now_ms: int) -> None:
        starts_ms, last_record_ms, sums = self._starts_ms, self._last_record_ms, self._sums
        if not starts_ms:
            self._advance(now_ms)
            return
        for index, last_ms in enumerate(last_record_ms):
            if now_ms - last_ms >= self._span_ms:
                self.total -= sums[index]
                starts_ms[index] = last_record_ms[index] = now_ms
                sums[index] = 0
        self._current_start_ms = starts_ms[self._current_index]
        self._oldest_start_ms = min(starts_ms)
        self._purge_at_ms = min(last_record_ms) + self._span_ms
