"""Benchmarks of the product: CPU-seconds of the server per GB, microseconds per request, memory, and start-up times.

Benchmarks print figures; they never pass or fail. Figures are ratios and CPU time, because wall-clock speed on a small
shared machine is not reproducible.
"""
