"""For authors of components: conformance checks, and networks with faults.

    from fedpriv.testing import check_algorithm
    check_algorithm(MyMethod(clip=1.0, noise_multiplier=5.0))

Everything runs as a command would: a composed configuration, the checks across groups, a prepared
run.
"""

from fedpriv.testing.algorithms import ConformanceReport, check_algorithm
from fedpriv.testing.conformance import ConformanceError
from fedpriv.testing.experiments import experiment

__all__ = ["ConformanceError", "ConformanceReport", "check_algorithm", "experiment"]
