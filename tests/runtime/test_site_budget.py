"""A site's budget is of its records in a study, whatever the settings of its runs are."""

import math
import os
import random
import shutil
import statistics
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, get_epsilon_gaussian
from dp_accounting.pld import PLDAccountant
from runs import experiment, journaled

from fedpriv.accountants.filters import Budget
from fedpriv.errors import RefusedError
from fedpriv.ledgers.counted_lines import CountedFile
from fedpriv.rounds.query import QueryTask, SetUpTask, next_session
from fedpriv.runtime import prepare

AVG = ("algo=uldp_avg", "rounds=6", "randomness=system")
DELTA = 1e-5
HALF = DELTA / 2
"""What a filter has for releases without sampling."""


@pytest.fixture(scope="module")
def description():
    """The description of silo0 in a run with these words; its records are the same in all."""
    found = {}

    def of(*words):
        if words not in found:
            with prepare(experiment(*words)) as prepared:
                found[words] = prepared.session.specs["silo0"]
        return found[words]

    return of


@pytest.fixture
def file(tmp_path):
    return CountedFile(str(tmp_path / "study" / "silo0.txt"), str(tmp_path / "counters"))


@contextmanager
def opened(spec, file, **changes):
    """The silo after a set-up, with its journal."""
    silo = replace(spec, journal=file, **changes).open({})
    try:
        task = SetUpTask(next_session(silo.journal.session), spec.settings.silos)
        next(silo.take_part(task), None)  # up to its first message, if there is one
        yield silo
    finally:
        silo.close()


def answers(spec, file, rounds=range(1, 7), **changes):
    """How many of these rounds the silo answers in one life, and why it refuses the next."""
    with opened(spec, file, **changes) as silo:
        for done, number in enumerate(rounds):
            try:
                silo.asked(QueryTask(number, 0))
            except RefusedError as refusal:
                return done, str(refusal)
    return len(rounds), None


OTHER_RUNS = (
    ("seed=1",),
    ("aggregation=secagg",),
    ("algo=uldp_sgd",),
    ("accountant=rdp",),
    ("accountant.delta=1e-6",),
    ("accountant.budget=2.9",),
    ("accountant.budget=null",),
    ("rounds=60",),
    ("preset.local_epochs=2", "algo.local_lr=0.5"),
    ("randomness=simulation",),
)


@pytest.mark.parametrize("words", OTHER_RUNS, ids=str)
def test_no_setting_brings_a_new_budget(words, description, file):
    """Epsilon is 2.99 after 12 releases with noise multiplier 5, and 3.13 after 13."""
    assert get_epsilon_gaussian(5 / 12**0.5, HALF) < 3 < get_epsilon_gaussian(5 / 13**0.5, HALF)
    spec = description(*AVG, "accountant.budget=3")
    for _ in range(2):
        assert answers(spec, file) == (6, None)
    other = description(*AVG, "accountant.budget=3", *words)
    done, why = answers(other, file)
    assert done == 0
    assert why == (
        "silo0 refuses round 1: with its earlier answers it would exceed its budget of epsilon 3 "
        "at delta 1e-05"
    )


def test_runs_in_one_folder_share_the_budgets_of_its_silos(tmp_path):
    sums = []
    for words in ((), (), ("seed=1",)):
        exp = journaled(experiment(*AVG, "accountant.budget=3", *words), tmp_path / "study")
        with prepare(exp) as prepared:
            results = [
                prepared.run_round(prepared.queries(number), prepared.state)
                for number in range(1, 7)
            ]
        sums.append(sum(result.aborted is None for result in results))
    assert sums == [6, 6, 0]
    written = {path.name: path.read_text() for path in (tmp_path / "study").iterdir()}
    assert set(written) == {"silo0.txt", "silo1.txt", "silo2.txt"}
    assert {text.count("query") for text in written.values()} == {12}


@pytest.mark.parametrize(("same", "total"), [(True, 2), (False, 1)])
def test_batches_of_other_records_are_not_apart(same, total, description, file):
    """Each record is in one batch of this run, so that two rounds cost no more than one. In
    another order the second batch may be the first."""
    spec = description("algo=prox_sgd", "rounds=2", "randomness=system")
    once = Budget(1.0, DELTA).spent({spec.settings.charge((1, 0), spec.settings.silos): 1})
    own = Budget(1.2 * once, DELTA)
    data = replace(spec.data, x=spec.data.x.flip(0), y=spec.data.y.flip(0))
    done = answers(spec, file, (1,), budget=own)[0]
    done += answers(spec if same else replace(spec, data=data), file, (2,), budget=own)[0]
    assert done == total


def test_the_first_budget_is_the_sites_and_no_run_raises_it(description, file):
    assert answers(description(*AVG), file, (1, 2)) == (2, None)
    assert answers(description(*AVG, "accountant.budget=3"), file, (3,)) == (1, None)
    with pytest.raises(
        RefusedError,
        match=r"^silo0 has a budget of epsilon 3 at delta 1e-05, and the run asks for epsilon 5$",
    ):
        answers(description(*AVG, "accountant.budget=5"), file)
    for words in ((), ("accountant.budget=0.5",)):
        assert answers(description(*AVG, *words), file, (4,)) == (1, None)
    total = 5
    done, _ = answers(description(*AVG, "rounds=60"), file, range(1, 61))
    assert total + done == 12


