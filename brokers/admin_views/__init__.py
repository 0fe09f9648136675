"""Pages of the operator panel that are not Django's model pages."""
