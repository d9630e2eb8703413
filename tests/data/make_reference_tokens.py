"""Makes reference_tokens.json: what the transformers library does with a GGUF file, as test data.

    python tests/data/make_reference_tokens.py MODEL.gguf OUT.json

Needs torch, transformers and gguf (versions are noted in the output). The weights are dequantised to float32 by
transformers itself. Greedy decoding ignores the end-of-text token, so that every prompt gives all its tokens; `gaps` is
the distance between the two best logits at each step: where it is tiny, rounding may rightly decide otherwise.

Tokenizer rows hold the ids of transformers' own tokenizer for the file (`ids`). Transformers 5 drops the file's
pre-tokenizer name; for "smollm" that loses the rule that every digit is cut off on its own before the rest is split,
which matters only where a digit follows two or more blanks. So each row also holds the ids with that rule put back
(`ids_declared`), and the two differ in few rows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gguf
import tokenizers
import torch
import transformers
from tokenizers import Tokenizer, pre_tokenizers

PROMPT_LENGTHS = (5, 12, 24, 48, 97, 200, 333, 600)
NEW_TOKENS = 64

TEXT = """A server that answers with a language model spends its memory on two things. The weights are fixed: they are
read once and stay. The keys and values of every running request grow by one row for each token, and nobody knows
beforehand how long an answer will be. Early systems reserved the longest possible answer for every request, and most
of that room was never used. Paging cures this. The memory is cut into blocks of sixteen tokens, a request takes a
block when it needs one, and a table per request says which blocks hold its past. A block that two requests share,
because their prompts begin alike, is stored once and counted twice.

Trouble starts when the pool is too small. The scheduler admits requests because there are free blocks now, but each of
them will want more. When none is left, somebody must give way: the youngest request loses its blocks, goes back to the
queue, and computes everything again later. One such loss is harmless. When it happens for every second request, the
machine is busy all day and gets little done; the operator sees high utilization, a long queue and slow first tokens,
and buys another machine that is not needed. The right cure is a larger pool, where memory is free, or fewer requests at
once, where it is not. The first costs memory, the second costs throughput while the load is light.

def first_free(blocks: list[int], used: set[int]) -> int | None:
    for block in blocks:
        if block not in used:
            return block
    return None

A second trouble hides in front of the model. Before a prompt can be computed its text must be cut into tokens, and
that is work for the processor, not for the accelerator. A document of two hundred thousand letters takes a third of a
second. If the same thread also reads requests and sends answers, every stream stops for that long; the accelerator
idles, and no graph of the accelerator shows why. Moving the cutting into processes of their own lets the thread breathe.
It does not make one document faster: it makes all the others independent of it.

Measure before you change anything, change one thing, and measure again with the same load. If the number that hurt did
not improve, put the old value back and say so. 12 requests at 1.5 s each are not the same as 1.5 requests at 12 s, and
an average of 0.75 hides both. Write down which precision, which prompt lengths and which batch gave each figure: a table
without them is an anecdote. In the end the questions are always the same: what does the user wait for, which resource
is it waiting for, and who holds that resource now?

Some answers come from the machine and some from the people who ask it. A queue that grows only at nine in the morning is
a habit, not a leak; a queue that grows by the hour until somebody restarts the process is a leak, not a habit."""

TOKENIZER_TEXTS = (
    "",
    " ",
    "   ",
    "\n\n\n",
    "\t\tif x:\n\t\t\treturn  y\r\n",
    "Hello, world!",
    "don't we'll I'VE it's they'd",
    "1234567890",
    "in 1999, 3.14159 or 1,000,000 at 10%",
    "x=1;y=22;z=333",
    "a1b22c333 4d",
    "two  blanks 2 and  2",
    "row\n1\n\n2\n   3",
    "tab\t9 and nbsp\u00a07",
    "naïve café, Straße, İstanbul, ﬁne",
    "日本語のテキストと中文文本。한국어도",
    "Привет, мир! Ελληνικά عربي עברית हिन्दी ไทย",
    "٣٤ ½ Ⅷ ² ₃ ①",
    "😀👩‍👩‍👧‍👦🏳️‍🌈 e\u0301 \u200b zero\u200dwidth",
    "mixed 中文 and English，全角！１２３",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|><|im_end|><file_sep><jupyter_code>x",
    "<|im_start|> <|im_start|>no space<|im_end |> <|IM_END|>",
    "#include <stdio.h>\nint main(void) { return 0x1F + 07; }\n",
    '{"key": [1, 2.5e-3, null], "s": "\\u00e9\\n"}',
    "https://example.org/a?b=c&d=%20#frag user@example.org",
    "SELECT * FROM t WHERE id IN (1,2,3) -- comment",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "!?!?...---===___***~~~",
    "\x00\x01\x7f control \ufeff bom \ufffd",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𒀀 \U0010ffff",
    "end with blank ",
    "end with blanks   ",
    "\u3000ideographic space\u2003em\u2028line",
)


def main(model_file: str, out_file: str) -> None:
    torch.set_grad_enabled(False)
    path = Path(model_file)
    options = {"gguf_file": path.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(path.parent), **options)
    model = transformers.AutoModelForCausalLM.from_pretrained(str(path.parent), dtype=torch.float32, **options).eval()
    text_ids = tokenizer.encode(TEXT)
    # Each prompt starts elsewhere in the text, so that no two share a beginning.
    prompts = [text_ids[6 * i :][:length] for i, length in enumerate(PROMPT_LENGTHS)]
    if [len(p) for p in prompts] != list(PROMPT_LENGTHS):
        raise SystemExit(f"the text has only {len(text_ids)} tokens")
    made = {
        "command": "python tests/data/make_reference_tokens.py MODEL.gguf OUT.json",
        "model": path.name,
        "versions": {m.__name__: m.__version__ for m in (torch, transformers, tokenizers)}
        | {"gguf": getattr(gguf, "__version__", "")},
        "prompts": [greedy(model, prompt) for prompt in prompts],
        "tokenizer": tokenizer_rows(tokenizer),
    }
    Path(out_file).write_text(json.dumps(made, ensure_ascii=True) + "\n")


def greedy(model, prompt: list[int]) -> dict:
    """64 tokens, each the argmax, with the gap to the second best; the cache is transformers' own."""
    tokens: list[int] = []
    gaps: list[float] = []
    ids, cache = torch.tensor([prompt]), None
    for _ in range(NEW_TOKENS):
        result = model(input_ids=ids, past_key_values=cache, use_cache=True)
        cache = result.past_key_values
        best = result.logits[0, -1].float().topk(2)
        tokens.append(int(best.indices[0]))
        gaps.append(round(float(best.values[0] - best.values[1]), 6))
        ids = torch.tensor([[tokens[-1]]])
    return {"prompt": prompt, "tokens": tokens, "gaps": gaps}


def tokenizer_rows(tokenizer) -> list[dict]:
    declared = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    declared.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    rows = []
    for text in (*TOKENIZER_TEXTS, TEXT):
        ids = tokenizer.encode(text)
        rows.append(
            {
                "text": text,
                "ids": ids,
                "ids_declared": declared.encode(text).ids,
                "decoded": tokenizer.decode(ids, skip_special_tokens=False),
            }
        )
    return rows


if __name__ == "__main__":
    main(*sys.argv[1:])
