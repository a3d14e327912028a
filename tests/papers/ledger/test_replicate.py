"""`fedpriv replicate`: choose on some seeds, decide on others, resume, and say what is wrong."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedpriv.data.embedded import BreastCancer
from fedpriv.errors import FedprivError
from fedpriv.papers.ledger import command, entries, results
from fedpriv.papers.ledger.entries import Answer, Case, Comparison, Entry, Replication
from fedpriv.papers.ledger.results import DECIDING, TUNING
from fedpriv.papers.ledger.sweeps import replicate
from fedpriv.papers.ledger.validation import with_validation_records
from fedpriv.util.streams import Streams

SMALL = Replication(
    experiment="lowy/fig8",
    words=("rounds=2", "evaluate_every=1", "preset.silo_clip=1"),
    places=("algo.epsilon=3,18",),
    cases={"conclusion": Case(("algo.calibration=certified",), ("preset.local_lr=0.1,1",))},
    methods={
        "SPIDER": (("algo=spider", "algo.phase=1,2"), ("algo=spider", "algo.variant=alternate")),
        "MB-SGD": (("algo=minibatch_sgd",),),
    },
    grids={"MB-SGD": ("preset.local_lr=0.2",)},
    chosen_by="train_loss",
    tuning_seeds=(100,),
    seeds=(0, 1),
    comparisons=(Comparison("SPIDER", "MB-SGD", "error", 2, "lower", "most"),),
)
ENTRY = Entry(
    "lowy/small", "here", "a claim", {"conclusion": Answer("not run", "")}, replication=SMALL
)


def run(replication, folder):
    return replicate(replication, folder, lambda text: None)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return run(SMALL, tmp_path_factory.mktemp("runs"))


def test_settings_are_chosen_on_the_tuning_seeds_and_decide_on_the_others(rows):
    tuning, deciding = (rows[rows["phase"] == phase] for phase in (TUNING, DECIDING))
    # 2 places, 1 seed: 2 phases and the alternate variant with 2 rates, one rate of MB-SGD
    assert len(tuning) == 2 * (2 * 2 + 2 + 1)
    assert {*tuning["seed"]} == {100}
    assert {*deciding["seed"]} == {0, 1}
    assert {*deciding["round"]} == {0, 1, 2}
    spider = tuning[tuning["method"] == "SPIDER"]
    for place, here in deciding.groupby("place"):
        best = spider.loc[spider[spider["place"] == place]["value"].idxmin(), "settings"]
        assert {*here[here["method"] == "SPIDER"]["settings"]} == {best}
        assert here["certified"].to_numpy() == pytest.approx(float(place.partition("=")[2]))


def test_a_grid_of_one_value_holds_in_the_deciding_runs(rows):
    """The experiment sweeps many step sizes; MB-SGD's grid names one."""
    deciding = rows[(rows["phase"] == DECIDING) & (rows["method"] == "MB-SGD")]
    assert len(deciding) == 2 * 2 * 3  # places, seeds, rounds


def test_a_key_that_only_the_experiment_sweeps_is_refused(tmp_path):
    case = Case(("algo.calibration=certified",), ())
    swept = replace(ONE, cases={"conclusion": case})
    with pytest.raises(FedprivError, match="makes 30 runs in place of 2; name every key"):
        run(swept, tmp_path)


def test_with_phase_1_spider_is_mb_sgd_to_the_bit(tmp_path):
    """Algorithm 3 with q = 1 at certified noise."""
    same = replace(
        SMALL,
        cases={"conclusion": Case(("algo.calibration=certified", "preset.local_lr=0.2"))},
        methods={
            "SPIDER": (("algo=spider", "algo.phase=1"),),
            "MB-SGD": (("algo=minibatch_sgd",),),
        },
    )
    found = run(same, tmp_path).groupby(["place", "seed", "round"])["value"]
    assert (found.nunique() == 1).all()
    assert (found.count() == 2).all()


ONE = replace(SMALL, places=("algo.epsilon=18",), methods={"MB-SGD": (("algo=minibatch_sgd",),)})


def test_settings_with_which_a_run_diverges_are_not_chosen(tmp_path):
    tried = replace(ONE, grids={"MB-SGD": ("preset.local_lr=0.2,1e300",)})
    rows = run(tried, tmp_path)
    assert {*rows["settings"]} == {"preset.local_lr=0.2"}


