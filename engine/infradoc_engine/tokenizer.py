"""Text to token ids and back, from what the model files hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE

from infradoc_engine.memory import host_room

# Room for encoding: measured are 100 to 230 bytes per byte of text; a step that runs meanwhile takes of it too, so a
# short text, whose 2 MiB in small pieces are set aside already (see host_reserve), opens none.
_ENCODE_BYTES, _ENCODE_BYTES_PER_BYTE, _SHORT_BYTES = 16 << 20, 1000, 8192
CONTROL, USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type

# Where each family cuts text before byte-pair merging, by the name that GGUF files use.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _pre_tokenizer(pre: str) -> pre_tokenizers.PreTokenizer:
    if pre in ("default", "gpt-2"):
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    if pre == "llama-bpe":
        split = pre_tokenizers.Split(Regex(_LLAMA3), "isolated")
        return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    raise ValueError(f"pre-tokenizer {pre[:40]!r} is not known (default, gpt-2, smollm, llama-bpe are)")


def build_bpe(
    tokens: list[str], merges: list[str], token_types: list[int], pre: str, bos_id: int | None = None
) -> Tokenizer:
    """Byte-level BPE from GGUF metadata. `bos_id` is put before every text. Raises ValueError with the reason."""
    vocab = {token: index for index, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise ValueError("two tokens have the same text")
    if token_types and len(token_types) != len(tokens):
        raise ValueError(f"{len(token_types)} token types for {len(tokens)} tokens")
    if bos_id is not None and not 0 <= bos_id < len(tokens):
        raise ValueError(f"the bos token id {bos_id} is outside the vocabulary of {len(tokens)}")
    pairs: list[tuple[str, str]] = []
    for merge in merges:
        left, blank, right = merge.partition(" ")
        if not blank or left not in vocab or right not in vocab or left + right not in vocab:
            raise ValueError(f"merge {merge[:40]!r} does not join two tokens into a third")
        pairs.append((left, right))
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=pairs))
    tokenizer.pre_tokenizer = _pre_tokenizer(pre)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in _of_type(tokens, token_types, CONTROL)])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in _of_type(tokens, token_types, USER_DEFINED)])
    if bos_id is not None:
        bos = tokens[bos_id]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos}:0 $A:0", pair=None, special_tokens=[(bos, bos_id)]
        )
    return tokenizer


def _of_type(tokens: list[str], types: list[int], kind: int) -> list[str]:
    return [token for token, type_ in zip(tokens, types, strict=False) if type_ == kind]


class TokenizerSource(Protocol):
    """The part of the model files that a tokenizer needs."""

    def tokenizer(self) -> Tokenizer: ...


class TokenizerHandle:
    """Encodes and decodes. Safe to use from several threads."""

    def __init__(self, source: TokenizerSource) -> None:
        self._tokenizer = source.tokenizer()
        # A tokenizer.json may carry the cutting and padding of its training run: silent truncation here.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._json: str | None = None

    @property
    def json(self) -> str:
        """Serialised once, for worker processes: `tokenizers.Tokenizer.from_str`. About 3.5 MB for 49,152 tokens."""
        if self._json is None:
            self._json = str(self._tokenizer.to_str())
        return self._json

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """Token ids of the whole text. `encode_batch` because it releases the GIL for the work; `encode` holds it."""
        num_bytes = len(text) if text.isascii() else 3 * len(text)
        if num_bytes <= _SHORT_BYTES:
            return self._encode(text, add_special)
        with host_room(_ENCODE_BYTES + _ENCODE_BYTES_PER_BYTE * num_bytes):
            return self._encode(text, add_special)

    def _encode(self, text: str, add_special: bool) -> list[int]:
        return list(self._tokenizer.encode_batch([text], add_special_tokens=add_special)[0].ids)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of the ids; bytes that are no UTF-8 become U+FFFD."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=skip_special))

    def token_to_id(self, token: str) -> int | None:
        """The id of one token's exact text, or None."""
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    @property
    def vocab_size(self) -> int:
        """Count of ids with a text, added tokens included."""
        return int(self._tokenizer.get_vocab_size())
