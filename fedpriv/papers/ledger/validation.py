"""Validation records: a part of the training records on which settings are chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedpriv.data.base import Corpus, DataSet, with_corpus
from fedpriv.data.split import share
from fedpriv.util.streams import Streams

HELD_OUT = 0.2
"""Share of the training records."""


def with_validation_records(data: DataSet) -> DataSet:
    """The same data set, with a fifth of its training records in place of its test records."""
    return with_corpus(data, _held_out)


def _held_out(corpus: Corpus, streams: Streams) -> Corpus:
    records = corpus.train
    order = streams.generator("validation records").permutation(len(records))
    held_out, train = map(np.sort, np.split(order, [share(len(records), HELD_OUT)]))
    return replace(corpus, train=records.select(train), test=records.select(held_out))
