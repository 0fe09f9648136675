"""Fair division of a broker's event loop and memory among tenants, pure and without a socket (CKA-4)."""
