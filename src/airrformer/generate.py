"""New sequences from a decoder, and how far they are like those that it was trained on, and new."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from airrformer.config import Dataset
from airrformer.core import alphabet
from airrformer.core.decoding import Written, sample
from airrformer.core.devices import resolve_device
from airrformer.core.transformer import Transformer
from airrformer.core.weights import load_own
from airrformer.errors import UserError
from airrformer.parse.records import Record, read_records
from airrformer.paths import check_output, read_status, write_json, write_text
from airrformer.progress import track
from airrformer.receptors.regions import junction_of, number_chains
from airrformer.receptors.tables import read_chains
from airrformer.versions import STAGE_VERSIONS

logger = logging.getLogger(__name__)

What = Literal["junction", "chain"]
COLUMNS: dict[What, str] = {"junction": "junction_aa", "chain": "sequence_aa"}
MAX_RESIDUES: dict[What, int] = {"junction": 40, "chain": 150}  # the longest CDR3s have about 40
SHORTEST_JUNCTION = 6
_LONGEST = 10_000  # residues, where the model sets no limit; no receptor chain has nearly as many
_ENDINGS = (".fasta", ".fa", ".faa")
_BATCH = 512  # rows that are written together; no result depends on it
_DRAWS = 10  # of the reference against the rest of it


def generate_file(
    encoder: str | Path,
    n: int,
    output: str | Path,
    references: Sequence[str | Path] = (),
    what: What | None = None,
    max_residues: int | None = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 1,
    device: str = "auto",
) -> dict:
    """Write ``n`` sequences that the decoder in the folder ``encoder`` draws to the FASTA file ``output``.

    Records are ``generated_1``, ``generated_2``, ...; their headers say log p (base e) and whether the sequence came to
    its end within ``max_residues`` (default: 40 for junctions, 150 for chains, or the model's window). How they are
    drawn: ``core.decoding.sample``.

    What is measured on them, and against the sequences of ``references`` (see ``read_reference``), is returned, and
    written beside the output: FILE.fasta -> FILE.json. ``what`` the decoder writes decides what counts as valid;
    default: what its folder says that it was trained on.
    The seed decides on all; on another device single sequences may differ, as its sums are rounded otherwise.

    Raises ``UserError`` for a folder without a decoder, for settings that cannot be and for files that cannot be read
    or written.
    """
    output = Path(output)
    if output.suffix.lower() not in _ENDINGS:
        raise UserError(f"{output}: the output is FASTA; name a file that ends in {' or '.join(_ENDINGS)}")
    summary_file = output.with_suffix(".json")
    for path in (*references, Path(encoder) / "config.json"):
        check_output(output, path)
        check_output(summary_file, path)
    model = load_decoder(encoder)
    what = _what(encoder, what)
    max_residues = _check_length(model, encoder, max_residues, what)
    reference = [sequence for path in references for sequence in read_reference(path, what)] if references else None
    where = resolve_device(device)
    written = generate(model.to(where), n, max_residues, seed, temperature, top_k, top_p)

    sequences = ["".join(alphabet.TOKENS[token] for token in one.tokens) for one in written]
    complete = [one.complete for one in written]
    summary = {
        "version": STAGE_VERSIONS["generate"],
        "encoder": Path(encoder).as_posix(),
        "references": [Path(path).as_posix() for path in references],
        "settings": {
            "sequence": what,
            "max_residues": max_residues,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
            "device": str(where),
        },
        **summarise(sequences, complete, are_valid(sequences, what), reference, seed),
    }
    records = (
        f">generated_{i} log_p={one.score:.4f} complete={str(one.complete).lower()}\n{sequence}\n"
        for i, (one, sequence) in enumerate(zip(written, sequences), start=1)
    )
    write_text(output, "".join(records))
    write_json(summary_file, summary)
    for sentence in _results(summary):
        logger.info("%s: %s", output, sentence)
    return summary


def load_decoder(folder: str | Path) -> Transformer:
    """The decoder of residues in ``folder``. Raises ``UserError`` for anything else, with what can generate."""
    if not (Path(folder) / "model.safetensors").is_file():
        raise UserError(
            f"{folder}: no folder of an encoder that was trained here, as it holds no model.safetensors; name one such "
            "as results/encoders/NAME, trained with `objective: causal`"
        )
    model = load_own(folder)
    if model.config.form != "decoder" or model.config.alphabet_size != len(alphabet.TOKENS):
        raise UserError(
            f"{folder}: its form is {model.config.form!r} over {model.config.alphabet_size} tokens, which generates no "
            f"receptors; name a decoder over the {len(alphabet.TOKENS)} tokens of residues, trained with "
            "`objective: causal`"
        )
    return model


def _what(encoder: str | Path, asked: What | None) -> What:
    """What the decoder in this folder writes, by its status.json. Raises ``UserError`` if something else is asked."""
    status = read_status(encoder) if (Path(encoder) / "status.json").is_file() else {}
    trained = status.get("sequence") if status.get("sequence") in COLUMNS else None
    if asked and trained and asked != trained:
        raise UserError(
            f"{encoder}: this decoder was trained on {trained}s and writes no {asked}s; leave --sequence out"
        )
    return asked or trained or "junction"


def generate(
    model: Transformer,
    n: int,
    max_residues: int,
    seed: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
) -> list[Written]:
    """``n`` sequences, drawn one after another from ``seed``, of the twenty amino acids and the end alone.

    One that has ``max_residues`` residues and does not end then is not complete; it keeps the residue that stands where
    the end should. Raises ``UserError`` for settings that cannot be.
    """
    if n < 1:
        raise UserError(f"n is {n}; generate at least one sequence")
    if not 0 <= seed < 2**64:
        raise UserError(f"seed is {seed}; take one from 0 to {2**64 - 1}")
    letters = {*alphabet.AMINO_ACIDS, "<eos>"}
    forbidden = torch.tensor([token not in letters for token in alphabet.TOKENS])
    generator = torch.Generator().manual_seed(seed)
    sizes = [min(_BATCH, n - start) for start in range(0, n, _BATCH)]
    written: list[Written] = []
    for size in track(sizes, len(sizes), "batches generated", logger):
        try:
            written += sample(
                model, size, generator, alphabet.CLS, alphabet.EOS, max_residues + 2,
                temperature=temperature, top_k=top_k, top_p=top_p, forbidden=forbidden,
            )  # fmt: skip
        except ValueError as error:
            raise UserError(str(error)) from None
    return written


def _check_length(model: Transformer, encoder: str | Path, max_residues: int | None, what: What) -> int:
    window = model.config.max_length and model.config.max_length - 2  # start and end
    if window is not None and window < 1:
        raise UserError(f"{encoder}: its window of {model.config.max_length} tokens has no room for a residue")
    if max_residues is None:
        return min(MAX_RESIDUES[what], window or MAX_RESIDUES[what])
    if not 1 <= max_residues <= (window or _LONGEST):
        raise UserError(f"{encoder}: at most {max_residues} residues cannot be; give 1 to {window or _LONGEST}")
    return max_residues


def read_reference(path: str | Path, what: What) -> list[str]:
    """The sequences of a file, ``what`` the decoder writes: from our ``chains.parquet``, a table or a FASTA file.

    Tables have them in the column ``junction_aa`` or ``sequence_aa``; a FASTA file holds nothing else. Raises
    ``UserError`` for a file without any.
    """
    column = COLUMNS[what]
    if Path(path).suffix == ".parquet":
        try:
            found = read_chains(path)[column].dropna().tolist()
        except KeyError:
            raise UserError(f"{path}: not a table of chains; name a chains.parquet of `airrformer parse`") from None
    else:
        # Only how the file is read matters here; which receptor and chains it holds is not asked.
        opened = read_records(str(path), Dataset(sequences=str(path), receptor="TCR", chains=["TRB"]))
        column = "sequence" if opened.format in ("FASTA", "FASTQ") else column
        fields = (record.fields for record in opened.records if isinstance(record, Record))
        found = [text.upper() for row in fields if (text := row.get(column))]
    if not any(found):
        raise UserError(f"{path}: holds no {what}; a table needs the column {column}")
    return [sequence for sequence in found if sequence]


# --------------------------------------------------------------------------------------------------------- the numbers


def summarise(
    sequences: Sequence[str],
    complete: Sequence[bool],
    valid: Sequence[bool],
    reference: Iterable[str] | None = None,
    seed: int = 1,
) -> dict:
    """What is to be known of generated ``sequences``: shares of all ``n``, and distances to the ``reference``.

    complete: came to an end. valid: ``complete`` and ``valid``. distinct: different sequences, among ``n``. new:
    complete and not in the reference. Lengths and residues are those of the complete ones, each as often as it was
    generated, and of the reference's distinct ones. Without a reference there is no "new" and no distance.
    """
    n = len(sequences)
    ended = [sequence for sequence, end in zip(sequences, complete) if end]
    valid = [good and end for good, end in zip(valid, complete)]
    shares = {"complete": len(ended) / n, "valid": sum(valid) / n, "distinct": len(set(sequences)) / n}
    summary = {"n": n, "shares": shares, "lengths": {"generated": lengths(ended)}}
    summary["residues"] = {"generated": residues(ended)}
    if reference is None:
        return summary
    distinct = set(reference)
    known = sorted(distinct)  # a set's order is another one in each run
    new = [end and sequence not in distinct for sequence, end in zip(sequences, complete)]
    shares |= {"new": sum(new) / n, "valid_and_new": sum(a and b for a, b in zip(valid, new)) / n}
    summary["n_reference"] = len(known)
    summary["lengths"]["reference"], summary["residues"]["reference"] = lengths(known), residues(known)
    summary["distances"] = distances(ended, known, seed)
    return summary


def are_valid(sequences: Sequence[str], what: What) -> list[bool]:
    """Whether each is a junction; or a chain of the twenty amino acids in which numbering finds a junction."""
    if what == "junction":
        return [is_junction(sequence) for sequence in sequences]
    plain = [sequence if set(sequence) <= set(alphabet.AMINO_ACIDS) else "" for sequence in sequences]
    found = iter(number_chains([sequence for sequence in plain if sequence], torch.get_num_threads()))
    numbered = [next(found) if sequence else None for sequence in plain]
    junctions = [one and junction_of(sequence, one.bounds) for sequence, one in zip(plain, numbered)]
    return [is_junction(junction or "") for junction in junctions]


def is_junction(sequence: str) -> bool:
    """Whether ``sequence`` has the form of a junction: IMGT's CDR3 with its anchors, 2nd-CYS 104 and J-PHE/TRP 118.

    So C first, F or W last, the twenty amino acids alone (no stop, no X). The anchors alone set no smallest
    length; here a CDR3 of four residues is the least.

    >>> is_junction("CASSIRSSYEQYF"), is_junction("ASSIRSSYEQYF"), is_junction("CASSIRSSYEQYFGPG")
    (True, False, False)
    """
    anchored = sequence[:1] == "C" and sequence[-1:] in ("F", "W")
    return anchored and len(sequence) >= SHORTEST_JUNCTION and set(sequence) <= set(alphabet.AMINO_ACIDS)


def lengths(sequences: Iterable[str]) -> dict[str, int]:
    """How many sequences have each length, in residues, from the shortest."""
    counts = Counter(map(len, sequences))
    return {str(length): counts[length] for length in sorted(counts)}


def residues(sequences: Iterable[str]) -> dict[str, float]:
    """The share of each letter among all of the ``sequences``; the twenty amino acids, and others that occur."""
    counts = Counter("".join(sequences))
    total = counts.total() or 1
    letters = [*alphabet.AMINO_ACIDS, *sorted(set(counts) - set(alphabet.AMINO_ACIDS))]
    return {letter: counts[letter] / total for letter in letters}


def distances(generated: Sequence[str], reference: Sequence[str], seed: int) -> dict | None:
    """Total variation of lengths and of residues: generated to reference, and as a yardstick reference to itself.

    The yardstick draws as many as were generated (at most half) from the reference and measures them against the rest;
    it is the mean of ten such draws. Where ``generated`` is no farther, it cannot be told from a part of the reference
    by this. None where there is nothing generated, or fewer than two to draw from.
    """
    size = min(len(generated), len(reference) // 2)
    if size == 0:
        return None
    rng = np.random.default_rng(seed)
    draws = []
    for _ in range(_DRAWS):
        order = rng.permutation(len(reference))
        draws.append([[reference[i] for i in part] for part in (order[:size], order[size:])])
    found: dict = {"yardstick_sequences": size}
    for name, measure in (("lengths", lengths), ("residues", residues)):
        found[name] = {
            "generated": total_variation(measure(generated), measure(reference)),
            "yardstick": float(np.mean([total_variation(measure(a), measure(b)) for a, b in draws])),
        }
    return found


def total_variation(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    """Half the sum of differences between two histograms, each taken as shares: 0 equal, 1 nothing in common.

    >>> total_variation({"12": 3, "13": 1}, {"12": 1, "14": 1})
    0.5
    """
    of_a, of_b = sum(a.values()), sum(b.values())
    return sum(abs(a.get(key, 0) / of_a - b.get(key, 0) / of_b) for key in {*a, *b}) / 2


def _results(summary: dict) -> list[str]:
    """What the log says at the end, a sentence each."""
    shares = ", ".join(f"{100 * share:.1f} % {name.replace('_', ' ')}" for name, share in summary["shares"].items())
    sentences = [f"{summary['n']} generated; {shares}"]
    if found := summary.get("distances"):
        sentences += [
            f"{name}: total variation to the reference {found[name]['generated']:.3f} "
            f"(of the reference to itself {found[name]['yardstick']:.3f})"
            for name in ("lengths", "residues")
        ]
    return sentences
