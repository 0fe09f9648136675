"""Authentication, authorization and tenant namespaces of connections (CKA-9…17, WIRE-18…20). Pure."""
