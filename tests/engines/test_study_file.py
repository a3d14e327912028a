"""The file of a study: what its organisations read before they agree."""

import pytest
import yaml
from refusals import refused

from fedpriv.engines.study import Study

GOOD = {
    "study": "fedpriv study 1",
    "settings": ["algo=uldp_avg", "data.schema=schema.yaml"],
    "users": {"east": 3, "west": 4},
}


def study(folder, **changes):
    (folder / "schema.yaml").write_text("a schema")
    (folder / "study.yaml").write_text(yaml.safe_dump(GOOD | changes))
    return Study.read(folder / "study.yaml")


def test_a_study_is_read(tmp_path):
    read = study(tmp_path)
    assert read.words == (*GOOD["settings"], f'data.root="{tmp_path}"')
    assert (read.users, read.records) == (GOOD["users"], {})
    assert [read.first_user(silo) for silo in range(3)] == [0, 3, 7]
    assert read.digest != study(tmp_path, records={"east": 30, "west": 40}).digest


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"study": "fedpriv study 2"}, "its key study is not 'fedpriv study 1'"),
        ({"setings": []}, "unknown key setings"),
        ({"settings": None}, "settings: not a list of words such as algo=uldp_avg"),
        ({"settings": "algo=uldp_avg"}, "settings: not a list of words such as algo=uldp_avg"),
        ({"settings": ["algo=uldp_avg", 3]}, "settings: not a list of words such as algo="),
        ({"settings": ["algo=uldp_avg"]}, "settings: data.schema=<file> is missing"),
        ({"settings": ["data.schema=none.yaml"]}, "none.yaml: not a readable study: No such file"),
        ({"users": {"east": 0}}, "users: not a number from 1 to 1000000 for each silo"),
        ({"users": {"east": 10**6 + 1}}, "users: not a number from 1 to 1000000 for each silo"),
        ({"users": {1: 3}}, "not a readable study: it has the key 1, which is no text"),
        ({"records": {"east": 2.5}}, "records: not a number from 1 to 1000000 for each silo"),
    ],
)
def test_what_is_no_study_is_one_line(tmp_path, changes, why):
    refused(lambda: study(tmp_path, **changes), why)
