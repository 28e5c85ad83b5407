"""``python -m mimex`` is the command ``mimex``."""

import sys

from mimex.cli import main

if __name__ == "__main__":
    sys.exit(main())
