"""Reports about money for operators: revenue, overdue invoices, margins of clusters and the closing of a month.

Only reads of stored data; no page here computes drafts.
"""
