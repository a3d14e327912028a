"""What `python -m scripts.size` counts."""

import pytest

from scripts.size import statements, words


@pytest.mark.parametrize(
    ("text", "number"),
    [("One, two.", 2), ("| a | `b=1` | 3 % |\n| --- | :-: | --- |", 3), ("# Über — x", 2), ("", 0)],
)
def test_signs_alone_are_no_words(text, number):
    assert words(text) == number


def test_docstrings_are_no_statements():
    assert statements('"""Text."""\ndef f():\n    """Text."""\n    return 1\n') == 2
