"""Produce: the request's stages, its delayed answer, recompression and transaction verification."""
