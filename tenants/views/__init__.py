"""Console pages of this app: frame, sign-up and sign-in, members, tokens, audit log, settings."""
