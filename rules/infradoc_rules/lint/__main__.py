"""`python -m infradoc_rules.lint [FOLDER]`: 0 when all rules are sound, 1 when not, 2 on wrong usage."""

from __future__ import annotations

import sys
from pathlib import Path

from infradoc_rules.catalog import default_dir, rule_files
from infradoc_rules.lint import lint


def main(argv: list[str]) -> int:
    """Lint the folder named in `argv`, or the packaged catalog."""
    if len(argv) > 1 or (argv and argv[0].startswith("-")):
        print("usage: python -m infradoc_rules.lint [FOLDER]", file=sys.stderr)
        return 2
    folder = Path(argv[0]) if argv else default_dir()
    problems = lint(folder)
    for problem in problems:
        print(problem, file=sys.stderr)
    count = len(rule_files(folder))
    print(f"{count} rules, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