def test_the_site_sets_its_budget_itself(description, file):
    spec = description(*AVG, "accountant.budget=1", "rounds=60")
    own = Budget(3, DELTA)
    assert answers(spec, file, range(1, 61), budget=own)[0] == 12
    for epsilon, more in ((1, 0), (3.2, 1)):
        own = Budget(epsilon, DELTA)
        assert answers(spec, file, range(1, 61), budget=own)[0] == more
        assert answers(spec, file, range(1, 61))[0] == 0


def test_a_query_is_on_the_disk_before_its_first_message(description, file, tmp_path, monkeypatch):
    """In the journal, and in its counter."""
    disk, sync = {}, os.fdatasync

    def noted(handle):
        sync(handle)
        disk[os.readlink(f"/proc/self/fd/{handle}")] = os.pread(handle, 10**6, 0)

    with opened(description(*AVG), file) as silo:
        monkeypatch.setattr(os, "fdatasync", noted)
        next(silo.take_part(QueryTask(1, 0)))
        paths = [*(tmp_path / "study").iterdir(), *(tmp_path / "counters").iterdir()]
        assert disk == {str(path): path.read_bytes() for path in paths}
        assert b"query 1 0" in disk[file.path]


# -- coordinators at random ------------------------------------------------------------------------

USER, RECORD = "user", "record"
COORDINATORS = (
    (AVG, USER, 5, 1),
    ((*AVG, "seed=1"), USER, 5, 1),
    ((*AVG, "algo.noise_multiplier=3", "accountant=rdp"), USER, 3, 1),
    ((*AVG, "algo.noise_multiplier=3", "algo.user_rate=0.5"), USER, 3, 0.5),
    ((*AVG, "algo=uldp_naive", "aggregation=secagg", "accountant.budget=1"), USER, 5, 1),
    (("algo=uldp_sgd", "rounds=6", "algo.noise_multiplier=8"), USER, 8, 1),
    ((*AVG, "algo=dp_erm"), RECORD, 12.00385, 1),
    ((*AVG, "mechanism=none"), USER, 0, 1),
    ((*AVG, "accountant.budget=9"), USER, 5, 1),
)
"""Words, the protected unit, the noise multiplier of a release and the rate of the unit. That of
dp_erm is in its certificate; the others are words or defaults."""
BUDGET = 3.0


def lower_bound(answered):
    """Epsilon of these answers at DELTA by dp_accounting alone, had they been fixed beforehand."""
    if any(z == 0 for _, z, _ in answered):
        return math.inf
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    for (_, z, rate), count in answered.items():
        event = GaussianDpEvent(z)
        accountant.compose(PoissonSampledDpEvent(rate, event) if rate < 1 else event, count)
    return accountant.get_epsilon(DELTA)


class Site:
    """A site, and what happens to its files between two coordinators.

    answered: how often each release of `COORDINATORS` was answered, as the test has counted it.
    """

    def __init__(self, folder, chance):
        self.chance = chance
        self.file = CountedFile(str(folder / "study" / "silo0.txt"), str(folder / "counters"))
        self.copy = CountedFile(str(folder / "elsewhere" / "silo0.txt"), str(folder / "counters"))
        self.path = Path(self.file.path)
        self.answered = Counter()
        self.older = []
        self.meddled = self.noticed = 0

    def visit(self, spec, release, **changes):
        """A coordinator asks at random, of a journal with which somebody has perhaps meddled. What
        is noticed is mended."""
        newest = self.path.read_bytes() if self.older else b""
        file = self.meddle(newest) if self.older else self.file
        try:
            with opened(spec, file, **changes) as silo:
                self.ask(silo, release)
                if self.chance.random() < 0.2:
                    self.meddled += 1
                    with pytest.raises(RefusedError, match="another process has it open"):
                        replace(spec, journal=file).open({})
                    self.noticed += 1
        except RefusedError as refusal:
            if "the run asks for" not in str(refusal):
                self.noticed += 1
                self.path.write_bytes(newest)
        self.older.append(self.path.read_bytes())

    def meddle(self, newest):
        """The file that the next life opens."""
        fault = self.chance.choice(("none", "none", "none", "older", "removed", "cut", "copied"))
        self.meddled += fault != "none"
        if fault == "older":
            self.path.write_bytes(self.chance.choice(sorted({b"", *self.older} - {newest})))
        elif fault == "removed":
            self.path.unlink()
        elif fault == "cut":
            self.path.write_bytes(newest[: self.chance.randrange(len(newest))])
        elif fault == "copied":
            other = Path(self.copy.path)
            other.parent.mkdir(mode=0o700, exist_ok=True)
            shutil.copy(self.path, other)
            return self.copy
        return self.file

    def ask(self, silo, release):
        """Rounds in turn or at random, some of them again."""
        in_turn = self.chance.random() < 0.5
        for number in range(1, 7):
            try:
                silo.asked(QueryTask(number if in_turn else self.chance.randint(1, 6), 0))
            except RefusedError:
                continue
            self.answered[release] += 1


@pytest.mark.parametrize("sites", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_random_coordinators_never_exceed_a_budget(sites, description, tmp_path):
    """Ten at each site: with other settings and seeds, repeated rounds, and journals that were
    copied, cut, put back or removed."""
    totals = []
    for number in range(sites):
        chance = random.Random(number)
        site = Site(tmp_path / str(number), chance)
        for visit in range(10):
            words, *release = chance.choice(COORDINATORS)
            own = None if visit else Budget(BUDGET, DELTA)
            site.visit(description(*words), tuple(release), budget=own)
        assert site.noticed == site.meddled
        totals.append(lower_bound(site.answered))
    assert max(totals) <= BUDGET
    assert statistics.median(totals) > 0.8 * BUDGET
