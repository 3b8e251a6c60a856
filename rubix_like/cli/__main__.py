"""`python -m rubix_like.cli` is `rubix-like`."""

import sys

from rubix_like.cli.main import main

sys.exit(main())