def test_a_method_whose_settings_all_diverge_is_not_judged_untuned(tmp_path):
    tried = replace(ONE, grids={"MB-SGD": ("preset.local_lr=1e300",)})
    with pytest.raises(FedprivError, match="at 1 of 1 places all settings diverge"):
        run(tried, tmp_path)


def test_a_run_that_diverges_is_not_left_out_of_a_mean(tmp_path):
    words = ("algo.calibration=certified", "preset.local_lr=1e300")
    untuned = replace(ONE, cases={"conclusion": Case(words)})
    for _ in range(2):
        with pytest.raises(FedprivError, match="MB-SGD: 2 of 2 deciding runs diverge"):
            run(untuned, tmp_path)


def test_failures_other_than_divergence_end_it_and_are_repeated(tmp_path):
    absent = Replication(
        experiment="hu/fig7",
        words=("rounds=1", "aggregation=plain", f"data.root={tmp_path}/no"),
        places=("algo.epsilon=1", "algo.calibration=paper"),
        cases={"curve": Case()},
        methods={"CDP-FedAvg": ((),)},
        seeds=(0, 1),
        comparisons=(),
    )
    for _ in range(2):
        with pytest.raises(FedprivError, match=r"data\.root"):
            run(absent, tmp_path / "runs")


def test_results_are_read_as_they_were_written_and_decide(rows, tmp_path):
    results.write(ENTRY.name, rows, tmp_path)
    read = results.read(results.path(ENTRY.name, tmp_path))
    assert len(read) == len(rows)
    assert read["value"].to_numpy() == pytest.approx(rows["value"].to_numpy(), rel=1e-5)
    [decision] = results.decide(ENTRY, "conclusion", read)
    assert [one.place for one in decision.found] == ["algo.epsilon=3", "algo.epsilon=18"]
    assert results.decided_answer(ENTRY, "conclusion", [decision]) in entries.ANSWERS
    assert results.decide(ENTRY, "curve", read) == []
    shorter = replace(ENTRY, same={"length": "20 of 100 rounds"})
    assert results.decided_answer(shorter, "conclusion", [decision]) == "not resolved"
    certain = replace(decision, answer="reproduced")
    other = replace(ENTRY, same={"tuning": "no: 2 local epochs in place of 50"})
    assert results.decided_answer(other, "curve", [certain]) == "not resolved"
    assert results.decided_answer(other, "conclusion", [certain]) == "reproduced"


def test_a_comparison_answers_the_questions_that_it_names(rows):
    assert ENTRY.replication is not None
    [one] = ENTRY.replication.comparisons
    for named, wanted in (((), 1), (("conclusion",), 1), (("curve",), 0)):
        only = replace(one, questions=named)
        entry = replace(ENTRY, replication=replace(ENTRY.replication, comparisons=(only,)))
        assert len(results.decide(entry, "conclusion", rows)) == wanted


def test_the_command_resumes_and_keeps_every_seed(tmp_path, monkeypatch, capsys):
    small = replace(
        ENTRY,
        replication=replace(
            ONE,
            methods={
                "SPIDER": (("algo=spider", "algo.phase=1"),),
                "MB-SGD": (("algo=minibatch_sgd",),),
            },
        ),
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "entries", lambda: {small.name: small})
    command.main([small.name])
    said = capsys.readouterr().out
    assert "SPIDER lower error than MB-SGD after 2 rounds, most" in said
    first = (tmp_path / "results/ledger/lowy_small.csv").read_bytes()
    folders = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("status.json")}
    command.main([small.name])
    assert (tmp_path / "results/ledger/lowy_small.csv").read_bytes() == first
    assert folders == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("status.json")}


def test_an_entry_that_does_not_exist_or_has_nothing_to_run_is_told_in_one_line():
    with pytest.raises(FedprivError, match=r"^hu/fig66: no such entry; did you mean hu/fig6"):
        command.main(["hu/fig66"])
    with pytest.raises(FedprivError, match=r"^hu/lemma5: nothing to run; allowed: .*hu/fig6"):
        command.main(["hu/lemma5"])


def test_without_names_it_lists_the_entries(capsys):
    command.main([])
    out = capsys.readouterr().out
    assert "* hu/fig6: curve: " in out
    assert "  hu/lemma5: statement: refuted" in out
    with pytest.raises(SystemExit):
        command.main(["--help"])
    assert "fedpriv replicate" in capsys.readouterr().out


