"""How fast an encoder is trained to guess hidden residues, beside fair-esm's class with equal weights. Prints Markdown.

    OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE python tests/benchmarks/training.py [--rounds 3] [--sequences 1000]

A model of 4.8 million parameters reads seven CDR3s to three V domains; a step is forward, backward and AdamW. What
counts is tokens that are no padding, a CPU second. Ways:

    fair-esm, as it comes   rows in random order, 64 a batch, padded; logits of all tokens
    fair-esm, sorted        rows of similar length, batches of so many padded tokens
    airrformer              its own batches of so many tokens, and its own loss: no padding, logits of the hidden alone

"loss" and "gradient": the largest relative difference to fair-esm's, of one batch with the same tokens hidden, in fp32.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from esm.data import Alphabet
from esm.model.esm2 import ESM2
from torch import Tensor

from airrformer.config import TrainSettings
from airrformer.core import alphabet, weights
from airrformer.core.batching import token_batches
from airrformer.core.config import FAMILIES
from airrformer.core.transformer import Transformer
from airrformer.pretrain import masking
from airrformer.pretrain.objectives import HiddenResidues
from airrformer.pretrain.reading import mixed_batches
from airrformer.pretrain.train import _optimizer

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference_models import fair_esm_file, randomise
from speed import workload

NAME, LAYERS, WIDTH, HEADS = "esm2_t6_8M_UR50D", 6, 256, 8
Step = Callable[[Tensor, Tensor, Tensor], Tensor]  # tokens, which are hidden, what stood there -> the loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sequences", type=int, default=1000)
    parser.add_argument("--batch-tokens", type=int, default=8192)
    given = parser.parse_args()
    rows = [torch.tensor(alphabet.encode(s)) for s in workload("W3") if len(s) < 250][: given.sequences]
    reference, ours = models()
    settings = TrainSettings(label_smoothing=0.0)
    objective = HiddenResidues(None, None, settings, 0)

    def theirs(tokens: Tensor, chosen: Tensor, targets: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(reference(tokens)["logits"][chosen], targets)

    def own(tokens: Tensor, chosen: Tensor, targets: Tensor) -> Tensor:
        return objective.loss(ours, (tokens, torch.zeros_like(tokens), chosen, targets)).mean

    lengths = np.array([*map(len, rows)])
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(rows), generator=generator)
    batches = {
        "fair-esm, as it comes": [part.tolist() for part in order.split(64)],
        "fair-esm, sorted": token_batches(lengths.tolist(), given.batch_tokens),
        "airrformer": mixed_batches(lengths, order.numpy(), given.batch_tokens, generator),
    }
    steps = {name: own if name == "airrformer" else theirs for name in batches}
    made = {name: [hidden(rows, batch, settings, generator) for batch in some] for name, some in batches.items()}
    loss, gradient = differences(reference, ours, theirs, own, made["airrformer"][0])
    optimizers = {theirs: torch.optim.AdamW(reference.parameters()), own: _optimizer(ours, settings)}
    seconds: dict[str, list[float]] = {name: [] for name in batches}
    for _ in range(given.rounds):
        for name, of in steps.items():
            started = time.process_time()
            for batch in made[name]:
                of(*batch).backward()
                optimizers[of].step()
                optimizers[of].zero_grad(set_to_none=True)
            seconds[name].append(time.process_time() - started)
    rates = {name: lengths.sum() / float(np.median(values)) for name, values in seconds.items()}
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}; loss {loss:.0e}, gradient {gradient:.0e}\n")
    print("| way | steps | tokens a second | times the first | times the second |\n| --- | ---: | ---: | ---: | ---: |")
    first, second, _ = rates.values()
    for name, rate in rates.items():
        print(f"| {name} | {len(batches[name])} | {rate:,.0f} | {rate / first:.2f} | {rate / second:.2f} |")


def models() -> tuple[ESM2, Transformer]:
    """fair-esm's class and ours with the same random weights, to be trained."""
    reference = randomise(ESM2(LAYERS, WIDTH, HEADS, Alphabet.from_architecture("ESM-1b")))
    FAMILIES[NAME] = dataclasses.replace(
        FAMILIES[NAME], layers=LAYERS, width=WIDTH, heads=HEADS, feed_forward=4 * WIDTH
    )
    with tempfile.TemporaryDirectory() as folder:
        fair_esm_file(reference, Path(folder) / f"{NAME}.pt")
        ours = weights.load_foreign(NAME, Path(folder) / f"{NAME}.pt")
    for name, parameter in ours.named_parameters():
        parameter.requires_grad_(not name.startswith("contact_head"))
    return reference.train(), ours.train()


def hidden(rows: list[Tensor], batch: list[int], settings: TrainSettings, generator: torch.Generator) -> tuple:
    tokens = torch.nn.utils.rnn.pad_sequence([rows[i] for i in batch], True, alphabet.PAD)
    masked, chosen = masking.mask_residues(tokens, settings.mask_fraction, generator, torch.ones(tokens.shape), 1)
    return masked, chosen, tokens[chosen]


def differences(reference: ESM2, ours: Transformer, theirs: Step, own: Step, batch: tuple) -> tuple[float, float]:
    losses = theirs(*batch), own(*batch)
    for loss in losses:
        loss.backward()
    found = reference.layers[0].fc1.weight.grad, ours.encoder.blocks[0].feed_forward.inner.linear.weight.grad
    gradient = float((found[0] - found[1]).abs().max() / found[0].abs().max())
    for model in (reference, ours):
        model.zero_grad(set_to_none=True)
    return abs(losses[0].item() - losses[1].item()) / losses[0].item(), gradient


if __name__ == "__main__":
    main()
