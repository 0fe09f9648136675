"""Sizes and usage of an instance as input of bills."""
