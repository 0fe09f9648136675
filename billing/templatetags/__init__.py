"""What the operator's pages of money say in marks."""
