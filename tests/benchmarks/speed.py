"""How fast sequences become vectors, beside other implementations of ESM-2 with equal weights. Prints Markdown.

    OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE python tests/benchmarks/speed.py [--workloads W1 W2 W3] [--rounds 5]

Random weights of the 8M size in fair-esm's own class, written as fair-esm publishes them and read by airrformer.load:
one mean vector a sequence, of the last layer. Peers:

    fair-esm       its own extraction loop (scripts/extract.py: sorted, padded batches of so many tokens)
    transformers   Hugging Face's EsmModel with scaled_dot_product_attention, sorted, padded batches; if it is installed

Workloads, drawn by a fixed seed: W1 2,000 CDR3s of 12 to 18 residues; W2 512 V domains of 105 to 135; W3 2,000 of both,
seven in ten CDR3s, and ten of 250 to 400. Rounds are interleaved; the median counts. CPU seconds, so that other work on
the machine tells less. "of the machine": arithmetic of the model's matrices a second, as a share of what one matrix
product of this size reaches here, measured in the same run.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from esm.data import Alphabet, FastaBatchedDataset
from esm.model.esm2 import ESM2
from torch.nn.utils.rnn import pad_sequence

import airrformer
from airrformer.core.batching import token_batches

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference_models import fair_esm_file, randomise

LAYERS, WIDTH, HEADS = 6, 320, 20
RESIDUES = list("ACDEFGHIKLMNPQRSTVWY")
Embed = Callable[[list[str]], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=("W1", "W2", "W3"), default=["W1", "W2", "W3"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budgets", type=int, nargs="+", default=[4096], help="tokens a batch, of fair-esm")
    parser.add_argument("--share", type=float, default=1.0, help="of each workload, for a quick look")
    given = parser.parse_args()
    reference = randomise(ESM2(LAYERS, WIDTH, HEADS, Alphabet.from_architecture("ESM-1b"))).eval()
    with tempfile.TemporaryDirectory() as folder:
        fair_esm_file(reference, Path(folder) / "esm2_t6_8M_UR50D.pt")
        encoder = airrformer.load("esm2_t6_8M_UR50D", weights=Path(folder) / "esm2_t6_8M_UR50D.pt", device="cpu")
    peers: dict[str, Embed] = {f"fair-esm, {b} tokens": fair_esm(reference, b) for b in given.budgets}
    peers |= hugging_face(reference)
    peers["airrformer"] = encoder.embed
    rate = products_a_second()
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, one product {rate / 1e9:.0f} GFLOP/s\n")
    print("| workload | implementation | CPU seconds | times fair-esm | error | of the machine |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for name in given.workloads:
        sequences = workload(name)[:: max(1, round(1 / given.share))]
        seconds: dict[str, list[float]] = {peer: [] for peer in peers}
        error: dict[str, float] = {}
        expected = next(iter(peers.values()))(sequences)
        for turn in range(given.rounds):
            for peer, embed in peers.items():
                started = time.process_time()
                found = embed(sequences)
                seconds[peer].append(time.process_time() - started)
                if turn == 0:
                    error[peer] = float(np.abs(found - expected).max() / np.abs(expected).max())
        medians = {peer: float(np.median(values)) for peer, values in seconds.items()}
        slowest = next(iter(medians.values()))
        work = arithmetic(sequences)
        for peer, value in medians.items():
            row = (
                name,
                peer,
                f"{value:.2f}",
                f"{slowest / value:.2f}",
                f"{error[peer]:.0e}",
                f"{work / value / rate:.0%}",
            )
            print("| " + " | ".join(row) + " |", flush=True)


def workload(name: str) -> list[str]:
    rng = np.random.default_rng(7)

    def draw(n: int, shortest: int, longest: int) -> list[str]:
        return ["".join(rng.choice(RESIDUES, length)) for length in rng.integers(shortest, longest + 1, n)]

    made = {
        "W1": lambda: draw(2000, 12, 18),
        "W2": lambda: draw(512, 105, 135),
        "W3": lambda: draw(1400, 12, 18) + draw(590, 105, 135) + draw(10, 250, 400),
    }[name]()
    return [made[i] for i in rng.permutation(len(made))]


def arithmetic(sequences: list[str]) -> float:
    """Floating point operations of the blocks' matrices on all tokens; attention's own are few at such lengths."""
    tokens = sum(len(sequence) + 2 for sequence in sequences)
    return 2.0 * tokens * LAYERS * 12 * WIDTH**2


def products_a_second(rows: int = 2048, repeats: int = 30) -> float:
    """Floating point operations a second of the largest of the model's matrix products, by itself: the median."""
    x, weight = torch.randn(rows, WIDTH), torch.randn(4 * WIDTH, WIDTH)
    taken = []
    for _ in range(repeats):
        started = time.process_time()
        torch.nn.functional.linear(x, weight)
        taken.append(time.process_time() - started)
    return 2 * rows * 4 * WIDTH**2 / float(np.median(taken))


