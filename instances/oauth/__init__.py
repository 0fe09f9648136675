"""Whose tokens clients of an instance may bring (OAUTHBEARER): key sets, the configuration, reads."""
