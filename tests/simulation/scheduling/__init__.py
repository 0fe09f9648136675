"""The event loop of a broker at random: tenants whose connections flood, pause, leave and move."""
