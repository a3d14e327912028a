from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from small_data import write_heart

from fedpriv.data.files import locate
from fedpriv.data.heart_disease import FILES, HeartDisease, read_centre
from fedpriv.errors import DataError
from fedpriv.util.streams import Streams


def flamby(root):
    """Independent oracle: the steps of FLamby's FedHeartDisease, from its documentation, in its own
    tools.

    Returns training and test (features, labels) of each centre.
    """
    import pandas as pd
    import torch
    from sklearn.model_selection import train_test_split

    frames = []
    for name in ("cleveland", "hungarian", "switzerland", "va"):
        frame = pd.read_csv(
            Path(root) / "heart_disease" / f"processed.{name}.data", header=None, na_values="?"
        )
        frames.append(frame.drop(columns=[10, 11, 12]).dropna().assign(centre=name))
    pooled = pd.concat(frames, ignore_index=True)
    features = pd.get_dummies(
        pooled.drop(columns=[13, "centre"]).astype(float), columns=[2, 6], drop_first=True
    )
    labels = (pooled[13] > 0).astype(float)
    out = []
    for name in ("cleveland", "hungarian", "switzerland", "va"):
        rows = np.flatnonzero(pooled["centre"] == name)
        y = labels.to_numpy()[rows]
        strata = (
            y if min((y == 0).sum(), (y == 1).sum()) > 2 else None
        )  # one healthy patient in Switzerland
        train, test = train_test_split(
            rows, train_size=0.66, test_size=0.34, random_state=43, stratify=strata
        )
        x = torch.tensor(features.to_numpy(np.float32))
        mean, std = x[train].mean(0), x[train].std(0)
        out.append(
            [((x[part] - mean) / (std + 1e-9), labels.to_numpy()[part]) for part in (train, test)]
        )
    return out


def by_row(*columns):
    table = np.column_stack(columns)
    return table[np.lexsort(np.round(table, 3).T)]


def test_a_pooled_test_is_scaled_by_the_training_records_of_all_centres(small_root):
    """As FLamby's `pooled=True`: one mean and deviation for all."""
    own, pooled = (HeartDisease(small_root, pooled_test=value) for value in (False, True))
    apart, together = own.load(Streams(0)), pooled.load(Streams(0))
    np.testing.assert_array_equal(apart.train.x, together.train.x)
    np.testing.assert_array_equal(apart.test.y, together.test.y)
    centres = [read_centre(locate(file, small_root)) for file in FILES.values()]
    train, test = (np.concatenate([x for x, _ in part]) for part in zip(*centres))
    expected = (test - train.mean(0)) / (train.std(0, ddof=1) + 1e-9)
    varies = train.std(0) > 0
    np.testing.assert_allclose(
        together.test.x[:, varies], expected[:, varies], rtol=1e-4, atol=1e-5
    )
    assert np.abs(together.test.x - apart.test.x).max() > 0.1


@pytest.mark.parametrize("which", ["small", "real"])
def test_equals_flambys_steps(which, request):
    root = request.getfixturevalue(f"{which}_root")
    corpus = HeartDisease(root).load(Streams(0))
    expected = flamby(root)
    for silo, ((x, y), _) in enumerate(expected):
        mine = corpus.train.silo == silo
        varying = x.numpy().std(axis=0) > 0  # FLamby divides a constant column by 1e-9
        ours = by_row(corpus.train.x[mine][:, varying], corpus.train.y[mine])
        np.testing.assert_allclose(ours, by_row(x[:, varying], y), atol=1e-4)
        assert (corpus.train.x[mine][:, ~varying] == 0).all()
    assert len(corpus.test) == sum(len(y) for _, (_, y) in expected)
    assert corpus.test.y.sum() == sum(y.sum() for _, (_, y) in expected)


def test_real_sizes(real_root):
    """Training sizes of FLamby and of the Uldp-FL experiments: 199, 172, 30, 85."""
    corpus = HeartDisease(real_root).load(Streams(0))
    assert np.bincount(corpus.train.silo).tolist() == [199, 172, 30, 85]
    assert len(corpus.test) == 303 + 261 + 46 + 130 - 486
    assert np.isfinite(corpus.test.x).all()
    assert np.abs(corpus.test.x).max() < 50


@pytest.mark.parametrize(
    ("cell", "value", "message"),
    [
        ((4, 0), "old", "line 5, column age: old is not a finite number"),
        ((4, 2), "7", "line 5, column cp: 7; allowed: 1, 2, 3, 4"),
        ((0, 6), "1.5", "line 1, column restecg: 1.5; allowed: 0, 1, 2"),
        ((0, 1), "0.5", "line 1, column sex: 0.5; allowed: 0, 1"),
        ((0, 13), "1e39", "line 1, column num: 1e+39 is not a finite number of a sensible size"),
        ((0, 13), "5", "line 1, column num: 5; allowed: 0, 1, 2, 3, 4"),
        ((0, 3), "1e8", "line 1, column trestbps: 1e+08; allowed: 0 to 400"),
        ((0, 0), "-4", "line 1, column age: -4; allowed: 0 to 130"),
    ],
)
def test_a_bad_cell_is_one_line(tmp_path, cell, value, message):
    """Some are finite, and would take a whole column or label away."""
    write_heart(tmp_path)
    path = tmp_path / "processed.va.data"
    rows = [line.split(",") for line in path.read_text().splitlines()]
    rows[cell[0]][cell[1]] = value
    path.write_text("\n".join(",".join(row) for row in rows))
    refused(lambda: HeartDisease(str(tmp_path)).load(Streams(0)), f"{path}: {message}")


def test_too_few_complete_rows(tmp_path):
    write_heart(tmp_path)
    (tmp_path / "processed.va.data").write_text(
        "1,1,1,1,1,1,1,1,1,1,?,?,?,0\n" + "1,1,1,?,1,1,1,1,1,1,?,?,?,0\n" * 9
    )
    with pytest.raises(DataError, match="1 complete rows, too few to split"):
        HeartDisease(str(tmp_path)).load(Streams(0))
