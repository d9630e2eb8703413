"""Entry point of `infradoc` and `python -m infradoc`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line in sys.argv; the exit code is the result."""
    from infradoc.cli.app import dispatch
    from infradoc.cli.leave import leave_behind_threads

    code = dispatch(sys.argv[1:])
    leave_behind_threads(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
