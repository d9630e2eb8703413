"""Entry point of `infradoc` and `python -m infradoc`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line in sys.argv; the exit code is the result."""
    from infradoc.cli.app import dispatch

    return dispatch(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
