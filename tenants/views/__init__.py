"""The console's own pages: the shell, signing up and in, members, tokens, audit log, settings."""
