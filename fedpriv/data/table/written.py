"""Numbers and dates as programs write them. Each text is read alone: no other cell changes it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

import numpy as np

from fedpriv.util.plain_numbers import plain_number

POINT, COMMA = DECIMALS = (".", ",")
LARGEST = 1e12
"""Largest accepted size of a number."""
GROUPED = {
    sign: re.compile(rf"[-+]?[1-9]\d{{0,2}}([{other}\s'’])\d{{3}}(?:\1\d{{3}})*(?:[{sign}]\d+)?")
    for sign, other in (DECIMALS, DECIMALS[::-1])
}
"""A number with a sign between thousands, by its sign before decimals."""
CURRENCY = re.compile(r"^([-+]?)\s*[$€£¥]\s*|\s*[$€£¥]$")
ISO = "ISO8601"
DAY_FIRST, MONTH_FIRST = ("%d/%m/%Y", "%d-%m-%Y"), ("%m/%d/%Y", "%m-%d-%Y")
NAMED_MONTHS = ("%d%b%Y", "%d-%b-%Y", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y")
DATES = (ISO, "%d.%m.%Y", *DAY_FIRST, *MONTH_FIRST, *NAMED_MONTHS, "%Y/%m/%d", "%d-%b-%y")
TIMES = ("", " %H:%M", " %H:%M:%S")


def number_of(text: str, decimal: str = POINT) -> float:
    """The number that a text writes, NaN if it writes none. Thousands may be apart by the other
    sign, a space or an apostrophe; a currency does not count, and 5% is 0.05.

    >>> number_of("1,101"), number_of("1,101", ","), number_of("-$1 234.50"), number_of("1,5")
    (1101.0, 1.101, -1234.5, nan)
    """
    if decimal == POINT or POINT not in text:
        try:
            return plain_number(text.replace(decimal, POINT))
        except ValueError:
            pass
    plain = CURRENCY.sub(r"\1", text)
    whole = plain.removesuffix("%").rstrip()
    if grouped := GROUPED[decimal].fullmatch(whole):
        whole = whole.replace(grouped[1], "")
    elif (decimal == COMMA and POINT in whole) or whole == text:
        return np.nan
    number = number_of(whole, decimal) if whole else np.nan
    return number / 100 if plain.endswith("%") else number


def days_of(texts: Sequence[str], form: str) -> np.ndarray:
    """Days from 1970 to each date, (n,) float64, NaN for a text of another form.

    form: as `strptime` takes it, or `ISO`.
    """
    import pandas as pd

    found = pd.to_datetime(pd.Series(texts, dtype=object), format=form, errors="coerce", utc=True)
    known = found.dt.as_unit("us")  # of every text, whichever others the column has
    return ((known - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)).to_numpy(np.float64)


def example_of(form: str) -> str:
    """A date as a person writes it in a form.

    >>> example_of(ISO), example_of("%d.%m.%Y")
    ('2020-12-31', '31.12.2020')
    """
    return date(2020, 12, 31).strftime("%Y-%m-%d" if form == ISO else form)


def forms_of(texts: Sequence[str]) -> list[str]:
    """The forms in which most of the texts are dates, if half of them are or more."""
    if not any(sign.isdigit() for sign in texts[0]):
        return []
    forms = [f"{date}{time if date != ISO else ''}" for date in DATES for time in TIMES]
    few = texts[:: max(1, len(texts) // 8)]
    likely = [one for one in dict.fromkeys(forms) if not np.isnan(days_of(few, one)).all()]
    read = {one: int((~np.isnan(days_of(texts, one))).sum()) for one in likely}
    most = max([*read.values(), 1])
    return [one for one, number in read.items() if number == most and 2 * number >= len(texts)]
