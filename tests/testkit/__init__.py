"""Fixtures and helpers of tests: embedded services and the whole product, each started once a session on first use."""
