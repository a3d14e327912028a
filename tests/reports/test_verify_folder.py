"""A folder in the place of a report."""

from pathlib import Path

import pytest

from fedpriv.errors import FedprivError
from fedpriv.reports.assessment.verify import verify


def test_a_folder_is_refused_with_the_name_of_the_report_in_it(tmp_path: Path) -> None:
    with pytest.raises(FedprivError, match=r"is a folder; name the report in it, .*report\.html"):
        verify(tmp_path)
