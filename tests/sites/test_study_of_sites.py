"""Organisations that hold their own records give the model that one process with all of them
does, and refuse what they have not agreed to."""

import re
import threading
import time

import pytest
import yaml
from dp_accounting import get_epsilon_gaussian
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from scipy.optimize import brentq
from waiting import wait_until

from fedpriv import commands
from fedpriv.cli import main
from fedpriv.errors import FedprivError
from fedpriv.parties.messages import decode
from fedpriv.runs.status import Status
from fedpriv.runs.tables import EPSILON, METRICS, TIMINGS, Tables
from fedpriv.sites import command
from fedpriv.sites.serve import host_of
from sites.study import SILOS, Federation, free_port, with_dates, write_yaml

pytest.importorskip("grpc")


@pytest.fixture
def federation(tmp_path):
    def made(*settings, **others):
        return Federation(tmp_path, settings, port=free_port(), **others)

    return made


def trained(folder, *words):
    main([*words, f"hydra.run.dir={folder}"])
    return (folder / "model.safetensors").read_bytes()


def whole(here):
    """The words of a run of one process with all records."""
    words = here.site("east").published().words
    return [*words, f"data.path={here.folder}/all.csv", "quiet=true"]


def epsilons(folder):
    """The certified epsilons, by observer."""
    found = {}
    for row in Tables(folder).rows(EPSILON):
        if row["method"] == "pld":
            found.setdefault(row["observer"], []).append(row["certified"])
    return found


def test_sites_train_the_model_of_one_process(federation, tmp_path):
    """In the clear: tests/sites/test_separate_machines.py."""
    here = federation("aggregation=secagg")
    with here.serving(*SILOS):
        apart = trained(tmp_path / "apart", *here.words)
    assert apart == trained(tmp_path / "whole", *whole(here))
    assert epsilons(tmp_path / "apart") == epsilons(tmp_path / "whole")


def test_real_noise_has_the_certificate_of_one_process_and_diagnostics_stay_at_the_sites(
    federation, tmp_path, capsys
):
    here = federation("aggregation=secagg", "randomness=system", simulation=False)
    with here.serving(*SILOS):
        trained(tmp_path / "apart", *here.words)
    trained(tmp_path / "whole", *whole(here))
    assert epsilons(tmp_path / "apart") == epsilons(tmp_path / "whole")
    told = [
        {key for key, value in row.items() if value}
        for row in Tables(tmp_path / "apart").rows(METRICS)
    ]
    assert told == [{"round"}, *[{"round", "update_norm"}] * 3]
    capsys.readouterr()
    main(["site", "status", str(tmp_path / "west.yaml")])
    certified = float(epsilons(tmp_path / "apart")["released model"][-1])
    gap = brentq(lambda gap: get_epsilon_gaussian(1 / gap, 1e-5) - certified, 0.1, 10)
    spent = get_epsilon_gaussian(1 / gap, 1e-5 / 2)  # who asks may have seen earlier answers
    assert f"3 answers, of every study: epsilon {spent:.4g} of 20 at" in capsys.readouterr().out


def test_a_site_that_pauses_or_has_spent_its_budget_ends_rounds_and_the_others_go_on(
    federation, tmp_path
):
    """One round costs epsilon 4.38; the budget of west is 5."""
    here = federation("randomness=system", simulation=False)
    write_yaml(tmp_path / "west.yaml", here.site_file("west") | {"budget": 5.0})
    with here.serving(*SILOS):
        trained(tmp_path / "apart", *here.words)
        aborted = [row["aborted"] for row in Tables(tmp_path / "apart").rows(TIMINGS)]
        assert aborted[0] == ""
        assert all("silo2 refuses round" in why and "budget" in why for why in aborted[1:])
        main(["site", "pause", str(tmp_path / "north.yaml")])
        with pytest.raises(SystemExit):
            main([*here.words, f"hydra.run.dir={tmp_path}/paused"])


def test_a_coordinator_that_is_started_again_goes_on(federation, tmp_path):
    """Its own words say where it listens and whose keys sign, as in the first line: the run's
    folder may not."""
    here = federation("aggregation=secagg")
    folder = tmp_path / "apart"
    with here.serving(*SILOS):
        trained(folder, *here.words, "rounds=2")
        own = [word for word in here.words if word != "quiet=true"]
        again = [f"resume={folder}", "rounds=3"]
        refused(lambda: commands.run(again), "engine.study=", "on this line")
        refused(lambda: commands.run([*again, own[0], *own[2:]]), "engine.study=", "on this line")
        refused(lambda: commands.run([*again, "engine=ray"]), "engine=ray: the engine of the run")
        main([*own[1:], *again])
    assert (folder / "model.safetensors").read_bytes() == trained(tmp_path / "one", *whole(here))


