"""Organisations that hold their own records give the model that one process with all of them
does."""

import socket

import pytest

from fedpriv.cli import main
from sites.study import Federation

pytest.importorskip("grpc")


def free_port():
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def trained(folder, *words):
    main([*words, f"hydra.run.dir={folder}"])
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("aggregation", ["plain", "secagg"])
def test_sites_train_the_model_of_one_process(tmp_path, aggregation):
    here = Federation(tmp_path, (f"aggregation={aggregation}",), port=free_port())
    with here.serving("east", "north", "west"):
        apart = trained(tmp_path / "apart", *here.words)
    [*words] = here.site("east").published().words
    whole = trained(tmp_path / "whole", *words, f"data.path={tmp_path}/all.csv", "quiet=true")
    assert apart == whole
