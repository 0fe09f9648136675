"""What is measured of an instance."""