RULED = Replication(
    experiment="uldp_fl/fig4_embedded",
    words=("rounds=2", "evaluate_every=2"),
    cases={"conclusion": Case(grid=("algo.global_lr=25,62.5",))},
    methods={"ULDP-SGD": (("algo=uldp_sgd",),)},
    tuning_seeds=(100, 101),
    seeds=(0, 1),
    comparisons=(Comparison("ULDP-SGD", "ULDP-SGD", "loss", 2, "lower"),),
)


def test_a_grid_holds_the_authors_setting_and_grows_until_no_end_is_chosen(tmp_path):
    rows = run(RULED, tmp_path)
    tuning = rows[rows["phase"] == TUNING]
    assert {*zip(tuning["metric"], tuning["round"])} == {("loss", 2)}  # what is judged
    tried = {float(text.partition("=")[2]) for text in tuning["settings"]}
    assert tried > {10, 25, 62.5}
    [best] = results.chosen(RULED, RULED.comparisons[0], "ULDP-SGD", tuning).values()
    assert min(tried) < float(best.partition("=")[2]) < max(tried)
    [authors] = {*rows[rows["phase"] == results.AUTHORS]["settings"]}
    assert float(authors.partition("=")[2]) in tried
    assert {*rows[rows["phase"] == DECIDING]["settings"]} == {best}


def test_validation_records_are_training_records_that_do_not_train():
    data = BreastCancer()
    whole, held = (one.load(Streams(3)) for one in (data, with_validation_records(data)))
    assert (len(held.train), len(held.test)) == (364, 91)  # of 455
    parts = np.concatenate([held.train.x, held.test.x])
    assert np.array_equal(np.unique(parts, axis=0), np.unique(whole.train.x, axis=0))
    assert data.shape == with_validation_records(data).shape


CLAIM = Comparison("A", "B", "error", 2, "lower")


def table(rows):
    """Values by method, phase and settings, on five seeds with a small spread."""
    return pd.DataFrame(
        [
            results.measurement(
                question="conclusion",
                method=method,
                phase=phase,
                place="",
                settings=settings,
                seed=seed,
                round=2,
                metric="error",
                value=value + 0.001 * (seed % 3) * (method == "A"),
            )
            for method, phase, settings, value in rows
            for seed in range(5)
        ]
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.1], "unknown setting"),
        ([0.1, 0.1, 0.1], "reproduced"),
        ([0.1, 0.1, 0.3], "unknown setting"),
        ([0.3, 0.3, 0.3], "reversed"),
    ],
)
def test_an_open_setting_answers_only_if_three_values_agree(values, expected):
    open_setting = replace(
        SMALL, cases={"conclusion": Case()}, open=("lr=1,2,3",), comparisons=(CLAIM,)
    )
    rows = [
        (method, DECIDING, f"lr={number}", value if method == "A" else 0.2)
        for number, value in enumerate(values)
        for method in "AB"
    ]
    entry = replace(ENTRY, replication=open_setting)
    [decision] = results.decide(entry, "conclusion", table(rows))
    assert decision.answer == expected
    assert len(decision.found) == len(values)


@pytest.mark.parametrize(("tuned", "expected"), [(0.1, "reproduced"), (0.15, "not run")])
def test_a_method_tuned_to_worse_than_the_authors_setting_is_not_judged(tuned, expected):
    """On the tuning seeds lr=2 is best; on those that decide the authors' lr=1 errs by 0.12."""
    ruled = replace(
        RULED, comparisons=(CLAIM,), tuning_seeds=range(5), methods={"A": ((),), "B": ((),)}
    )
    rows = [("A", TUNING, "lr=1", 0.2), ("A", TUNING, "lr=2", 0.1), ("B", TUNING, "lr=2", 0.2)]
    rows += [("A", DECIDING, "lr=2", tuned), ("A", results.AUTHORS, "lr=1", 0.12)]
    rows += [("B", DECIDING, "lr=2", 0.2), ("B", results.AUTHORS, "lr=1", 0.3)]
    entry = replace(ENTRY, replication=ruled)
    [decision] = results.decide(entry, "conclusion", table(rows))
    assert decision.answer == expected
