"""Topics: metadata, creation, deletion, growth."""
