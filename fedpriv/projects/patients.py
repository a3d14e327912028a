"""Made-up patients of five hospitals, as an example of a table. No number comes from a person."""

from __future__ import annotations

import numpy as np

HOSPITALS = ("Adlerhof", "Birch Hill", "Costa Verde", "Dune Point", "Elmwood")
N_PATIENTS = 600
COLUMNS = ("patient", "hospital", "age", "sex", "pressure", "glucose", "smoker", "stay", "died")
VISITS = (0.55, 0.3, 0.15)
"""Probabilities of one, two and three visits of a patient."""
MISSING = 0.02
"""Share of missing values of glucose."""


def visits(seed: int = 0, patients: int = N_PATIENTS) -> list[tuple[str, ...]]:
    """Visits of made-up patients, a row of texts each, in the order of `COLUMNS`.

    A patient goes to one hospital, one in ten to two. Older patients, smokers and patients with a
    high pressure die more often, and stay longer.
    """
    rng = np.random.default_rng(seed)
    rows: list[tuple[str, ...]] = []
    for number in range(patients):
        home = int(rng.choice(len(HOSPITALS), p=(0.3, 0.25, 0.2, 0.15, 0.1)))
        away = (home + 1) % len(HOSPITALS) if rng.random() < 0.1 else home
        age = int(np.clip(rng.normal(62, 14), 18, 99))
        sex = str(rng.choice(["f", "m"]))
        smoker = rng.random() < 0.3
        base = rng.normal(0, 1)
        for visit in range(1 + int(rng.choice(3, p=VISITS))):
            pressure = int(np.clip(rng.normal(130 + 8 * base, 14), 80, 220))
            glucose = float(np.clip(rng.normal(6.0 + 0.5 * base, 1.2), 3, 20))
            risk = 0.09 * (age - 66) + 1.3 * smoker + 0.05 * (pressure - 135)
            died = rng.random() < 1 / (1 + np.exp(-risk))
            stay = max(1.0, 6 + 2.0 * risk + rng.normal(0, 2))
            rows.append(
                (
                    f"P{number:04d}",
                    HOSPITALS[home if visit == 0 else away],
                    str(age),
                    sex,
                    str(pressure),
                    "" if rng.random() < MISSING else f"{glucose:.1f}",
                    "yes" if smoker else "no",
                    f"{stay:.1f}",
                    str(int(died)),
                )
            )
    return rows


def csv_text(seed: int = 0, patients: int = N_PATIENTS) -> str:
    """The same as the text of a CSV file."""
    rows = [COLUMNS, *visits(seed, patients)]
    return "".join(",".join(row) + "\n" for row in rows)
