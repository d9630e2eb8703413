"""How long requests really are, and the max_model_len that follows: measured, never guessed."""
