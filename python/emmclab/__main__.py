"""`python -m emmclab`."""

import sys

from emmclab.cli import main

if __name__ == "__main__":
    sys.exit(main())
