"""Client and bandwidth quotas: management and explanation, and pure arithmetic of precedence, rates and allocation."""
