"""Record which of our classes pass the conformance checks: `python -m scripts.checked`.

The script writes fedpriv/testing/conformance_records.json for classes that add noise inside local
training. Run it after a change to such a class or to one of its bases; until then a test fails.
"""

from __future__ import annotations

from pathlib import Path

from fedpriv.accountants.events import leaves
from fedpriv.rounds.conformance_record import SHIPPED, class_name
from fedpriv.runtime import allocate
from fedpriv.testing import check_algorithm, experiment
from fedpriv.testing.experiments import SMALL

CONF = Path(__file__).parents[1] / "conf" / "algo"


def main() -> None:
    SHIPPED.write_text("{}\n")
    for path in sorted(CONF.glob("*.yaml")):
        exp = experiment(*SMALL, f"algo={path.stem}")
        _, _, federation = allocate(exp)
        queries = exp.algo.queries(1, exp.planner.plan(federation))
        # Where nothing is certified, there is nothing to measure.
        certified = any(leaves([(e.certified, 1)]) is not None for q in queries for e in q.events)
        if certified and not all(query.enforced for query in queries):
            check_algorithm(exp.algo, record=SHIPPED)
            print(f"{class_name(type(exp.algo))} has passed")


if __name__ == "__main__":
    main()
