"""Rating: from quantities to money, pure and exact in Decimal (docs/explanation/ARCHITECTURE.md, usage to invoice)."""
