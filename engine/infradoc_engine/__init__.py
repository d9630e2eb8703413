"""The bundled paged-KV engine."""
