"""What operators read of money: revenue, what is overdue, margins of clusters, and how far a month is closed.

Reads alone, of what is stored: no page here works out a draft.
"""
