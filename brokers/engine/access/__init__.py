"""Who is speaking, what that identity may touch, and under which names (CKA-9…17, WIRE-18…20). Pure."""
