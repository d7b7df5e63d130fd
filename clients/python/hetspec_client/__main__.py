"""python -m hetspec_client: the `hetspec` command."""

import sys

from hetspec_client.cli import main

sys.exit(main())
