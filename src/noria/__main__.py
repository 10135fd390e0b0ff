"""`python -m noria` is `noria`."""

import sys

from noria.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
