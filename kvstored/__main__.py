"""``python -m kvstored`` is the ``kvstored`` command."""

import sys

from kvstored.cli.main import main

sys.exit(main())
