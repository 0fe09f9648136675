"""The engine's half of quotas and metering: charge, say how long to wait, remember why, count what was used. Pure.

accounting = accountings.of("ins-7k2m9qxa")              everything counted for one instance on this broker
delay_ms, limiter = charge(limiters, amount_bytes, monotonic_ms)
accounting.ledger.record(limiter.rule, user, client_id, delay_ms, now_ms)
accounting.usage.counter(topic, user, client_id, "produce").add(bytes)
"""
