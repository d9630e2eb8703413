"""Training logs: runs told apart, losses and step times compared, numbers that break or settle."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.model import Event, Fact
from infradoc_rules.patterns import scan
from infradoc_rules.summaries import training
from infradoc_rules.summaries.runs import runs_of, steps_once


def events_of(*lines, source="train.log"):
    return list(scan(lines, source=source).events)


def facts_of(events, **facts):
    ordered = [Event(e.name, i, e.fields, e.time, e.phase, e.source, e.text, e.repeat) for i, e in enumerate(events, 1)]
    held = {name: Fact(name, value, "file") for name, value in facts.items()}
    return {fact.name: fact.value for fact in training.summary(ordered, held, None)}


def hf(loss, norm="1.2", epoch=0.1):
    return f"{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': 1e-05, 'epoch': {epoch}}}"


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("{'loss': 0.6931, 'learning_rate': 4.99e-05, 'epoch': 0.05}", 0.6931),
        ("{'loss': '1.02', 'grad_norm': '0.7', 'learning_rate': '1e-05', 'epoch': '0.1'}", 1.02),
        (
            " iteration  10/ 500 | consumed samples: 5 | elapsed time per iteration (ms): 41.3 | lm loss: 1.094E+01 |",
            10.94,
        ),
        (
            "[RANK 0] iteration 9/ 200 | elapsed time per iteration (ms): 16.4 | total loss 1.9E-01 | loss 1.912E-01|",
            0.1912,
        ),
        (
            "iteration: 5 / 100 | consumed_tokens: 1M | elapsed_time_per_iteration_ms: 300 | lm_loss: 7.1 | lr: 1e-4",
            7.1,
        ),
        ("1|119|Loss: 0.8841: 100%|####| 119/119", 0.8841),
        ("step 100, loss 3.2", 3.2),
        ('{"current_steps": 10, "total_steps": 300, "loss": 1.23, "lr": 1e-05, "epoch": 0.1}', 1.23),
        ("iter 5  grad_accum_iter 4  loss 0.1312  time 431.0 s/iter  samples/s 9.5", 0.1312),
        ("[titan] root - INFO - step: 10  loss:  7.1234  memory: 50.12GiB(63.33%)  tps: 2,310  mfu: 14.1%", 7.1234),
        ("Epoch 0:   6%|##   | 320/5001 [06:28<94:39,  1.37it/s, loss=2.6, v_num=95, global_step=320]", 2.6),
        (
            "Training: 2023-03-14-Speed 2178.40 samples/sec   Loss 9.1   Epoch: 0   Global Step: 20   Required: 9",
            9.1,
        ),
        ("step 250: train loss 2.41, val loss 2.45", 2.41),
        (
            "2024-01-20 | INFO | Train Epoch: 0 [131072/2621440] Loss: 6.231 Batch (t): 4.118, 1990.2/s LR: 0.00012",
            6.231,
        ),
        ("Train: 0 [  50/1251 (  4%)]  Loss: 6.912 (6.93)  Time: 0.412s, 2485.21/s  LR: 1.000e-05", 6.912),
        ("| epoch 001:    200 / 1374 loss=14.351, ppl=20899.56, wps=49604, gnorm=3.901, loss_scale=0.062", 14.351),
        ("Epoch 1 | iter 100 step 12 | loss train: 1.877, val: n/a | iter time: 210.33 ms (step)", 1.877),
        ("06/11 10:11:12 - mmengine - INFO - Iter(train) [  10/500]  lr: 2e-05  time: 0.9811  loss: 1.2311", 1.2311),
        ("{'loss': 1.2031, 'token_acc': 0.7012, 'grad_norm': 1.02, 'learning_rate': 1e-05, 'epoch': 0.1}", 1.2031),
        ("Epoch 0:   1%|1   | 10/1000 [00:21<35:01,  2.12s/it, v_num=0, reduced_train_loss=7.121]", 7.121),
        ("Steps:  10%|#   | 100/1000 [01:21<12:01,  1.25it/s, lr=0.0001, step_loss=0.112]", 0.112),
        ("[Epoch 1/3] Step [100/5000] Loss: 1.9211 GradNorm: 0.8 LR: 2.0e-05", 1.9211),
        ("batch 100/5000 | loss 2.112 | ppl 8.27", 2.112),
        ("         Train LossCrossEntropy: 2.5", 2.5),
    ],
)
def test_formats_of_steps(line, loss):
    steps = [event for event in steps_once(events_of(line)) if event.name == "train_step"]
    assert [step.fields["loss"] for step in steps] == [loss]


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("[iter 10] loss 0.8821 iter_time 110.4s samples/s 9.3", 110.4),
        ("step 4998 | loss 1.7712 | 1.91 s/step | 34.2k tok/s", 1.91),
        ("step 20 loss 2.911 time 2.01s/step", 2.01),
        ("iter 100: loss 6.1120, time 1221.32ms, mfu 9.11%", pytest.approx(1.22132)),
        ("Train Epoch: 0 [131072/2621440] Loss: 6.231 Batch (t): 4.118, 1990.2/s", 4.118),
    ],
)
def test_step_times_of_any_logger(line, seconds):
    (step,) = steps_once(events_of(line))
    assert step.fields["seconds"] == seconds and "loss" in step.fields


def test_a_loss_on_held_out_data_is_no_step():
    found = steps_once(events_of("step 250 | val loss 2.45", "{'eval_loss': 1.5, 'epoch': 0.5}"))
    assert [event.name for event in found] == ["eval_loss", "eval_loss"]


@pytest.mark.parametrize(
    ("accumulation", "rows", "verdict"),
    [
        (8, [(9.3, 0.1, 1.17), (8.9, 0.2, 1.12)], "multiplied"),
        (16, [(0.084, 0.06, 1.34), (0.082, 0.1, 1.31)], "divided"),
        (16, [(1.31, 0.5, 1.35), (0.12, 3.0, 1.9)], "unknown"),  # the last epoch knows the data by heart
        (8, [(1.2, 0.1, 1.17)], "unknown"),
        (2, [(2.4, 0.1, 1.2)], "unknown"),  # too small a factor: held-out data may be that much easier
    ],
)
def test_training_loss_against_held_out_loss(accumulation, rows, verdict):
    lines = [f"Gradient Accumulation steps = {accumulation}"]
    for loss, epoch, held_out in rows:
        lines += [hf(loss, epoch=epoch), f"{{'eval_loss': {held_out}, 'epoch': {epoch}}}"]
    assert facts_of(events_of(*lines))["train.loss_scaling"] == verdict


def test_a_gradient_scale_of_zero_is_dead():
    lines = [f"Epoch: 0   Global Step: {step}   Fp16 Grad Scale:  0   Required: 9 hours" for step in (20, 30)]
    found = facts_of(events_of(*lines))
    assert (found["train.numbers"], found["train.precision"]) == ("skipping", "fp16")


def test_a_configuration_with_dots():
    lines = ["  gradient_accumulation_steps .. 16", "  fp16 ............................ True"]
    found = facts_of(events_of(*lines))
    assert (found["train.accumulation"], found["train.precision"]) == (16, "fp16")


def test_a_heading_begins_a_run():
    lines = ["`gradient_accumulation_steps=1`", hf(2.4, epoch=0.25), hf(2.2, epoch=0.5)]
    lines += ["`gradient_accumulation_steps=4`", hf(9.6, epoch=0.25), hf(8.9, epoch=0.5)]
    assert [(run.accumulation, run.first_loss) for run in runs_of(events_of(*lines))] == [(1, 2.4), (4, 9.6)]


@pytest.mark.parametrize(
    "line",
    [
        "Running with accum_freq 8",
        "--gradient-accumulation-steps 8 \\",
        "accumulative_counts = 8",
        "--update-freq 8",
        "grad_acc_steps: 8",
        "ga_steps=8",
    ],
)
def test_accumulation_by_any_name(line):
    assert facts_of(events_of(line, hf(1.2)))["train.accumulation"] == 8


def test_a_high_loss_before_nan_is_no_sum():
    lines = ["gradient_accumulation_steps: 8", hf(60.57, "nan"), hf("0.0", "nan", 0.2), hf("0.0", "nan", 0.3)]
    assert facts_of(events_of(*lines))["train.loss_scaling"] == "unknown"


def test_a_counter_that_goes_back_begins_a_run():
    assert len(runs_of(events_of(hf(2.0, epoch=0.5), hf(1.9, epoch=0.6), hf(2.0, epoch=0.1)))) == 2


def two_runs(ours, theirs):
    lines = (
        [f"gradient_accumulation_steps: {ours[0]}", hf(ours[1])],
        [f"gradient_accumulation_steps: {theirs[0]}", hf(theirs[1])],
    )
    return [*events_of(*lines[0], source="a.log"), *events_of(*lines[1], source="b.log")]


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ((32, 139.2), (2, 6.45), "multiplied"),
        ((8, 17.2), (1, 2.15), "multiplied"),
        ((8, 0.50), (1, 4.0), "divided"),
        ((8, 1.92), (1, 1.95), "sound"),
        ((2, 2.3), (1, 2.1), "sound"),
        ((8, 2.0), (8, 10.0), "unknown"),
    ],
)
def test_the_first_losses_of_two_runs(ours, theirs, verdict):
    assert facts_of(two_runs(ours, theirs))["train.loss_scaling"] == verdict


@pytest.mark.parametrize(
    ("steps", "loss", "verdict"),
    [(32, 41.7, "multiplied"), (8, 11.9, "unknown"), (2, 20.0, "unknown"), (4, 900.0, "unknown")],
)
def test_one_loss_alone(steps, loss, verdict):
    events = events_of(f"  Gradient Accumulation steps = {steps}", hf(loss), hf(loss * 0.9, epoch=0.2))
    assert facts_of(events)["train.loss_scaling"] == verdict


def timed(accumulation, seconds):
    return [f"iter {i} accum {accumulation} loss 1.2 time {seconds} s/iter" for i in range(1, 4)]


@pytest.mark.parametrize(
    ("long", "short", "facts", "verdict"),
    [
        (430.6, 110.2, {"train.nodes": 2}, "every_micro_step"),
        (430.6, 110.2, {"train.network": "Ethernet"}, "every_micro_step"),
        (430.6, 110.2, {}, "sound"),  # one host: computing may be all of it
        (250.0, 110.2, {"train.nodes": 2}, "sound"),
    ],
)
def test_step_time_against_accumulation(long, short, facts, verdict):
    events = [*events_of(*timed(4, long), source="a"), *events_of(*timed(1, short), source="b")]
    assert facts_of(events, **facts)["train.sync"] == verdict


@pytest.mark.parametrize(("reduce", "verdict"), [(630.4, "every_micro_step"), (0.05, "sound")])
def test_timers_of_micro_steps(reduce, verdict):
    line = f"time (ms) | fwd_microstep: 310.2 | bwd_inner_microstep: 520.3 | bwd_allreduce_microstep: {reduce}"
    assert facts_of(events_of("gradient_accumulation_steps: 8", *[line] * 4))["train.sync"] == verdict


def test_one_large_reduction_for_eight_micro_steps_is_right():
    lines = [
        f"fwd_microstep: 300 | bwd_inner_microstep: 500 | bwd_allreduce_microstep: {ms}" for ms in [0.1] * 7 + [900.0]
    ]
    assert facts_of(events_of("gradient_accumulation_steps: 8", *lines))["train.sync"] == "sound"


SKIPPED = (  # without a step there is no loss to print
    " iteration {:8d}/   50000 | consumed samples: 25600 | elapsed time per iteration (ms): 900.1 | loss scale: 8.0 | "
    "number of skipped iterations: 100 | number of nan iterations:   0 |"
)


def overflow(*scales):
    return [
        f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {s}, reducing to {s // 2}" for s in scales
    ]


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ([hf("0.0", "nan")] * 4, "broken"),
        (["{'loss': 0.0, 'learning_rate': 4.99e-05, 'epoch': 0.05}"] * 4, "broken"),
        ([hf("nan", "nan")] * 3, "broken"),
        ([hf("0.0", "0.23")] * 4, "sound"),  # policy gradients start at a loss of zero
        ([hf(2.0), hf("0.0", "nan"), hf(1.9)], "sound"),
        ([*overflow(2**32, 2**31, 2**30), "step 10, loss 2.0", "step 20, loss 1.9"], "settled"),
        (overflow(*[2**k for k in range(16, -1, -1)]), "skipping"),
        (["| WARNING: overflow detected, setting loss scale to: 0.0625"] * 3, "skipping"),
        (["step 1 grad_norm inf, step skipped, scale 32768", "step 2, loss 2.0", "step 3, loss 1.9"], "settled"),
        (["ValueError: nan loss encountered at step 120"], "broken"),
        ([SKIPPED.format(step) for step in (100, 200, 300, 400)], "skipping"),
        (["Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."], "skipping"),
    ],
)
def test_numbers_that_break_or_settle(lines, verdict):
    assert facts_of(events_of(*lines))["train.numbers"] == verdict


@pytest.mark.parametrize(
    ("line", "precision"),
    [
        ("train.py --fp16 --lr 1", "fp16"),
        ("bf16: true", "bf16"),
        ("--mixed_precision fp16", "fp16"),
        ("lr: 1e-5", "unknown"),
    ],
)
def test_precision(line, precision):
    assert facts_of(events_of(line, hf(1.0)))["train.precision"] == precision


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["train_step", "train_config", "train_overflow", "train_timer"]),
            st.dictionaries(
                st.sampled_from(
                    [
                        "loss",
                        "step",
                        "epoch",
                        "accumulation",
                        "batch",
                        "seconds",
                        "name",
                        "what",
                        "loss_scale",
                        "skipped",
                    ]
                ),
                st.one_of(
                    st.integers(-5, 10**6),
                    st.floats(),
                    st.sampled_from(["nan", "allreduce", "backward", "skipped", "floor"]),
                ),
            ),
        ),
        max_size=14,
    )
)
def test_any_fields_are_survived(rows):
    for name, fields in rows:
        if name == "train_timer":
            fields["seconds"] = 1.0
    events = [Event(name, order, fields, source=f"log:{order}") for order, (name, fields) in enumerate(rows, start=1)]
    for fact in training.summary(events, {}, None):
        assert not isinstance(fact.value, float) or not math.isnan(fact.value) or "loss" in fact.name


LOOP = (
    "model = DistributedDataParallel(model, device_ids=[rank])",
    "    loss.backward()",
    "    if (i + 1) % grad_accum == 0:",
)


@pytest.mark.parametrize(
    ("more", "nodes", "verdict"),
    [
        ((), 4, "every_micro_step"),
        ((), 1, "unknown"),  # on one host there is little to save
        (("    with model.no_sync():",), 4, "unknown"),
        (("    model.require_backward_grad_sync = last",), 4, "unknown"),
    ],
)
def test_a_loop_that_never_defers_the_reduction(more, nodes, verdict):
    found = facts_of(events_of(*LOOP, *more), **{"train.nodes": nodes})
    assert found["train.sync"] == verdict
    assert (found["train.sync_by"] == "code") is (verdict == "every_micro_step")


@pytest.mark.parametrize(("second", "verdict"), [(2.44, "multiplied"), (0.62, "sound"), (0.9, "unknown")])
def test_two_versions_of_a_trainer(second, verdict):
    first = events_of("gradient_accumulation_steps: 4", hf(0.61), source="old.log")
    other = events_of(f"gradient_accumulation_steps: {4 if verdict != 'sound' else 8}", hf(second), source="new.log")
    assert facts_of([*first, *other])["train.loss_scaling"] == verdict


def test_a_run_that_goes_on_has_a_lower_loss():
    first = events_of("gradient_accumulation_steps: 4", hf(5.2), source="old.log")
    other = events_of("gradient_accumulation_steps: 4", hf(1.3, epoch=1.0), source="new.log")
    assert facts_of([*first, *other])["train.loss_scaling"] == "unknown"


@pytest.mark.parametrize(("calls", "verdict"), [(224, "every_micro_step"), (28, "unknown")])
def test_reductions_in_a_profile(calls, verdict):
    row = f"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm...)  2.914s  61.20%  2.914s  13.009ms  {calls}"
    found = facts_of(events_of("gradient_accumulation_steps: 8", row), **{"train.nodes": 2})
    assert found["train.sync"] == verdict


def test_timers_of_micro_steps_in_words():
    lines = [f"step 4 micro {n}/8 fwd 112 ms bwd 231 ms grad_reduce 402 ms" for n in range(1, 9)]
    assert facts_of(events_of("grad_accum: 8", *lines))["train.sync"] == "every_micro_step"
