"""OAuth configuration of an instance (OAUTHBEARER): key sets, limits, checks and reads."""
