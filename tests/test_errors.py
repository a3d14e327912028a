"""Errors that cross processes."""

import pickle

import pytest

from fedpriv import errors
from fedpriv.errors import ConfigError, FedprivError, SilenceError


def subclasses(cls: type) -> list[type]:
    return [cls, *(found for below in cls.__subclasses__() for found in subclasses(below))]


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("rounds", lambda: None, "a positive number"),
        SilenceError("nothing came", ["silo1"]),
        *(
            cls("one line")
            for cls in subclasses(FedprivError)
            if cls.__module__ == errors.__name__ and cls is not ConfigError
        ),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_from_another_process_keeps_its_type_text_and_fields(error: FedprivError) -> None:
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)
