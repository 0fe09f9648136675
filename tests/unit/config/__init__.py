"""What decides in `config`, alone."""
