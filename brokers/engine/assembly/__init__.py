"""The only place that knows every room: builds them from the configuration and plugs them together."""
