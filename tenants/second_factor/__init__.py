"""Second factor of a sign-in: authenticator apps, passkeys, recovery codes.

The sign-in library (`allauth.mfa`) provides the protocols, the rows and the sequence of pages. This package implements
validation and counting of codes, encryption of secrets, audit and mails, and the requirement of a factor.
"""
