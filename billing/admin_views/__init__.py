"""The operator's pages of money. Whoever may see invoices (`billing.view_invoice`) sees them; each act has a permission
of its own.
"""
