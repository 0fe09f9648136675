"""Invoices: the amount due so far, the issued documents and the recomputation of both."""
