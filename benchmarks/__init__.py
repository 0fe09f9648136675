"""What the product costs: CPU-seconds of the server per GB, microseconds per request, memory, and times to ready.

Benchmarks print; they never pass or fail. Figures are ratios and CPU time, because a small shared machine says little
about wall-clock speed.
"""
