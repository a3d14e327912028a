"""A claim with an unknown is never verified; a wrong one ends in a line with its path."""

import copy
import json
import math

import dp_accounting as dp
import jsonschema
import pytest
from claim_examples import BATCHES, DP_SGD, LOCAL_DP, at, certified, changed, paths, verdict

from fedpriv.claims.command import SCHEMA_FILE
from fedpriv.claims.plain_yaml import load
from fedpriv.claims.reading import parse, read
from fedpriv.claims.verdicts import HOLDS, NO_CERTIFICATE, judge
from fedpriv.errors import ConfigError, DataError

CLAIMS = {"dp_sgd": DP_SGD, "local_dp": LOCAL_DP, "batches": BATCHES}
OPTIONAL = ("schema", "name", "source")
DROPS = [
    (name, path)
    for name, data in CLAIMS.items()
    for path in paths(data)
    if path not in OPTIONAL
    and not path.endswith(("hidden_from.0", "hidden_from.1", "hidden_from.2"))
]
SCHEMA = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))


@pytest.mark.parametrize("name", CLAIMS)
def test_the_complete_claims_hold(name):
    data = changed(CLAIMS[name], claims__0__epsilon=50.0)
    finding = verdict(data)
    assert finding.verdict == HOLDS
    assert finding.certified.rests_on


@pytest.mark.parametrize("how", ["dropped", "unknown", None])
@pytest.mark.parametrize(("name", "path"), DROPS)
def test_nothing_is_certified_with_an_unknown(name, path, how):
    data = changed(CLAIMS[name], claims__0__epsilon=1e9)
    container, last = at(data, path)
    if how == "dropped" and not isinstance(container, list):
        del container[last]
    else:
        container[last] = None if how == "dropped" else how
    findings = judge(parse(data))
    assert [finding.verdict for finding in findings if finding.verdict] == [NO_CERTIFICATE]
    for finding in findings:
        assert finding.certified.epsilon == math.inf
        assert finding.verdict in ("", NO_CERTIFICATE)
    assert any(question.path.startswith(path) for question in parse(data).questions)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("claims__0__epsilon", -1),
        ("claims__0__epsilon", float("nan")),
        ("claims__0__epsilon", True),
        ("claims__0__epsilon", "1"),
        ("claims__0__delta", 0),
        ("claims__0__delta", 1),
        ("claims__0__unit", "row"),
        ("claims__0__adjacency", ["add/remove"]),
        ("releases__0__times", 1.5),
        ("releases__0__times", 0),
        ("releases__0__noise__deviation", float("inf")),
        ("releases__0__sampling__rate", 1.01),
        ("releases__0__sampling__rats", 0.1),
        ("releases__0__seen__attacker", "sum"),
        ("releases", {}),
        ("schema", "fedpriv-claim/2"),
        ("complete", "yes"),
    ],
)
def test_a_wrong_value_names_its_path(path, value):
    data = changed(DP_SGD, **{path: value})
    with pytest.raises(ConfigError, match=path.replace("__", ".").replace("[", "")):
        parse(data)
    if not isinstance(value, float) or math.isfinite(value):
        assert not SCHEMA.is_valid(data)


PASS = {"rule": "shuffled", "batch": 10, "of": 95, "hidden_from": []}
SHARED = {**DP_SGD["releases"][0]["noise"], "added_by": "server", "generator": "shared by clients"}
CONTRADICTIONS = [
    (
        DP_SGD,
        {"releases__0__sampling__drawn": "once", "releases__0__participation": 7},
        "7",
        "once",
    ),
    *(
        (DP_SGD, {"releases__0__sampling": PASS, "releases__0__participation": n}, n, "batch=10")
        for n in (1, 9, 13, 100)
    ),
    (DP_SGD, {"releases__0__noise": SHARED}, "shared by clients", "added_by=server"),
    (
        LOCAL_DP,
        {"releases__0__sampling": PASS | {"batch": 3, "of": 9}, "releases__0__participation": 1},
        "shares=5",
        "batch=3",
    ),
]


@pytest.mark.parametrize(("data", "values", "one", "other"), CONTRADICTIONS)
def test_both_fields_of_a_contradiction_are_named(data, values, one, other):
    with pytest.raises(ConfigError, match=f"{one}.*{other}") as found:
        parse(changed(data, **values))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(("participation", "moves"), [(10, 10), (12, 12)])
def test_a_smaller_last_batch_may_count_or_not(participation, moves):
    """100 releases of 10 of 95: 10 passes of 10 batches, or 12 of 9."""
    values = {"releases__0__sampling": PASS, "releases__0__participation": participation}
    data = changed(DP_SGD, claims__0__adjacency="zero-out", **values)
    closed = dp.get_epsilon_gaussian(1 / math.sqrt(moves), 1e-5)
    assert certified(data) == pytest.approx(closed, abs=1e-3)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("releases__0__participation", 101),
        ("choices", ["unknown"]),
        ("releases__0__scope", "All"),
        ("releases__0__scope", " "),
        ("releases__0__seen__server", "nothing"),
        ("releases__0__sampling__hidden_from", ["server"]),
    ],
)
def test_fields_that_contradict_each_other_are_refused(path, value):
    with pytest.raises(ConfigError, match=path.replace("__", ".")):
        parse(changed(DP_SGD, **{path: value}))


def test_a_server_that_adds_noise_sees_the_sum():
    noise = {**DP_SGD["releases"][0]["noise"], "added_by": "server"}
    seen = dict.fromkeys(("released model", "server", "client"), "nothing")
    with pytest.raises(ConfigError, match="the server adds the noise, so it sees the sum"):
        parse(changed(DP_SGD, releases__0__noise=noise, releases__0__seen=seen))


@pytest.mark.parametrize("name", CLAIMS)
def test_the_schema_accepts_what_is_read(name):
    SCHEMA.validate(CLAIMS[name])
    for path in paths(CLAIMS[name]):
        data = copy.deepcopy(CLAIMS[name])
        container, last = at(data, path)
        if not isinstance(container[last], (dict, list)) and path not in OPTIONAL:
            container[last] = "unknown"
            if "hidden_from" not in path:
                SCHEMA.validate(data)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: &x [1]\nb: *x\n", "an anchor or a reference"),
        ("claims: 1\nclaims: 2\n", "the key claims twice"),
        ("a: !!python/object/apply:os.system [ls]\n", "it contains the tag"),
        ("1: 2\n", "is no text"),
        ("[" * 5000, "nested more than 20 deep"),
        ("\x00", "cannot be read"),
    ],
)
def test_a_stranger_s_file_is_data(tmp_path, text, error):
    path = tmp_path / "claim.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match=error):
        read(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-5", 1e-5), ("1E5", 1e5), ("010", "010"), ("1:30", "1:30"), ("0x10", "0x10"), ("7", 7)],
)
def test_numbers_are_read_as_they_look(tmp_path, text, value):
    path = tmp_path / "number.yaml"
    path.write_text(f"delta: {text}\n")
    assert load(path) == {"delta": value}
