"""From quantities to money: pure, exact, in Decimal (docs/explanation/ARCHITECTURE.md, usage to invoice)."""
