"""The closed list: each name of `infradoc_rules.actions`, and what carrying it out means."""

from __future__ import annotations

from collections.abc import Mapping

from infradoc.remediation.actions.base import LiveAction, ManualAction
from infradoc.remediation.actions.engine_cache import ENGINE_CACHE
from infradoc.remediation.actions.engine_limits import ENGINE_LIMITS
from infradoc.remediation.actions.manual import MANUAL
from infradoc.remediation.actions.tokenizer import TOKENIZER

ACTIONS: Mapping[str, LiveAction | ManualAction] = {**ENGINE_LIMITS, **ENGINE_CACHE, **TOKENIZER, **MANUAL}
