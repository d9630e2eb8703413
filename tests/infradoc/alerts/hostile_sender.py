"""A watch with nothing but alerts, as a process to be killed: `hostile_sender.py CONFIG PROGRESS TARGETS ROUNDS`.

Every target fires and recovers ROUNDS times, 2000 s apart on a clock of its own. How far it got is in the file
PROGRESS: started again it goes on from there. It ends when everything has been delivered.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from infradoc.alerts.alerting import Alerting
from infradoc.alerts.backoff import Pace
from infradoc.alerts.config import alerts_config
from infradoc.alerts.database import Database, state_folder
from infradoc.alerts.deliver import Deliverer
from infradoc.alerts.desk import rows
from infradoc.alerts.timing import Timing
from infradoc.config import load_config

FINDING = {
    "id": "kv-thrashing-preemption", "severity": "critical", "confidence": 0.9, "role": "root", "title": "T",
    "cause": "C", "impact": "I", "evidence": [], "actions": [], "falsifier": "F", "explains": [], "playbook": "p",
}  # fmt: skip
PACE = Pace(base=0.02, cap=0.2, trips=5, breaker_base=0.02, breaker_cap=0.1, idle=0.1)


def main() -> None:
    """Observe, step by step, while the deliverer works."""
    path, progress, targets, rounds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    config = alerts_config(load_config(path))
    config = replace(config, timing=Timing(group_wait=0, group_interval=1, resolve_after=1))
    begin, done = (float(word) for word in progress.read_text().split()) if progress.exists() else (0.0, 0.0)
    begin = begin or time.time() - 80_000
    now = [begin + done * 2000]
    alerting = Alerting(
        config,
        clock=lambda: now[0],
        deliverer=lambda folder, sinks, **other: Deliverer(folder, sinks, pace=PACE),
    )
    alerting.start()
    for step in range(int(done), 2 * rounds):
        for later in (0, 10):
            now[0] = begin + step * 2000 + later
            for target in range(targets):
                alerting.observe(now[0], f"t{target}", "vllm", [FINDING] if step % 2 == 0 else [])
            alerting.step(now[0])
        written = progress.with_suffix(".new")
        written.write_text(f"{begin} {step + 1}")
        written.replace(progress)
        time.sleep(0.3)
    database = Database(state_folder(config.state))
    while rows(database, "waiting", 1):
        time.sleep(0.1)
    alerting.stop(5)


if __name__ == "__main__":
    main()
