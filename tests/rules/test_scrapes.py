import pytest

from infradoc_rules.model import Event
from infradoc_rules.summaries.scrapes import summary


def page(source, **fields):
    return Event("metrics_page", 0, {"generated": 2_201_877.0, "prompted": 9_120_344.0, **fields}, source=source)


def found(*pages):
    return {fact.name: fact.value for fact in summary(pages, {}, "vllm")}


def test_more_wait_and_nothing_was_done():
    pages = page("a:1", running=12.0, waiting=9.0), page("b:1", running=12.0, waiting=15.0)
    assert found(*pages) == {"serving.still_pages": 2}


@pytest.mark.parametrize(
    "second",
    [
        page("b:1", running=12.0, waiting=9.0),  # the same page twice
        page("b:1", running=12.0, waiting=15.0, generated=2_201_900.0),  # work was done
        page("b:1", running=0.0, waiting=15.0),  # nothing runs
        page("a:1", running=12.0, waiting=15.0),  # one file
    ],
)
def test_pages_that_tell_nothing(second):
    assert found(page("a:1", running=12.0, waiting=9.0), second) == {}
