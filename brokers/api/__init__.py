"""The fleet over REST, for operators."""
