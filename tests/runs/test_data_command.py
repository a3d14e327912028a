"""`fedpriv data` says each thing once."""

import re

from command import success

from fedpriv.projects.patients import csv_text


def test_no_sentence_is_repeated(tmp_path):
    (tmp_path / "visits.csv").write_text(csv_text(patients=60))
    words = ["data.path=visits.csv", "data.label=died", "data.user=patient", "data.silo=hospital"]
    done = success("data", "data=table", *words, "data.missing=fill", cwd=tmp_path)
    parts = [
        part.strip()
        for line in done.stdout.splitlines()
        for part in re.split(r"; |: ", line.partition(": ")[2])
        if len(part) > 40
    ]
    assert len(parts) > 8
    assert sorted(parts) == sorted(set(parts))
    assert "no epsilon covers how the file is read: see not covered" in done.stdout
