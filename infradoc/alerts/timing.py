"""How long the core lets things wait."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """The core's timers, all in seconds.

    pending: a finding must hold so long before it fires (rules have a `for` of their own, hence 0). resolve_after: it
    must be gone so long before it is resolved. The first notification of a group waits group_wait for company; later
    ones keep group_interval apart; what still fires is told again after repeat_interval.
    Flapping: each change of state adds 1 to a score that halves every flap_half_life; it begins at flap_start and ends
    below flap_end. flap_most bounds the score, and with it how long a finding stays "flapping" after its last change.
    """

    pending: float = 0.0
    resolve_after: float = 30.0
    group_wait: float = 10.0
    group_interval: float = 300.0
    repeat_interval: float = 4 * 3600.0
    flap_half_life: float = 600.0
    flap_start: float = 3.0
    flap_end: float = 1.0
    flap_most: float = 6.0
