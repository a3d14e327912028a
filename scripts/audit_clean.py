"""Audit code that is right, many times, and count the alarms.

`python -m scripts.audit_clean FILE [audits] [seconds]` appends one line per audit to FILE, and goes
on where FILE ends. Every audit has another setting or seed. A bound is wrong with a probability of
at most 1 - `CONFIDENCE`, and its premises with at most `LEVEL`. The exit code is 1 if,
at a level of 0.1 %, there are too many alarms for that.
"""

import csv
import math
import sys
from dataclasses import replace
from pathlib import Path

from scipy.stats import binom

from fedpriv.audit.audit import CONFIDENCE, QUICK, audit
from fedpriv.audit.trials import Effort
from fedpriv.testing import experiment
from fedpriv.testing.premise import LEVEL

GIVEN = "algo.calibration=given algo.noise_multiplier=1"
SETTINGS = (
    "algo=uldp_sgd algo.noise_multiplier=1 rounds=3",
    "algo=uldp_sgd algo.noise_multiplier=1 algo.user_rate=0.2 rounds=3",
    "algo=uldp_avg algo.noise_multiplier=1 algo.local_epochs=2 algo.batch_size=8 rounds=2",
    "algo=uldp_avg algo.noise_multiplier=2 algo.local_epochs=1 aggregation=masked rounds=2",
    "algo=uldp_sgd algo.noise_multiplier=1 mechanism=discrete_gaussian rounds=2",
    "algo=uldp_sgd algo.noise_multiplier=1 randomness=system rounds=2",
    "algo=uldp_group_2 algo.noise_multiplier=1 algo.local_epochs=1 rounds=2",
    f"algo=prox_sgd {GIVEN} rounds=3",
    "algo=cdp_fedavg algo.local_steps=4 allocator.n_users=10 rounds=2",
    "algo=dp_erm aggregation=masked algo.local_steps=2 allocator.n_users=10 rounds=2",
)
"""Audited commands."""
COLUMNS = ["setting", "seed", "bounds", "refuted", "premises", "broken", "what"]


def audited(number: int, effort: Effort) -> list[object]:
    """The line of the audit of this number."""
    words = SETTINGS[number % len(SETTINGS)]
    seed = number // len(SETTINGS)
    exp = experiment(*words.split(), f"seed={seed}")
    rows = [row for row in audit(exp, effort, colluding=1) if math.isfinite(row.certified)]
    measured = {premise for row in rows for premise in row.premises}
    broken = [str(premise) for premise in measured if premise.alarm]
    refuted = [f"{row.observer}, {row.unit}" for row in rows if row.refuted]
    counts = [len(rows), len(refuted), len(measured), len(broken)]
    return [words, seed, *counts, "; ".join(refuted + broken)]


def main() -> None:
    """Run the missing audits, and test the number of alarms."""
    path = Path(sys.argv[1])
    audits, seconds = (int(word) for word in (*sys.argv[2:], "200", "20")[:2])
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    for number in range(len(path.read_text().splitlines()) - 1, audits):
        line = audited(number, replace(QUICK, seconds=seconds))
        with path.open("a", newline="") as file:
            csv.writer(file).writerow(line)
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    # Observers of one run see nearly the same noise: their bounds are wrong together.
    refuted = sum(int(line["refuted"]) > 0 for line in lines)
    broken = sum(int(line["broken"]) > 0 for line in lines)
    rates = 3 * (1 - CONFIDENCE), LEVEL
    chances = [
        binom.sf(alarms - 1, len(lines), rate) for alarms, rate in zip((refuted, broken), rates)
    ]
    print(
        f"{len(lines)} audits: {refuted} with a refuted bound (p = {chances[0]:.3g}), "
        f"{broken} with a refuted premise (p = {chances[1]:.3g})"
    )
    sys.exit(int(min(chances) < 1e-3))


if __name__ == "__main__":
    main()
