"""Costs of a table's bytes and of Firn's work, by the prices ``firn.cost.*`` or ``FIRN_COST_*``."""

import os
from typing import Final

from pipeline.errors import RefusedError
from pipeline.policy import Policy
from pipeline.status.document import LaneWork, Money, Space

GB: Final = 10**9
_HOUR_MS: Final = 3_600_000


def money_of(policy: Policy, space: Space, work: LaneWork) -> Money | None:
    """The costs of a table with this ``policy``; None when no price is set, or prices are 0.

    Raises RefusedError for a price in the environment that is not a number of 0 or more.
    """
    gb_month = _price(policy.cost_per_gb_month, "FIRN_COST_PER_GB_MONTH")
    core_hour = _price(policy.cost_per_core_hour, "FIRN_COST_PER_CORE_HOUR")
    if not gb_month and not core_hour:
        return None

    def stored(size: int) -> float | None:
        return size / GB * gb_month if gb_month else None

    return Money(
        main_per_month=stored(space.main_bytes + space.side_bytes),
        history_per_month=stored(space.history_bytes),
        expirable_per_month=stored(space.expirable_bytes),
        saved_per_month=stored(work.saved_bytes),
        spent=work.core_ms / _HOUR_MS * core_hour if core_hour else None,
    )


def shown(amount: float) -> str:
    """An amount with two decimals: ``1,234.50``; a smaller one as ``< 0.01``."""
    return "< 0.01" if 0 < amount < 0.01 else f"{amount:,.2f}"  # the smallest that two decimals show


def _price(own: float, setting: str) -> float:
    """The table's ``own`` price, else the one in the environment; 0 without either."""
    text = os.environ.get(setting, "")
    if own or not text:
        return own
    try:
        price = float(text)
    except ValueError:
        price = -1.0
    if not 0 <= price < float("inf"):
        raise RefusedError(f"{setting} is {text!r}; allowed: a price, 0 or more")
    return price
