"""``python -m entp_lab``."""

import sys

from entp_lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
