"""Draw a figure of a paper: `python scripts/figures.py uldp_fl/fig4`.

It does what `fedpriv reproduce` does, and for the figures that it does not draw, `fedpriv
replicate`; with the same options.
"""

import sys

from fedpriv.cli import main
from fedpriv.papers.reproduce import FIGURES

if __name__ == "__main__":
    names = [word for word in sys.argv[1:] if "/" in word]
    command = "replicate" if names and not {*names} & {*FIGURES} else "reproduce"
    main([command, *sys.argv[1:]])
