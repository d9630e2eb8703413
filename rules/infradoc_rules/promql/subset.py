"""What part of PromQL is evaluated here, as data: lint and export read it, the parser enforces it."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Subset:
    """Names of everything that is supported, by kind."""

    range_functions: frozenset[str]
    vector_functions: frozenset[str]
    label_functions: frozenset[str]
    other_functions: frozenset[str]
    aggregations: frozenset[str]
    arithmetic: frozenset[str]
    comparisons: frozenset[str]
    set_operators: frozenset[str]
    matchers: frozenset[str]
    modifiers: frozenset[str]

    @property
    def functions(self) -> frozenset[str]:
        """All functions, without aggregations."""
        return self.range_functions | self.vector_functions | self.label_functions | self.other_functions

    @property
    def operators(self) -> frozenset[str]:
        """All binary operators."""
        return self.arithmetic | self.comparisons | self.set_operators

    def names(self) -> frozenset[str]:
        """Everything in one set."""
        return frozenset().union(*(getattr(self, field.name) for field in fields(self)))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SUBSET = Subset(
    range_functions=_words(
        "rate increase delta irate idelta resets changes deriv avg_over_time min_over_time max_over_time"
        " sum_over_time count_over_time last_over_time present_over_time absent_over_time quantile_over_time"
        " stddev_over_time stdvar_over_time"
    ),
    vector_functions=_words(
        "abs ceil floor round sqrt exp ln log2 log10 clamp clamp_min clamp_max sgn timestamp sort sort_desc absent"
        " histogram_quantile scalar"
    ),
    label_functions=_words("label_replace label_join"),
    other_functions=_words("time vector"),
    aggregations=_words("sum avg min max count group stddev stdvar topk bottomk quantile count_values"),
    arithmetic=_words("+ - * / % ^"),
    comparisons=_words("== != > < >= <="),
    set_operators=_words("and or unless"),
    matchers=_words("= != =~ !~"),
    modifiers=_words("offset bool by without on ignoring group_left group_right"),
)
