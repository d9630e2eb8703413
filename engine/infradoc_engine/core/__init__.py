"""Block pool, prefix cache, scheduler, ledgers. Standard library only."""
