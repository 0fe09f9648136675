"""Quotas and metering of a broker: charges limits, computes delays, records their causes and counts usage. Pure.

accounting = accountings.get_or_create("ins-7k2m9qxa")              all counters of one instance on this broker
delay_ms, limiter = charge(limiters, amount_bytes, monotonic_ms)
accounting.ledger.record(limiter.rule, limiter.limit_per_s, user, client_id, delay_ms, now_ms)
accounting.usage.counter(topic, user, client_id, "produce").add(bytes)
"""
