"""The stated subset is what is there."""

from __future__ import annotations

import infradoc_rules.promql as promql
from infradoc_rules.promql.aggregate import _REDUCE
from infradoc_rules.promql.binary import ARITHMETIC, COMPARISON
from infradoc_rules.promql.range_functions import RANGE_FUNCTIONS
from infradoc_rules.promql.subset import SUBSET


def test_tables_hold_every_name() -> None:
    assert SUBSET.range_functions == RANGE_FUNCTIONS.keys() | {"absent_over_time"}
    assert SUBSET.aggregations == _REDUCE.keys() | {"topk", "bottomk", "quantile", "count_values"}
    assert SUBSET.arithmetic == ARITHMETIC.keys()
    assert SUBSET.comparisons == COMPARISON.keys()


def test_the_documentation_names_every_part() -> None:
    words = (promql.__doc__ or "").replace("`", " ").replace(",", " ").replace(";", " ").split()
    missing = {name for name in SUBSET.names() if name.removesuffix("_over_time") not in words}
    assert not missing
