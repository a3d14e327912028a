import sys

import pytest

from fedpriv.aggregation.private_weighting.settings import require_extra
from fedpriv.errors import ConfigError


def test_without_the_extra_one_line_says_what_to_install(monkeypatch):
    require_extra()
    monkeypatch.setitem(sys.modules, "phe", None)
    with pytest.raises(
        ConfigError,
        match=r"^aggregation=private_weighting: needs gmpy2 and phe: pip install 'fedpriv\[",
    ):
        require_extra()
