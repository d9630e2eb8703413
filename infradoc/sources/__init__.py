"""Where samples come from: one source a file."""
