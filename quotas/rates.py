"""Rate of a byte stream over a sliding window, as Kafka measures it (QUO-9…13). Pure; the caller provides the clock.

A ring of `count` + 1 samples of `width_ms` each. Sum and oldest start are kept up to date, so that recording and
measuring take constant time; the samples are only iterated when one is old enough to be purged (QUO-11).
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
        "_current",
        "_current_start",
        "_lasts",
        "_minimum_ms",
        "_oldest",
        "_purge_at",
        "_span_ms",
        "_starts",
        "_sums",
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
        self._minimum_ms = (count - 1) * width_ms
        # For each sample of the ring: when it began, when a value was last recorded in it, and the sum of its values.
        self._starts: list[int] = []
        self._lasts: list[int] = []
        self._sums: list[int] = []
        self._current = 0
        self._current_start = 0
        self._oldest = 0
        self._purge_at = 0

    def record(self, value: int, now_ms: int) -> None:
        """Records a value in the current sample, or in the next one if that is complete (QUO-10)."""
        if not self._starts or now_ms - self._current_start >= self.width_ms:
            self._advance(now_ms)
        current = self._current
        self._sums[current] += value
        self._lasts[current] = now_ms
        self.total += value

    def measure(self, now_ms: int) -> None:
        """Drops samples that are too old, then sets `total` and `window_ms` (QUO-11, QUO-12)."""
        if now_ms >= self._purge_at:
            self._purge(now_ms)
        elapsed_ms = now_ms - self._oldest
        if elapsed_ms < self._minimum_ms:
            # Fewer than `count` - 1 full samples have passed: the missing ones count as idle time.
            elapsed_ms = self._minimum_ms + elapsed_ms % self.width_ms
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
        starts = self._starts
        if len(starts) <= self.count:
            starts.append(now_ms)
            self._lasts.append(now_ms)
            self._sums.append(0)
            self._current = len(starts) - 1
        else:
            # The newest is followed by the oldest, which is overwritten and whose bytes are removed.
            self._current = (self._current + 1) % (self.count + 1)
            self.total -= self._sums[self._current]
            starts[self._current] = self._lasts[self._current] = now_ms
            self._sums[self._current] = 0
        self._current_start = now_ms
        self._oldest = min(starts)
        self._purge_at = min(self._lasts) + self._span_ms

    def _purge(self, now_ms: int) -> None:
        starts, lasts, sums = self._starts, self._lasts, self._sums
        if not starts:
            self._advance(now_ms)
            return
        for index, last in enumerate(lasts):
            if now_ms - last >= self._span_ms:
                self.total -= sums[index]
                starts[index] = lasts[index] = now_ms
                sums[index] = 0
        self._current_start = starts[self._current]
        self._oldest = min(starts)
        self._purge_at = min(lasts) + self._span_ms
