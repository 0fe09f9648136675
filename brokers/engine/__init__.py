"""The Kafka-protocol broker: one asyncio process, one core. It never imports Django (docs/ARCHITECTURE.md, the
house).
"""
