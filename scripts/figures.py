"""Draw a figure of a paper: `python scripts/figures.py uldp_fl/fig4` is what `fedpriv reproduce
uldp_fl/fig4` does, with the same options."""

import sys

from fedpriv.cli import main

if __name__ == "__main__":
    main(["reproduce", *sys.argv[1:]])
