"""Bugs planted in mechanisms, weights, sampling, resume, events and training: who notices them."""

import math
from contextlib import suppress

import pytest
from planted_bugs import BUGS

from fedpriv.audit.audit import subjects
from fedpriv.audit.premises import file_premises, run_noise, run_samples
from fedpriv.testing import ConformanceError, check_algorithm, experiment
from fedpriv.testing.premise import sharing_level

NAMES = {bug.name: bug for bug in BUGS}
TWICE = "share of users in a sample of update, often and twice in a row"
BY_PREMISES = {
    "noise in round 1 only": "noise of round 2",
    "every round has the noise of round 1": "correlation of noise",
    "in sums over some silos every round has the noise of round 1": "correlation of noise",
    "every silo draws the same noise": "correlation of noise",
    "no noise on the last coordinate": "noise in one coordinate, number 61",
    "noise on the first half of the coordinates": "noise of round 1",
    "twice as many users are sampled as declared": "share of users in a sample",
    "the same users are sampled in every round": TWICE,
    "twice as many records are drawn in DP-SGD as declared": "share of users in a sample",
    "the noise of local steps is a tenth too small": "noise of local steps",
    "no noise in a round that is done again": "change of a round that is done again",
    "other noise in a round that is done again": "change of a round that is done again",
    "a silo's own noise share counts against itself": "noise",
    "each message takes back half of the noise of the message before": "correlation of noise",
}
"""Some bugs that break a premise, and the premise."""
BY_FILE = {
    "the clip follows the weights": 2.5,
    "each half of a vector has the whole clip": 1.25,
    "a user of several silos has weight 1 in each": 2.5,
    "the server adds one silo twice": 1.15,
    "a tenth of the sensitivity": 8.0,
    "DP-SGD clips the sum of a batch, not its records": 20.0,
    "DP-SGD divides its noise by the batch twice": 15.0,
    "the order of a user's batches depends on who else is there": 1.01,
    "messages repeat earlier sums three times as strongly": 2.5,
    "users take part in every round, not in their turn": 1e9,
    "a message is charged for its own round alone": 1e9,
}
"""Bugs that move a unit of the file by more than is charged, and by how many times, at least."""


def broken(words, values=300):
    """The broken premises of a command's certificates."""
    exp = experiment(*words)
    plan = subjects(exp, 1)[0].plan
    noise = run_noise(exp, plan, colluding=1, seconds=math.inf, values=30 * values)
    samples = run_samples(exp, plan, math.inf)
    return [one for one in sharing_level([*noise, *samples]) if one.alarm]


@pytest.fixture
def planted(request, monkeypatch):
    """The bug that a test is about, planted."""
    NAMES[request.param].plant(monkeypatch)
    return NAMES[request.param]


@pytest.mark.parametrize("planted", BY_PREMISES, indirect=True)
def test_a_bug_breaks_the_premise_that_it_should(planted):
    name = BY_PREMISES[planted.name]
    assert any(premise.name.startswith(name) for premise in broken(planted.words))


@pytest.mark.parametrize("planted", BY_FILE, indirect=True)
def test_a_unit_of_the_file_moves_more_than_is_charged(planted):
    assert max(premise.measured for premise in of_file(planted.words)) > BY_FILE[planted.name]


def of_file(words):
    """The distances that units of the file move, of a command's certificates."""
    exp = experiment(*words)
    found = file_premises(exp, subjects(exp, 1)[0].plan, 2e9, units=5)
    return [premise for _, premise in found]


NOT_FRESH = r"noise of round 2: measured 0,|correlation of noise of the sum"
BY_CHECK = {
    "noise from a constant seed": NOT_FRESH,
    "weights that add up to 1.05": r"from the file to the noise: user, .* 1\.05 times",
}
"""Bugs that a measurement of several rounds, seeds and files shows to `check_algorithm`."""


@pytest.mark.parametrize("planted", BY_CHECK, indirect=True)
def test_a_bug_fails_the_conformance_check(planted):
    algo = experiment(*planted.words).algo
    with pytest.raises(ConformanceError, match=BY_CHECK[planted.name]):
        check_algorithm(algo)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", sorted({bug.words for bug in BUGS if bug.name in {*BY_PREMISES, *BY_FILE}})
)
def test_right_code_breaks_no_premise(words):
    assert not broken(words)
    assert not any(premise.alarm for premise in of_file(words))


@pytest.mark.slow
@pytest.mark.parametrize("planted", NAMES, indirect=True)
def test_no_bug_passes_both(planted):
    """Without a single trial: what is measured in seconds is enough."""
    mechanism = [word for word in planted.words if word.startswith("mechanism")]
    with suppress(ConformanceError):
        check_algorithm(experiment(*planted.words).algo, *mechanism)
        alarms = [premise for premise in of_file(planted.words) if premise.alarm]
        assert broken(planted.words) or alarms
