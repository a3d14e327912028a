"""The ledger of a data set: nothing is lost, added or changed unseen."""

import json
import math
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from dp_accounting import GaussianDpEvent, get_epsilon_gaussian
from new_ledgers import new_ledger

from fedpriv.accountants.charges import Charge
from fedpriv.accountants.events import ADD_REMOVE, RELEASED_MODEL, Event
from fedpriv.accountants.filters import Budget
from fedpriv.errors import FedprivError
from fedpriv.ledgers.data_ledger import BeyondBudgetError, DataLedger
from fedpriv.ledgers.entries import GRANT, Balance, Population, charge_entry, settle_entry

DELTA = 1e-5
user_ledger = partial(new_ledger, epsilon=100.0, unit="user")


def text(noise=5.0):
    event = Event(RELEASED_MODEL, "user", ADD_REMOVE, GaussianDpEvent(noise), None)
    return Charge(RELEASED_MODEL, (event,)).text


def exact(count, noise=5.0):
    """The closed form of dp_accounting at the half of delta that a filter has for Gaussians."""
    return get_epsilon_gaussian(noise / count**0.5, DELTA / 2)


def charge(run, count=1, population="patients", noise=5.0):
    texts = Counter({text(noise): count})
    return charge_entry(run, population, observer=RELEASED_MODEL, words="ULDP-AVG", texts=texts)


