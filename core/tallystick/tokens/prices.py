"""Prices of models: a dated table of a user's own first, then the one of the package genai-prices.

Prices are per million tokens. A call costs the sum over its input (apart from what the cache read
and wrote), its output, and what the cache read and wrote; an unknown model or an unknown count
costs "unknown", never zero.
"""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

from tallystick.errors import SettingsError
from tallystick.records import ModelCost

_MILLION = Decimal(1_000_000)
_COLUMNS = ("input", "output", "cache_read", "cache_write")


@dataclass(frozen=True)
class PriceTable:
    """Prices per million tokens by model, as one file states them."""

    dated: str
    currency: str
    models: Mapping[str, Mapping[str, Decimal]]
    """`provider:model`, or a model of any provider, to its `input`, `output`, `cache_read` and
    `cache_write`. Without a price of its own a cache costs what input costs.
    """

    @classmethod
    def read(cls, path: Path) -> PriceTable:
        """Return the table in a TOML file: `dated`, `currency`, and a table of `models`.

        Raises SettingsError naming what does not fit.
        """
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"prices: {path} is not TOML: {error}.") from error
        except OSError as error:
            raise SettingsError(f"prices: {path} cannot be read: {error.strerror}.") from error
        dated, currency = table.pop("dated", None), table.pop("currency", "USD")
        models = table.pop("models", None)
        if table or dated is None or not isinstance(currency, str) or not isinstance(models, dict):
            raise SettingsError(
                f'prices: {path} needs `dated = "2026-11-01"` and a table of `models`; `currency` '
                "may be given."
            )
        return cls(
            str(dated), currency, {name: _row(path, name, row) for name, row in models.items()}
        )

    def cost(self, provider: str, model: str, usage: Mapping[str, int]) -> ModelCost | None:
        """Return the cost of a call, or None for a model that is not in the table."""
        row = self.models.get(f"{provider}:{model}") or self.models.get(model)
        if row is None:
            return None
        tokens = {"cache_read": usage.get("cache_read_tokens", 0)}
        tokens["cache_write"] = usage.get("cache_write_tokens", 0)
        tokens["input"] = usage["input_tokens"] - sum(tokens.values())
        tokens["output"] = usage["output_tokens"]
        amount = sum(
            (count * row.get(column, row["input"]) for column, count in tokens.items()), Decimal(0)
        )
        return ModelCost(
            amount=_format_amount(amount / _MILLION),
            currency=self.currency,
            prices=f"own {self.dated}",
        )


def cost_of(
    provider: str, models: Sequence[str], usage: Mapping[str, int], *, table: PriceTable | None
) -> ModelCost:
    """Return what a call costs, by `table` or else by genai-prices, if that is installed; `models`
    are the names of the model, of which the first that a table has counts.
    """
    if not {"input_tokens", "output_tokens"} <= usage.keys():
        return ModelCost()
    of_own = [] if table is None else [table.cost(provider, model, usage) for model in models]
    published = (_published_price(provider, model, usage) for model in models)
    return next((cost for cost in chain(of_own, published) if cost is not None), ModelCost())


def _row(path: Path, name: str, row: Any) -> Mapping[str, Decimal]:
    if not isinstance(row, dict) or not {"input", "output"} <= row.keys() <= set(_COLUMNS):
        raise SettingsError(
            f"prices: {name} in {path} needs `input` and `output`, and may have `cache_read` and "
            "`cache_write`."
        )
    if not all(type(price) in (int, Decimal) and price >= 0 for price in row.values()):
        raise SettingsError(f"prices: {name} in {path}: a price is a number that is not negative.")
    return {column: Decimal(price) for column, price in row.items()}


def _published_price(provider: str, model: str, usage: Mapping[str, int]) -> ModelCost | None:
    if importlib.util.find_spec("genai_prices") is None:
        return None
    from genai_prices import Usage, calc_price

    try:
        price = calc_price(
            Usage(
                input_tokens=usage["input_tokens"],
                output_tokens=usage["output_tokens"],
                cache_read_tokens=usage.get("cache_read_tokens", 0),
                cache_write_tokens=usage.get("cache_write_tokens", 0),
            ),
            model,
            provider_id=provider,
        )
    except LookupError:
        return None
    return ModelCost(amount=_format_amount(Decimal(price.total_price)), prices=_published_table())


@lru_cache(maxsize=1)
def _published_table() -> str:
    return f"genai-prices {version('genai-prices')}"


def _format_amount(amount: Decimal) -> str:
    """Return an amount without an exponent and without zeros at its end."""
    text = f"{amount:.9f}".rstrip("0")
    return text + "00" if text.endswith(".") else text
