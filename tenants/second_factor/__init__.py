"""The second factor of a sign-in: an authenticator app, passkeys, recovery codes.

The sign-in library (`allauth.mfa`) has the ceremonies, the rows and the order of the pages. What is ours: how codes are
checked and counted, how secrets lie in the database, what is audited and mailed, and who must have a factor.
"""