@pytest.fixture(autouse=True)
def _counters(tmp_path, monkeypatch):
    """Counters of this test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def path(tmp_path):
    return user_ledger(tmp_path / "clinic" / "ledger.jsonl")


def add(path, *entries):
    with DataLedger(path) as ledger:
        ledger.add(*entries)
        return ledger.balance


def test_charges_add_up_and_what_is_settled_comes_back(path):
    add(path, charge("a", 20))
    assert add(path, charge("b", 5)).spent("patients") == pytest.approx(exact(25))
    balance = add(path, settle_entry("a", Counter({text(): 7})))
    assert balance.spent("patients") == pytest.approx(exact(12))
    assert [run.settled for run in balance.runs.values()] == [True, False]
    assert add(path, settle_entry("a", Counter())).spent("patients") == pytest.approx(exact(5))
    with pytest.raises(FedprivError, match="line 6"):
        DataLedger.seen(Path(shifted(path)))


def shifted(path):
    """A copy with a line more, which settles more than was charged."""
    balance = DataLedger.seen(path)
    line = {"kind": "settle", "run": "b", "charges": [[text(), 6]]}
    about = {"number": balance.entries + 1, "before": balance.digest, "time": ""}
    copy = path.with_name("copy.jsonl")
    copy.write_bytes(path.read_bytes() + json.dumps(about | line).encode() + b"\n")
    return copy


def test_a_charge_beyond_the_budget_leaves_no_line(tmp_path):
    """12 releases fit within 3, and 13 do not."""
    path = user_ledger(tmp_path / "l.jsonl", epsilon=3.0)
    add(path, charge("a", 12))
    before = path.read_bytes()
    with pytest.raises(BeyondBudgetError, match="beyond epsilon 3 at delta 1e-05 of patients"):
        add(path, charge("b"))
    assert path.read_bytes() == before
    add(path, {"kind": GRANT, "population": "patients", "epsilon": 0.2})
    assert add(path, charge("b")).left("patients") == pytest.approx(3.2 - exact(13))


def test_populations_that_overlap_are_summed_and_others_are_not(tmp_path):
    path = user_ledger(
        tmp_path / "l.jsonl", "ward", "clinic", "tests", overlap=[("ward", "clinic")]
    )
    add(path, charge("a", 4, "ward"))
    balance = add(path, charge("b", 9, "clinic"), charge("c", 2, "tests"))
    found = [balance.spent(name) for name in ("ward", "clinic", "tests")]
    assert found == pytest.approx([exact(13), exact(13), exact(2)])


def test_a_charge_counts_against_the_budget_of_those_who_overlap(tmp_path):
    budgets = [Population("ward", "user", Budget(2.0, DELTA))]
    budgets += [Population("clinic", "user", Budget(9.0, DELTA))]
    path = tmp_path / "l.jsonl"
    DataLedger.begin(path, "two", budgets, [("ward", "clinic")])
    add(path, charge("a", 5, "ward"))
    with pytest.raises(BeyondBudgetError, match="of ward"):
        add(path, charge("b", 2, "clinic"))


def test_a_missing_or_other_file_is_no_ledger(tmp_path):
    for name, content in (("none", None), ("empty", ""), ("other", "{}\n"), ("text", "hello\n")):
        if content is not None:
            (tmp_path / name).write_text(content)
        for look in (DataLedger, DataLedger.seen):
            with pytest.raises(FedprivError) as refusal:
                look(tmp_path / name)
            assert "\n" not in str(refusal.value)


# -- files that change -----------------------------------------------------------------------------


@pytest.fixture
def lines(path):
    for number in range(6):
        add(path, charge(f"run{number}", number + 1))
    return path.read_bytes().splitlines(keepends=True)


def refused(path, content):
    path.write_bytes(content)
    with pytest.raises(FedprivError) as refusal:
        DataLedger(path)
    return str(refusal.value)


def test_every_changed_byte_is_found(path, lines):
    whole = b"".join(lines)
    for place in range(0, len(whole), 29):
        changed = bytes([whole[place] ^ 1])
        assert "not as it was last used" in refused(
            path, whole[:place] + changed + whole[place + 1 :]
        )


def test_a_file_cut_anywhere_is_found(path, lines):
    whole = b"".join(lines)
    for size in range(0, len(whole), 29):
        refused(path, whole[:size])
    path.write_bytes(whole)
    assert DataLedger.seen(path).entries == 7


def test_lines_that_are_changed_are_found_without_the_counter_too(path, lines):
    """All but the last one, which no later line confirms."""
    first, second, third, *rest = lines
    faults = {
        "left out": [first, third, *rest],
        "in another order": [first, third, second, *rest],
        "twice": [first, second, second, third, *rest],
        "altered": [first, second.replace(b"run0", b"runX"), third, *rest],
        "without the first": [second, third, *rest],
    }
    for found in faults.values():
        path.write_bytes(b"".join(found))
        with pytest.raises(FedprivError, match="was altered: line"):
            DataLedger.seen(path)


def odd_charge(*about, mechanism='{"GaussianDpEvent": [5.0]}'):
    event = [*(RELEASED_MODEL, "user", ADD_REMOVE, "", 1, "", False), json.loads(mechanism), None]
    event[: len(about)] = about
    return {**charge("odd"), "charges": [[json.dumps([RELEASED_MODEL, "", [event]]), 1]]}


ODD = {
    "a negative grant": {"kind": GRANT, "population": "patients", "epsilon": -5},
    "a grant of no number": {"kind": GRANT, "population": "patients", "epsilon": math.nan},
    "a time of no date": {**charge("odd"), "time": "yesterday"},
    "a number of 400 digits": {**charge("odd"), "charges": [[text(), 10**400]]},
    "an observer of no text": odd_charge(7),
    "a group of no person": odd_charge(RELEASED_MODEL, "user", ADD_REMOVE, "", 0),
    "negative noise": odd_charge(mechanism='{"GaussianDpEvent": [-5.0]}'),
    "a mechanism of nobody": odd_charge(mechanism='{"os.system": [1]}'),
    "a list for noise": odd_charge(mechanism='{"GaussianDpEvent": [[5.0]]}'),
    "deep nesting": {**charge("odd"), "charges": [["[" * 10**5, 1]]},
}


@pytest.mark.parametrize("fault", ODD)
def test_lines_that_no_ledger_writes_are_one_line_of_refusal(fault, path):
    """A stranger may have written the whole file, with right digests."""
    seen = DataLedger.seen(path)
    about = {"number": 2, "before": seen.digest, "time": "2026-01-01T00:00:00+00:00"}
    with path.open("a") as file:
        file.write(json.dumps(about | ODD[fault]) + "\n")
    with pytest.raises(FedprivError, match="was altered: line 2") as refusal:
        DataLedger.seen(path)
    assert "\n" not in str(refusal.value)


def test_an_unfinished_line_is_dropped_and_said(path, lines, caplog):
    with path.open("ab") as file:
        file.write(lines[-1][:-20])
    with DataLedger(path) as ledger:
        assert ledger.balance.entries == 7
    assert "dropped" in caplog.text
    assert path.read_bytes() == b"".join(lines)


# -- many at once, and some that die ---------------------------------------------------------------


@pytest.mark.parametrize("runs", [24, pytest.param(200, marks=pytest.mark.slow)])
def test_many_at_once_are_charged_once_each(runs, path):
    with ThreadPoolExecutor(runs) as pool:
        list(pool.map(lambda number: add(path, charge(f"run{number}")), range(runs)))
    balance = DataLedger.seen(path)
    assert (balance.entries, len(balance.runs)) == (runs + 1, runs)
    assert balance.spent("patients") == pytest.approx(exact(runs))


def test_of_many_at_once_no_more_are_paid_than_fit(tmp_path):
    path = user_ledger(tmp_path / "l.jsonl", epsilon=3.0)

    def tries(number):
        try:
            return add(path, charge(f"run{number}")) is not None
        except BeyondBudgetError:
            return False

    with ThreadPoolExecutor(40) as pool:
        assert sum(pool.map(tries, range(40))) == 12
    assert DataLedger.seen(path).entries == 13


def work(path, life, told):
    """Charge and settle, and say what is done, until the end."""
    for number in range(1000):
        name = f"{life}.{number}"
        add(path, charge(name, 3))
        os.write(told, f"charge {name}\n".encode())
        add(path, settle_entry(name, Counter({text(): 2})))
        os.write(told, f"settle {name}\n".encode())


@contextmanager
def working(path, life):
    """A process that works, and the end of a pipe with what it has told."""
    heard, told = os.pipe()
    process = multiprocessing.get_context("fork").Process(target=work, args=(path, life, told))
    process.start()
    os.close(told)
    yield process, heard
    process.join()
    os.close(heard)


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_what_was_acknowledged_before_a_kill_is_there(kills, tmp_path):
    """Twice at once; and nothing is there twice."""
    chance = random.Random(kills)
    path = user_ledger(tmp_path / "l.jsonl", epsilon=1e3)
    acknowledged = Counter()
    for number in range(kills // 2):
        with working(path, f"a{number}") as (one, heard), working(path, f"b{number}") as (two, ear):
            time.sleep(chance.uniform(0.05, 0.3))
            for process in (one, two):
                os.kill(process.pid, signal.SIGKILL)
                process.join()
            for pipe in (heard, ear):
                acknowledged.update(os.read(pipe, 10**6).decode().splitlines())
    with DataLedger(path) as ledger:
        balance = ledger.balance
    assert acknowledged
    for name, run in balance.runs.items():
        left = 2 if run.settled else 3
        assert run.texts == {text(): left}
        assert run.settled >= acknowledged[f"settle {name}"]
    told = {line.split()[1] for line in acknowledged}
    assert told <= balance.runs.keys()
    assert len(balance.runs) - len(told) <= kills  # written, and killed before it said so
    total = sum(run.texts.total() for run in balance.runs.values())
    assert balance.spent("patients") == pytest.approx(exact(total))


@pytest.mark.slow
def test_many_lines_are_verified_and_summed_at_once(tmp_path):
    """About a second for 10^5, of processor time on one core; three times that is allowed."""
    path = user_ledger(tmp_path / "l.jsonl", epsilon=1e4)
    half = range(50_000)
    with DataLedger(path) as ledger:
        ledger.add(
            *(charge(f"run{number}", noise=5.0 + number % 20) for number in half),
            *(
                settle_entry(f"run{number}", Counter({text(5.0 + number % 20): 1}))
                for number in half
            ),
        )
    content = path.read_bytes()
    before = time.process_time()
    balance = Balance.read(path, content)
    spent = balance.spent("patients")
    assert time.process_time() - before < 3.0
    gap = sum(len(half) / 20 / (5.0 + noise) ** 2 for noise in range(20)) ** 0.5
    assert spent == pytest.approx(get_epsilon_gaussian(1 / gap, DELTA / 2))


@pytest.mark.parametrize(("mode", "fits"), [(0o755, True), (0o775, False), (0o707, False)])
def test_others_may_see_the_folder_and_not_write_there(mode, fits, tmp_path):
    folder = tmp_path / "clinic"
    folder.mkdir()
    folder.chmod(mode)
    if fits:
        assert user_ledger(folder / "l.jsonl").stat().st_mode & 0o777 == 0o600
        return
    with pytest.raises(FedprivError, match=r"others can open .*clinic"):
        user_ledger(folder / "l.jsonl")
