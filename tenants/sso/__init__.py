"""Sign-in by OpenID Connect: authorization-code flow with PKCE against the identity provider of a tenant."""
