"""`python -m crosscut.cli`."""

import sys

from crosscut.cli import main

if __name__ == "__main__":
    sys.exit(main())
