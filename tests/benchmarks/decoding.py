"""How much a key/value cache saves: seconds to write with it and without, in one run. No test; prints Markdown.

python tests/benchmarks/decoding.py --lengths 16 64 --rows 64
"""

from __future__ import annotations

import argparse
import time

import torch

from airrformer.core import alphabet
from airrformer.core.config import ModelConfig
from airrformer.core.decoding import beam_search, sample
from airrformer.core.transformer import Transformer, initialise

# No row may end before the others, or stop early: what is measured is a given number of tokens.
ENDLESS = torch.tensor([token == alphabet.EOS for token in range(len(alphabet.TOKENS))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[16, 32, 64], help="tokens of a row")
    parser.add_argument("--rows", type=int, default=64, help="rows that are written together")
    parser.add_argument("--width", type=int, default=128, help="of the model, which has 4 layers and 4 heads")
    parser.add_argument("--repeats", type=int, default=1, help="the fastest counts")
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()

    where = f"{chosen.device}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    print(f"{chosen.rows} rows, width {chosen.width}, 4 layers; {where}\n")
    print("| form | way | tokens a row | no cache, s | cache, s | ratio |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for form in ("decoder", "encoder-decoder"):
        model = writer(form, chosen.width).to(chosen.device)
        for length in chosen.lengths:
            for way in (sampling, beams):
                slow, fast = (
                    min(seconds(way, model, length, chosen.rows, cache) for _ in range(chosen.repeats))
                    for cache in (False, True)
                )
                name = way.__name__
                print(f"| {form} | {name} | {length} | {slow:.3f} | {fast:.3f} | {slow / fast:.1f} |", flush=True)


def writer(form: str, width: int) -> Transformer:
    model = Transformer(ModelConfig(form=form, width=width, feed_forward=4 * width))
    initialise(model, torch.Generator().manual_seed(0))
    return model.eval()


def sampling(model: Transformer, length: int, rows: int, cache: bool) -> None:
    start, generator = torch.full((rows, 1), alphabet.CLS), torch.Generator().manual_seed(0)
    common = dict(source=source(model, rows), forbidden=ENDLESS, use_cache=cache)
    sample(model, 1, generator, start, alphabet.EOS, length, **common)


def beams(model: Transformer, length: int, rows: int, cache: bool) -> None:
    width = 4
    start = torch.full((rows // width, 1), alphabet.CLS)
    common = dict(source=source(model, rows // width), forbidden=ENDLESS, use_cache=cache)
    beam_search(model, start, alphabet.EOS, length, width, **common)


def source(model: Transformer, rows: int) -> torch.Tensor | None:
    if model.config.form == "decoder":
        return None
    return torch.randint(4, 24, (rows, 16), generator=torch.Generator().manual_seed(0))


def seconds(way, model: Transformer, length: int, rows: int, cache: bool) -> float:
    start = time.perf_counter()
    way(model, length, rows, cache)  # the tokens end on the CPU, so that a GPU has finished too
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