def fair_esm(model: ESM2, budget: int) -> Embed:
    convert = Alphabet.from_architecture("ESM-1b").get_batch_converter()

    def embed(sequences: list[str]) -> np.ndarray:
        dataset = FastaBatchedDataset([str(i) for i in range(len(sequences))], sequences)
        found = np.empty((len(sequences), WIDTH), dtype=np.float32)
        with torch.no_grad():
            for batch in dataset.get_batch_indices(budget, extra_toks_per_seq=1):
                labels, texts, tokens = convert([dataset[i] for i in batch])
                states = model(tokens, repr_layers=[LAYERS], return_contacts=False)["representations"][LAYERS]
                for row, (label, text) in enumerate(zip(labels, texts)):
                    found[int(label)] = states[row, 1 : len(text) + 1].mean(0).numpy()
        return found

    return embed


NAMES = {  # fair-esm's -> those of transformers
    r"^embed_tokens": "embeddings.word_embeddings",
    r"^emb_layer_norm_after": "encoder.emb_layer_norm_after",
    r"^layers\.(\d+)\.self_attn\.q_proj": r"encoder.layer.\1.attention.self.query",
    r"^layers\.(\d+)\.self_attn\.k_proj": r"encoder.layer.\1.attention.self.key",
    r"^layers\.(\d+)\.self_attn\.v_proj": r"encoder.layer.\1.attention.self.value",
    r"^layers\.(\d+)\.self_attn\.out_proj": r"encoder.layer.\1.attention.output.dense",
    r"^layers\.(\d+)\.self_attn\.rot_emb": r"encoder.layer.\1.attention.self.rotary_embeddings",
    r"^layers\.(\d+)\.self_attn_layer_norm": r"encoder.layer.\1.attention.LayerNorm",
    r"^layers\.(\d+)\.fc1": r"encoder.layer.\1.intermediate.dense",
    r"^layers\.(\d+)\.fc2": r"encoder.layer.\1.output.dense",
    r"^layers\.(\d+)\.final_layer_norm": r"encoder.layer.\1.LayerNorm",
}


def hugging_face(reference: ESM2, budget: int = 4096) -> dict[str, Embed]:
    try:
        from transformers import EsmConfig, EsmModel
    except ImportError:
        print("transformers is not installed and is left out", file=sys.stderr)
        return {}
    alphabet = Alphabet.from_architecture("ESM-1b")
    config = EsmConfig(
        vocab_size=len(alphabet), mask_token_id=alphabet.mask_idx, pad_token_id=alphabet.padding_idx,
        hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=4 * WIDTH,
        position_embedding_type="rotary", token_dropout=True, emb_layer_norm_before=False,
        layer_norm_eps=1e-5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="sdpa",
    )  # fmt: skip
    model = EsmModel(config, add_pooling_layer=False).eval()
    state = {}
    for key, value in reference.state_dict().items():
        for pattern, name in NAMES.items():
            if re.match(pattern, key):
                state[re.sub(pattern, name, key)] = value
    unknown = model.load_state_dict(state, strict=False)
    missing = [key for key in unknown.missing_keys if "contact_head" not in key and "position" not in key]
    if missing:
        raise ValueError(f"transformers has other names: {missing[:3]}")

    def embed(sequences: list[str]) -> np.ndarray:
        found = np.empty((len(sequences), WIDTH), dtype=np.float32)
        rows = [
            torch.tensor([alphabet.cls_idx, *map(alphabet.get_idx, sequence), alphabet.eos_idx])
            for sequence in sequences
        ]
        with torch.inference_mode():
            for batch in token_batches([*map(len, rows)], budget):
                tokens = pad_sequence([rows[i] for i in batch], True, alphabet.padding_idx)
                states = model(tokens, attention_mask=(tokens != alphabet.padding_idx).long()).last_hidden_state
                for row, of in enumerate(batch):
                    found[of] = states[row, 1 : len(sequences[of]) + 1].mean(0).numpy()
        return found

    return {"transformers": embed}


if __name__ == "__main__":
    main()
