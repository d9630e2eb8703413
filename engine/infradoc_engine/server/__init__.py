"""OpenAI-compatible HTTP server, control thread, admin API."""