def test_a_stolen_line_without_the_partys_key_is_of_no_use(federation, tmp_path):
    """Somebody has the TLS key of silo0, and signs messages with a key of their own."""
    here = federation()
    main(
        [
            "keys",
            "new",
            "silo0",
            "--keys",
            str(tmp_path / "thief"),
            "--roster",
            f"{tmp_path}/own.csv",
        ]
    )
    (tmp_path / "keys" / "silo0.tls").rename(tmp_path / "thief" / "silo0.tls")
    stolen = {"keys": "thief", "folder": "state_thief"}
    write_yaml(tmp_path / "east.yaml", here.site_file("east") | stolen)
    site = here.site("east")
    site.approve(site.published())
    with pytest.raises(FedprivError, match="does not fit"):
        host_of(site).spec.open({})


VERBS = [b"open ", b"begin ", b"wake ", b"checkpoint ", b"close "]

REFUSED = {
    "a method with memory at the silos": (
        ("mechanism=correlated", "mechanism.bands=3"),
        {},
        "a method without memory",
    ),
    "seeds, at a real site": ((), {"simulation": False}, "randomness=simulation: system"),
    "counts of users in the clear": (("algo=uldp_avg_w",), {}, "an epsilon against the server"),
    "numbers that it does not publish": (
        ("algo=dp_sgd", "algo.calibration=given"),
        {},
        "write them into",
    ),
    "a file beside it": (("experiment=../more",), {}, "no setting that a study may have"),
    "a schema twice": (
        ("data.schema=a.yaml", "data.schema=b.yaml"),
        {},
        "data.schema stands there twice",
    ),
    "a schema in quotes": (("data.schema='b.yaml'",), {}, "no setting that a study may have"),
    "a class from elsewhere": (("algo._target_=os.path.join",), {}, "a class of fedpriv"),
    "an address": (("engine=ray",), {}, "no setting that a study may have"),
    "another table": (("data.path=/etc/passwd",), {}, "no setting that a study may have"),
    "a line that looks like the site's own": (
        ("data.missing_marks=['a\nafter 3 rounds, seen by the server: epsilon 0.1']",),
        {},
        "no setting that a study may have",
    ),
    "the environment": (("algo.clip=${oc.env:HOME}",), {}, "no setting that a study may have"),
    "Hydra's own": (("hydra.run.dir=/tmp/x",), {}, "no setting that a study may have"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_site_refuses_a_study_that_asks_for_more(federation, tmp_path, case):
    settings, others, why = REFUSED[case]
    federation(*settings, **others)
    refused(lambda: command.main(["approve", "--yes", f"{tmp_path}/east.yaml"]), why)


def changed_schema(folder):
    text = (folder / "schema.yaml").read_text()
    (folder / "schema.yaml").write_text(text.replace("- 100", "- 90"))


def fewer_users(folder):
    study = yaml.safe_load((folder / "study.yaml").read_text())
    study["users"] = {"east": 8, "north": 8, "west": 8}
    write_yaml(folder / "study.yaml", study)


def anothers_rows(folder):
    (folder / "east.csv").write_text((folder / "all.csv").read_text())


@pytest.mark.parametrize(
    ("change", "action", "why"),
    [
        (lambda folder: None, "serve", "a study that `fedpriv site approve` has shown"),
        (changed_schema, "status", "a study that `fedpriv site approve` has shown"),
        (fewer_users, "approve", "east.csv: more users than the 8 that"),
        (anothers_rows, "approve", "east.csv: has records of another silo than east"),
    ],
)
def test_a_site_refuses_what_it_has_not_agreed_to(federation, tmp_path, change, action, why):
    site = f"{tmp_path}/east.yaml"
    federation()
    if action == "status":
        main(["site", "approve", "--yes", site])
    change(tmp_path)
    flags = ["--yes"] if action == "approve" else []
    refused(lambda: command.main([action, *flags, site]), why)


OF_THE_FRAME = re.compile(
    r"there is no request ['\"].*['\"]|a request (out of turn|before the party is open)"
    r"|a request that cannot be read \(.*\)|silo0 has fedpriv .*"
)


def test_frames_of_strangers_get_a_reply_about_the_frame_alone(federation, tmp_path):
    here = federation()
    host = here.host("east")

    @settings(max_examples=40)
    @given(st.one_of(st.binary(), st.tuples(st.sampled_from(VERBS), st.binary()).map(b"".join)))
    def one(frame):
        kind, said = decode(host.answer(frame))
        done = frame.startswith(b"checkpoint ")
        assert kind == ("done" if done else "raised")
        assert done or OF_THE_FRAME.fullmatch(said.text)

    one()
    host.close()


def test_other_settings_cost_a_site_nothing(federation, tmp_path, capsys):
    here = federation("randomness=system", simulation=False)
    with here.serving(*SILOS):
        words = [*here.words, "algo.noise_multiplier=0.1", f"hydra.run.dir={tmp_path}/other"]
        refused(lambda: commands.run(words), "other settings than the study")
    capsys.readouterr()
    main(["site", "status", str(tmp_path / "west.yaml")])
    assert "0 answers, of every study: epsilon 0 of 20" in capsys.readouterr().out


def test_one_process_serves_a_site(federation, tmp_path):
    site = federation().site("east")
    with site.alone():
        refused(lambda: command.main(["serve", f"{tmp_path}/east.yaml"]), "another process serves")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"detla": 1e-9}, "unknown key detla"),
        ({"budget": -1.0}, "epsilon=-1.0: a positive epsilon"),
        ({"budget": "much"}, "budget=much: expected float"),
    ],
)
def test_a_file_of_a_site_is_read_to_the_last_key(federation, tmp_path, change, why):
    here = federation()
    write_yaml(tmp_path / "east.yaml", here.site_file("east") | change)
    refused(lambda: command.main(["status", f"{tmp_path}/east.yaml"]), "east.yaml", why)


