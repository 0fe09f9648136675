"""The Kafka-protocol broker: one asyncio process on one core. It never imports Django
(docs/explanation/ARCHITECTURE.md, the house).
"""
