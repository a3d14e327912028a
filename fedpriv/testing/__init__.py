"""For authors of components: checks that any of them must pass, and networks with faults.

    from fedpriv.testing import check_algorithm
    check_algorithm(MyMethod(clip=1.0, noise_multiplier=5.0))

Everything goes the way of a command: a composed configuration, the checks across groups, a prepared
run.
"""

from fedpriv.testing.algorithms import Checked, ConformanceError, check_algorithm
from fedpriv.testing.worlds import experiment

__all__ = ["Checked", "ConformanceError", "check_algorithm", "experiment"]
