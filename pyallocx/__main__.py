"""The command line as a module: ``python -m pyallocx``."""

import sys

from pyallocx.cli import main

if __name__ == "__main__":
    sys.exit(main())
