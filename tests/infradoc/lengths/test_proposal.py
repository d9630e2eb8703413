"""From the P99 to a max_model_len, its price and its gain."""

from __future__ import annotations

from infradoc.lengths.measured import Measured
from infradoc.lengths.proposal import Limits, propose
from infradoc_rules.versions import Running


def measured(*totals: int) -> Measured:
    found = Measured("rows")
    for total in totals:
        found.add(total - 1, 1)
    return found


def test_whole_blocks_over_the_p99_with_the_concurrency_on_both_sides():
    found = measured(*[100] * 98, 130, 130, 900)
    limits = Limits("vllm", max_model_len=8192, pool_tokens=16384, block_size=16)
    made = propose(found, limits)
    assert made is not None
    assert (made.tokens, made.change, made.above, made.longest) == (144, "decrease", 1, 900)
    assert (made.concurrency_before, made.concurrency_after) == (2.0, 16384 / 144)
    assert made.flag == "--max-model-len 144"


def test_the_batch_limit_bounds_the_gain():
    made = propose(measured(*[100] * 100), Limits("infradoc", 2048, max_num_seqs=8, pool_tokens=16384, block_size=16))
    assert made is not None and made.concurrency_after == 8.0


def test_a_limit_below_the_p99_goes_up_and_one_that_fits_stays():
    found = measured(*[1000] * 100)
    up, keep, blind = (propose(found, Limits("sglang", length)) for length in (512, 1008, None))
    assert up is not None and keep is not None and blind is not None
    assert (up.change, keep.change, blind.change) == ("increase", "keep", "set")
    assert up.flag == "--context-length 1008"
    assert up.concurrency_after is None


def test_too_few_requests_give_no_proposal():
    assert propose(measured(*[100] * 99), Limits()) is None


def test_llamacpp_gets_the_context_of_all_slots():
    found = measured(*[1000] * 100)
    made = propose(found, Limits("llamacpp", 8192, max_num_seqs=4))
    assert made is not None and made.flag == "--parallel 4 --ctx-size 4032"


def test_the_flag_is_one_that_the_running_version_has():
    """TGI took --max-total-tokens from 0.3.2 on."""
    found = measured(*[1000] * 100)
    old, new = (propose(found, Limits("tgi", 512, running=Running("tgi", version))) for version in ("0.3.1", "3.0.0"))
    assert old is not None and new is not None
    assert (old.flag, new.flag) == (None, "--max-total-tokens 1008")
