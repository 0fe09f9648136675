"""Builds all parts of a broker from the configuration and connects them; the only package that imports every other."""
