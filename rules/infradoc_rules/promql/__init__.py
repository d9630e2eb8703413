"""A stated subset of PromQL, evaluated in process with the results of Prometheus 2.42.

Supported (the same as data: `SUBSET`):
- selectors of one named metric, instant and range, with `=`, `!=`, `=~`, `!~` (RE2, anchored) and `offset` of either
  sign; lookback 300 s; a range holds both its ends; stale markers end a series;
- numbers, `+ - * / % ^`, unary minus, `== != > < >= <=` with and without `bool`, `and or unless`, `on`, `ignoring`,
  `group_left` and `group_right` with labels to copy;
- `sum avg min max count group stddev stdvar topk bottomk quantile count_values` with `by` or `without`;
- `rate increase delta irate idelta resets changes deriv`, `avg min max sum count last present absent quantile stddev
  stdvar` `_over_time`, `histogram_quantile` (classic buckets), `absent scalar vector time timestamp abs ceil floor
  round sqrt exp ln log2 log10 clamp clamp_min clamp_max sgn label_replace label_join sort sort_desc`.

Outside: subqueries, `@`, selectors without a name or with a pattern for it, native histograms, strings and range
vectors as results. `$name` in a text stands for a number, or for a duration inside `[...]` and after `offset`.

`parse` makes an `Expr` (cached), `evaluate` gives its value at one time; every error is a `PromqlError`.
"""

from __future__ import annotations

from infradoc_rules.promql.errors import PromqlError
from infradoc_rules.promql.evaluate import Element, Result, evaluate
from infradoc_rules.promql.parse import Expr, needed_names, parse
from infradoc_rules.promql.selectors import STALE_NAN, Selectable, is_stale
from infradoc_rules.promql.subset import SUBSET, Subset
from infradoc_rules.promql.tokens import fill_in, format_duration, variables_in

__all__ = [
    "STALE_NAN",
    "SUBSET",
    "Element",
    "Expr",
    "PromqlError",
    "Result",
    "Selectable",
    "Subset",
    "evaluate",
    "fill_in",
    "format_duration",
    "is_stale",
    "needed_names",
    "parse",
    "variables_in",
]
