"""Limits: as sold, as set, as explained; and the pure arithmetic of precedence, rates, throttle and allocation."""
