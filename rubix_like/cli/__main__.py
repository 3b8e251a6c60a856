"""`python -m rubix_like.cli` is `rubix-like`."""

import sys

from rubix_like.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
