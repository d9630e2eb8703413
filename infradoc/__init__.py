"""The doctor for LLM serving: the agent. Imports neither torch nor the engine."""

__version__ = "0.1.0"
