"""The side of llama.cpp in `beside_llama_cpp`; a Python with the packages ik-llama-cpp-python and gguf runs this file.

`write FOLDER MODEL` writes a model with random weights, MODEL-bf16.gguf and MODEL-q8_0.gguf. `serve FILE THREADS
SEQUENCES TOKENS` loads a file and answers lines on standard input, see `serve`. Nothing of cstool is imported.

IK_LLAMA_CPP_LIB_PATH names another libllama.so of the same version, such as one compiled for this CPU: the package's
own has no AVX-512.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from string import ascii_letters
from typing import Any, NamedTuple

import numpy as np

DEVIATION = 0.02
"""of the weights"""


class Shape(NamedTuple):
    """Sizes of a Llama."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int


SHAPES = {
    "llama_125m": Shape(12, 768, 12, 4, 2048, 32000),
    "llama_1b": Shape(22, 2048, 32, 4, 5632, 32000),
    "llama_28m": Shape(8, 512, 8, 4, 1408, 8192),
    "tiny": Shape(2, 256, 4, 2, 640, 512),
}
"""a Llama about as large as GPT-2 small, at whose own graph ik_llama.cpp stops; one with the sizes of TinyLlama 1.1B;
one for many requests, see `invariance`; and one to try out this file"""
POSITIONS = 2048


class Token(NamedTuple):
    """A token, and its logit."""

    number: int
    logit: float


def tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the names of all tensors, and their shapes, rows first."""
    width, of_kv = shape.width, shape.width // shape.heads * shape.kv_heads
    yield "token_embd.weight", (shape.vocabulary, width)
    for layer in range(shape.layers):
        at = f"blk.{layer}"
        for name, rows in (("q", width), ("k", of_kv), ("v", of_kv), ("output", width)):
            yield f"{at}.attn_{name}.weight", (rows, width)
        for name in ("gate", "up"):
            yield f"{at}.ffn_{name}.weight", (shape.feed_forward, width)
        yield f"{at}.ffn_down.weight", (width, shape.feed_forward)
        for name in ("attn", "ffn"):
            yield f"{at}.{name}_norm.weight", (width,)
    yield "output_norm.weight", (width,)
    yield "output.weight", (shape.vocabulary, width)


def words(vocabulary: int) -> list[str]:
    """Return the tokens of a vocabulary, at least 257: one that ends a text, all bytes, words of two and three letters.

    Bytes are spelt by the characters that GPT-2 has for them: those that are no printed character of Latin-1 by the
    characters from 256 on.
    """
    printed = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    found = ["<|end|>", *(chr(byte if byte in printed else next(others)) for byte in range(256))]
    for length in (2, 3):
        found += ("".join(letters) for letters in product(ascii_letters, repeat=length))
    return found[:vocabulary]


def add_tokenizer(writer: Any, vocabulary: int) -> None:
    """Give a GGUF file the tokenizer of `words`: byte pairs, as GPT-2 has them."""
    import gguf

    tokens = words(vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL, *[gguf.TokenType.NORMAL] * (vocabulary - 1)])
    writer.add_token_merges([f"{token[:-1]} {token[-1]}" for token in tokens[257:]])
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)


def write(folder: Path, name: str) -> None:
    """Write both files of a model. Their numbers are the same, rounded to bfloat16 and then, in one file, to Q8_0."""
    import gguf

    shape = SHAPES[name]
    kinds = {"bf16": gguf.GGMLQuantizationType.BF16, "q8_0": gguf.GGMLQuantizationType.Q8_0}
    writers = {each: gguf.GGUFWriter(folder / f"{name}-{each}.gguf", "llama") for each in kinds}
    for writer in writers.values():
        writer.add_context_length(POSITIONS)
        writer.add_embedding_length(shape.width)
        writer.add_block_count(shape.layers)
        writer.add_feed_forward_length(shape.feed_forward)
        writer.add_head_count(shape.heads)
        writer.add_head_count_kv(shape.kv_heads)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_dimension_count(shape.width // shape.heads)
        writer.add_vocab_size(shape.vocabulary)
        add_tokenizer(writer, shape.vocabulary)
    rng = np.random.default_rng(1)
    for tensor, size in tensors(shape):
        numbers = rng.standard_normal(size, np.float32) * np.float32(DEVIATION)
        if len(size) == 1:
            for writer in writers.values():
                writer.add_tensor(tensor, 1 + numbers)
            continue
        narrow = gguf.quants.quantize(numbers, kinds["bf16"])
        writers["bf16"].add_tensor(tensor, narrow, raw_dtype=kinds["bf16"])
        numbers = gguf.quants.dequantize(narrow, kinds["bf16"])
        writers["q8_0"].add_tensor(tensor, gguf.quants.quantize(numbers, kinds["q8_0"]), raw_dtype=kinds["q8_0"])
    for writer in writers.values():
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


class Peer:
    """A model in llama.cpp.

    Args:
        path: GGUF file
        threads: of this host
        sequences, tokens: side by side, and in all, at most
        repacks: whether weights are laid out anew as they are loaded (`--run-time-repack`)
        flash: whether attention is that of `--flash-attn`
    """

    def __init__(self, path: str, threads: int, sequences: int, tokens: int, *, repacks: bool, flash: bool) -> None:
        from ik_llama_cpp import _ctypes_api as api

        self._api = api
        api.llama_backend_init()
        of_model = api.llama_model_default_params()
        of_model.use_mmap, of_model.repack_tensors = not repacks, repacks
        self._model = api.llama_model_load_from_file(path.encode(), of_model)
        of_context = api.llama_context_default_params()
        of_context.n_ctx, of_context.n_batch, of_context.n_seq_max = tokens, 512, sequences
        of_context.n_threads = of_context.n_threads_batch = threads
        of_context.flash_attn = flash
        self._context = api.llama_init_from_model(self._model, of_context)
        if not self._context:
            raise SystemExit(f"{path}: llama.cpp cannot read it")
        self.vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))

    def _pass(self, ids: list[int], places: list[int], sequences: list[int], wanted: list[int]) -> list[Token]:
        """Run a pass; return the likeliest token after each row that is wanted."""
        api, count = self._api, len(ids)
        batch = api.llama_batch_init(count, 0, 1)
        batch.n_tokens = count
        for i in range(count):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = ids[i], places[i], 1, sequences[i]
            batch.logits[i] = 0
        for i in wanted:
            batch.logits[i] = 1
        if api.llama_decode(self._context, batch) != 0:
            raise SystemExit("llama_decode failed")
        rows = [self._logits(i) for i in wanted]
        found = [Token(int(row.argmax()), float(row.max())) for row in rows]
        api.llama_batch_free(batch)
        return found

    def _logits(self, row: int) -> np.ndarray:
        pointer = self._api.llama_get_logits_ith(self._context, row)
        return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (self.vocabulary,))

    def run(self, prompts: list[list[int]], count: int) -> dict[str, Any]:
        """Go on from prompts of one length by so many tokens; see `serve`."""
        self._api.llama_kv_cache_clear(self._context)
        began, length, numbers = time.perf_counter(), len(prompts[0]), list(range(len(prompts)))
        made: list[list[Token]] = [[] for _ in prompts]
        # As many whole prompts as a pass takes.
        beside = max(1, 512 // length)
        for first in range(0, len(prompts), beside):
            part = numbers[first : first + beside]
            rows = [token for number in part for token in prompts[number]]
            places, whose = list(range(length)) * len(part), [number for number in part for _ in range(length)]
            ends = [(k + 1) * length - 1 for k in range(len(part))]
            for number, token in zip(part, self._pass(rows, places, whose, ends), strict=True):
                made[number].append(token)
        first_s = time.perf_counter() - began
        for place in range(length, length + count - 1):
            found = self._pass([each[-1].number for each in made], [place] * len(prompts), numbers, numbers)
            for each, token in zip(made, found, strict=True):
                each.append(token)
        rest_s = time.perf_counter() - began - first_s
        tokens, scores = ([[token[k] for token in each] for each in made] for k in range(2))
        return {"tokens": tokens, "scores": scores, "first_s": first_s, "rest_s": rest_s}


def serve(run: Any) -> None:
    """Answer lines of JSON with lines of JSON, until the input ends.

    Args:
        run: called with prompts, lists of tokens, and the number of tokens that follow; returns `tokens` of each
            prompt, `scores` of these (logits, or log probabilities), `first_s`, the time until all have their first,
            and `rest_s`, that of the others [s]
    """
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(*json.loads(line))), file=out, flush=True)


def main() -> None:
    """Do what the arguments say."""
    what, *rest = sys.argv[1:]
    if what == "write":
        write(Path(rest[0]), rest[1])
        return
    path, threads, sequences, tokens, *options = rest
    peer = Peer(path, int(threads), int(sequences), int(tokens), repacks="repack" in options, flash="flash" in options)
    serve(peer.run)


if __name__ == "__main__":
    main()