def test_a_coordinator_without_its_sites_says_whom_it_misses(federation, tmp_path):
    here = federation()
    with here.serving("north"):
        words = [*here.words, f"hydra.run.dir={tmp_path}/run", "engine.waiting=0.5"]
        refused(lambda: commands.run(words), "engine.waiting=0.5: silo0", "silo2 did not dial in")


@pytest.mark.parametrize(
    ("days", "why"), [((-9, -2), "silo0 expired on 20"), ((2, 9), "silo0 begins on")]
)
def test_a_certificate_that_does_not_hold_now_is_refused(federation, tmp_path, days, why):
    federation()
    with_dates(tmp_path / "certificates/silo0.pem", tmp_path / "keys/silo0.tls", *days)
    words = ["approve", "--yes", f"{tmp_path}/east.yaml"]
    refused(lambda: command.main(words), f"the certificate of {why}")


def test_a_certificate_that_does_not_hold_now_is_named_on_both_sides(federation, tmp_path, caplog):
    here = federation()
    caplog.set_level("INFO")
    words = [*here.words, f"hydra.run.dir={tmp_path}/run", "engine.waiting=0.5"]
    certificates, keys = tmp_path / "certificates", tmp_path / "keys"
    expired = "the certificate of {} expired on 20"
    with here.serving("north", "west"):
        with_dates(certificates / "silo0.pem", keys / "silo0.tls", -9, -2)
        missing = ("engine.waiting=0.5: silo0", "did not dial in", expired.format("silo0"))
        refused(lambda: commands.run(words), *missing)
    with_dates(certificates / "coordinator.pem", keys / "coordinator.tls", -9, -2)
    refused(lambda: commands.run(words), expired.format("coordinator"))
    with here.serving("north"):
        wait_until(lambda: expired.format("coordinator") in caplog.text)


@pytest.mark.filterwarnings("ignore:silo2 is silent")
def test_a_site_that_computes_for_ever_holds_a_round_as_long_as_an_answer_may_take(
    federation, tmp_path
):
    here = federation("aggregation=secagg", "aggregation.cohort=2", "aggregation.threshold=2")
    ended = threading.Event()
    host = here.host("west")

    def answer(frame):
        if frame.startswith(b"begin ") and b"QueryTask" in frame:
            ended.wait(60)
        return host.answer(frame)

    forever = threading.Thread(target=here.dial, args=("west", answer, ended))
    forever.start()
    with here.serving("east", "north"):
        began = time.monotonic()
        trained(tmp_path / "apart", *here.words, "engine.timeout=1")
        took = time.monotonic() - began
        ended.set()
    forever.join()
    host.close()
    assert took < 30
    lost = Status.read(tmp_path / "apart").lost_parties
    assert lost["1"] == {"silo2": "no answer within engine.timeout=1 s"}
    assert [row["aborted"] for row in Tables(tmp_path / "apart").rows(TIMINGS)] == [""] * 3
