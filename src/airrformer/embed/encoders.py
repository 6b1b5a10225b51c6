"""Sequences -> vectors, through a Transformer or a table. Input order is kept; special tokens are left out.

``load`` finds an encoder by name or folder. All that it returns share ``embed`` and ``embed_residues``; a Transformer
also guesses hidden residues.

A sequence is a chain's residues. Encoders that were trained so (``airrformer-mini``) also read a chain as its loops,
``CDR1|CDR2|CDR3``, and the two chains of a receptor together, as a tuple of two.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from airrformer.core import alphabet
from airrformer.core.batching import token_batches
from airrformer.core.config import FAMILIES, ModelConfig
from airrformer.core.devices import resolve_device, resolve_precision
from airrformer.core.transformer import Transformer
from airrformer.core.weights import find_local, how_to_get, load_foreign, load_own
from airrformer.core.writing import LOOP_END, Written, ids_of, write
from airrformer.embed.pooling import POOLINGS, Pool, loops_together, span_mask
from airrformer.errors import UserError
from airrformer.paths import read_status
from airrformer.progress import track
from airrformer.receptors.loops import LOOPS
from airrformer.receptors.regions import number_chains
from airrformer.receptors.tables import CHAIN_OF_LOCUS, REGIONS

logger = logging.getLogger(__name__)

BATCH_TOKENS = 4096
Sequences = Sequence[str] | Sequence[tuple[str, ...]]
Loci = Sequence[str | tuple[str, ...] | None]
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def load(
    name_or_dir: str | Path, weights: str | Path | None = None, device: str = "auto", precision: str = "auto"
) -> ResidueEncoder:
    """An encoder by the name of a published model, ``blosum62``, or a folder such as ``results/encoders/scratch``.

    Parameters
    ----------
    name_or_dir: a name that `airrformer weights list` shows, such as ``esm2_t6_8M_UR50D`` or ``antiberty``;
        ``blosum62``; or a folder that `airrformer pretrain`, `weights fetch` or `weights convert` wrote.
    weights: the file as its publisher gives it, or its folder; by default the usual caches and installed packages are
        looked at. Nothing is downloaded.
    device: auto (the first GPU, else the CPU), cpu, cuda, cuda:1, mps.
    precision: auto (fp32), fp32, bf16, fp16; fp32 on a CPU that would be slower. Pooling always sums in fp32.

    Raises ``UserError`` when there is no such encoder or its weights are not at hand, with what to do.
    """
    folder, name = Path(name_or_dir), str(name_or_dir)
    if name == "blosum62":
        return Blosum62()
    if name in FAMILIES:
        found = find_local(name, str(weights) if weights is not None else None)
        if found is None:
            hint = how_to_get(name, str(weights) if weights is not None else None)
            raise UserError(f"{name}: its weights are not on this machine; {hint}")
        return TransformerEncoder(load_foreign(name, found), name, device, precision)
    if not folder.is_dir():
        known = ", ".join([*FAMILIES, "blosum62"])
        raise UserError(f"{name}: neither a folder with an encoder nor one of {known}")
    if (folder / "model.safetensors").is_file():
        model = load_own(folder)
        if model.config.form != "encoder":
            how = "; airrformer generate has it write" if model.config.form == "decoder" else ""
            raise UserError(
                f"{folder}: this is a {model.config.form}, which writes sequences and makes no vectors{how}"
            )
        return TransformerEncoder(model, folder.name, device, precision)
    if not (folder / "status.json").is_file():
        raise UserError(f"{folder}: no encoder: it holds neither model.safetensors nor status.json")
    status = read_status(folder)
    if status["status"] != "ready":
        raise UserError(f"{folder}: this encoder was skipped: {status.get('reason')}")
    published, file = status.get("name"), status.get("weights")
    if published not in FAMILIES or not isinstance(file, str):
        raise UserError(f"{folder / 'status.json'}: names no published model with its weights; fetch the encoder again")
    return TransformerEncoder(load_foreign(published, file), folder.name, device, precision)


class ResidueEncoder:
    """What all encoders share. A subclass gives ``name``, ``width`` (D), ``layers``, ``device`` and ``_encode``."""

    name: str
    width: int
    layers: int = 0
    max_residues: int | None = None
    config = ModelConfig()  # which tokens the residues stand between, and what may be read
    device = torch.device("cpu")

    def embed(
        self,
        sequences: Sequences,
        pooling: str = "mean",
        layer: int = -1,
        batch_tokens: int = BATCH_TOKENS,
        loci: Loci | None = None,
        names: Sequence[str] | None = None,
    ) -> np.ndarray:
        """One vector a sequence: float32 (n, D), row i for ``sequences[i]``.

        ``pooling``: ``mean`` or ``max`` over all residues; a region (``cdr3``, ``fwr1``, ...), which is the mean over
        that region in the context of the whole sequence; or ``loops``: the means of CDR1, CDR2 and CDR3, each of
        length 1, side by side, (n, 3 D), of pairs (n, 6 D). Regions are found by IMGT numbering.
        ``layer``: 0 the embedding, -1 the last. ``batch_tokens``: tokens a batch; it changes no result.
        ``loci``: of each chain (TRA, TRB, IGH, ...), for encoders that were told them in training; of pairs tuples.
        Of a pair the alpha or heavy chain comes first, as in training. ``names``: what errors call each sequence.
        Raises ``UserError`` naming the sequence for a letter that is no residue, an empty sequence, one longer than
        the model's window, or one without the region asked for.
        """
        sequences = _as_list(sequences)
        if pooling in POOLINGS:
            pools = [Pool(pooling)]
        elif pooling in REGIONS:
            if any(isinstance(sequence, tuple) for sequence in sequences):
                raise UserError(f"pooling {pooling!r} is of one chain; of pairs take loops, mean or max")
            pools = [Pool("mean", spans) for spans in spans_of_regions(sequences, (pooling,), names)]
        elif pooling == "loops":
            pools = [Pool("mean", spans) for spans in spans_of_regions(sequences, LOOPS, names)]
        else:
            raise UserError(f"pooling {pooling!r} is unknown; use one of {', '.join([*POOLINGS, 'loops', *REGIONS])}")
        means = self.pool(sequences, pools, layer, batch_tokens, loci, names)
        return loops_together(means) if pooling == "loops" else means[0]

    def embed_residues(
        self, sequences: Sequences, layer: int = -1, batch_tokens: int = BATCH_TOKENS, loci: Loci | None = None
    ) -> list[np.ndarray]:
        """One float32 array (L_i, D) a sequence, in input order, residues alone; of a pair the second chain's last."""
        sequences = _as_list(sequences)
        distinct, where = _distinct(list(zip(sequences, _loci_of(sequences, loci))))
        found: list[np.ndarray] = [np.empty(0)] * len(distinct)
        for indices, hidden in self._batches(*_unzipped(distinct), layer, batch_tokens, _firsts(where)):
            values = hidden.float().cpu().numpy()
            for row, i in enumerate(indices):
                found[i] = values[row, : residue_count(distinct[i][0])].copy()
        return [found[i] for i in where]

    def pool(
        self,
        sequences: Sequences,
        pools: Sequence[Pool],
        layer: int = -1,
        batch_tokens: int = BATCH_TOKENS,
        loci: Loci | None = None,
        names: Sequence[str] | None = None,
    ) -> list[np.ndarray]:
        """Several poolings in one pass: a float32 (n, D) for each of ``pools``. Equal inputs are computed once.

        Spans count residues, those of a pair's second chain on from the first's.
        """
        if not pools:
            return []
        read, of = _distinct(list(zip(sequences, _loci_of(sequences, loci))))
        whole = np.array([(0, residue_count(sequence)) for sequence, _ in read], dtype=int).reshape(-1, 2)[of]
        given = [whole if p.spans is None else np.asarray(p.spans, dtype=int).reshape(-1, 2) for p in pools]
        spans = np.stack(given, axis=1)  # (n, pools, 2)
        # of one input several spans may be asked for; equal ones are pooled once
        asked, where = np.unique(
            np.column_stack([of, spans.reshape(len(of), 2 * len(pools))]), axis=0, return_inverse=True
        )
        spans = asked[:, 1:].reshape(len(asked), len(pools), 2)
        first = np.searchsorted(asked[:, 0], np.arange(len(read) + 1))  # rows of asked that are of each input
        pooled = [np.empty((len(asked), self.width), dtype=np.float32) for _ in pools]
        for indices, hidden in self._batches(*_unzipped(read), layer, batch_tokens, _firsts(of, names)):
            rows = [np.arange(first[i], first[i + 1]) for i in indices]
            if any(len(some) > 1 for some in rows):
                hidden = hidden[np.repeat(range(len(rows)), [len(some) for some in rows])]
            rows = np.concatenate(rows)
            for k, ((kind, _), values) in enumerate(zip(pools, pooled)):
                mask = span_mask(spans[rows, k], hidden.shape[1], hidden.device)
                values[rows] = POOLINGS[kind](hidden, mask).cpu().numpy()
        return [values[where.ravel()] for values in pooled]

    def _batches(
        self, sequences: Sequences, loci: Loci, layer: int, batch_tokens: int, names: Sequence[str]
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Yield (indices, residue vectors (B, R, D)) until every sequence had its turn; rows are padded to R.

        A batch that does not fit into the device's memory is halved; results do not depend on the batch.
        """
        layer = self.layer_number(layer)
        written = self.write(sequences, loci, names)
        queue = token_batches([len(w.tokens) for w in written], batch_tokens)[::-1]  # a stack, shortest on top
        for _ in track(_until_empty(queue), len(queue), f"{self.name}: batches", logger):
            indices = queue.pop()
            tokens, segments, residues = (
                torch.nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in rows], True, fill).to(self.device)
                for rows, fill in zip(zip(*(written[i] for i in indices)), (alphabet.PAD, 0, 0))
            )
            try:
                hidden = self._encode(tokens, segments, layer)
                hidden = hidden.take_along_dim(residues[..., None], dim=1)  # (B, L, D) -> (B, R, D)
            except torch.OutOfMemoryError:
                if len(indices) == 1:
                    raise
                logger.warning("%d sequences do not fit into the device's memory; halving the batch", len(indices))
                torch.cuda.empty_cache()
                queue += [indices[len(indices) // 2 :], indices[: len(indices) // 2]]
                continue
            ends = torch.tensor([len(written[i].residues) for i in indices], device=hidden.device)
            mask = torch.arange(hidden.shape[1], device=hidden.device) < ends[:, None]
            finite = (hidden.isfinite().all(-1) | ~mask).all(-1)  # (B,)
            if not finite.all():
                bad = [sequences[i] for i, ok in zip(indices, finite.tolist()) if not ok]
                raise UserError(
                    f"{self.name} gave no finite numbers for {bad[0]!r} and {len(bad) - 1} more; use precision: fp32"
                )
            yield indices, hidden

    def check_lengths(self, names: Sequence[str], sequences: Sequences) -> None:
        """Raise ``UserError`` that names the sequences which do not fit into the window."""
        long = [(n, residue_count(s)) for n, s in zip(names, sequences) if not self._fits(s)]
        if long:
            shown = ", ".join(f"{name} ({length})" for name, length in long[:3])
            raise UserError(
                f"{len(long)} sequence{'s' * (len(long) > 1)} longer than the {self.max_residues} residues that "
                f"{self.name} reads: {shown}{', ...' * (len(long) > 3)}; cut to the variable domain, or leave out"
            )

    def _fits(self, sequence: str | tuple[str, ...]) -> bool:
        """Whether the window holds it, with all that is written around it."""
        chains, config = sequence if isinstance(sequence, tuple) else (sequence,), self.config
        around = len(config.before) + config.tags + len(chains) * (len(config.after) + config.tags)
        return config.max_length is None or around + sum(map(len, chains)) <= config.max_length

    def write(
        self, sequences: Sequences, loci: Loci | None = None, names: Sequence[str] | None = None
    ) -> list[Written]:
        """Each sequence as tokens, and where its residues stand among them. Raises ``UserError`` as ``embed``."""
        found = []
        for i, (sequence, locus) in enumerate(zip(sequences, _loci_of(sequences, loci), strict=True)):
            chains = sequence if isinstance(sequence, tuple) else (sequence,)
            shown = f"{_name(i, names)} ({'/'.join(map(str, chains))[:20]}"
            if len(chains) > 1 + self.config.pairs:
                raise UserError(
                    f"{shown}...): {len(chains)} chains together; {self.name} reads {1 + self.config.pairs}"
                )
            if LOOP_END in "".join(chains) and not self.config.loops:
                raise UserError(f"{shown}...): {self.name} reads no loops ({LOOP_END!r}); give the whole chain")
            for chain in chains:
                _loop_bounds(chain)  # says how loops are written
            if not self._fits(sequence):
                most = self.max_residues - (len(chains) - 1) * (len(self.config.after) + self.config.tags)
                raise UserError(
                    f"{shown}...) has {residue_count(sequence)} residues; the window of {self.name} is "
                    f"{most}: cut it to the variable domain"
                )
            try:
                ids = [ids_of(chain.upper()) for chain in chains]
            except ValueError as error:
                raise UserError(f"{shown}): {error}") from None
            found.append(write(ids, self.config, locus if isinstance(locus, tuple) else (locus,)))
        return found

    def layer_number(self, layer: int) -> int:
        """0 to ``layers``, of one that may be counted from the end. Raises ``UserError`` for one that is not there."""
        if not -self.layers - 1 <= layer <= self.layers:
            raise UserError(f"layer {layer}: {self.name} has 0 (the embedding) to {self.layers}, -1 the last")
        return layer % (self.layers + 1)

    def _encode(self, tokens: Tensor, segments: Tensor, layer: int) -> Tensor:
        """(B, L) -> (B, L, D) of that layer."""
        raise NotImplementedError


class Blosum62(ResidueEncoder):
    """Each residue's row of BLOSUM62 (Henikoff and Henikoff 1992): 20 scores against the amino acids, no learning."""

    name = "blosum62"
    width = len(alphabet.AMINO_ACIDS)

    def __init__(self) -> None:
        from Bio.Align import substitution_matrices

        matrix = substitution_matrices.load("BLOSUM62")
        self.table = torch.zeros(len(alphabet.TOKENS), self.width)
        for letter in alphabet.RESIDUES:
            row = {"U": "C", "O": "K"}.get(letter, letter)  # BLOSUM62 lacks the two rare amino acids
            self.table[alphabet.ID[letter]] = torch.tensor([matrix[row][aa] for aa in alphabet.AMINO_ACIDS])

    def _encode(self, tokens: Tensor, segments: Tensor, layer: int) -> Tensor:
        return self.table[tokens]


class TransformerEncoder(ResidueEncoder):
    """A Transformer of the core with its weights, on a device and in a precision."""

    def __init__(self, model: Transformer, name: str, device: str = "auto", precision: str = "auto") -> None:
        self.device = resolve_device(device)
        self.model = model.to(self.device).eval()
        self.name = name
        self.width = model.config.width
        self.layers = model.config.layers
        self.config = model.config
        around = len(self.config.before) + len(self.config.after) + 2 * self.config.tags  # of one chain
        self.max_residues = None if self.config.max_length is None else self.config.max_length - around
        self.precision = resolve_precision(precision, self.device)

    def masked_profile(self, sequence: str, positions: Sequence[int] | None = None) -> np.ndarray:
        """p(residue | rest) at each position, hidden one at a time: float32 (n, 20) over ``ACDEFGHIKLMNPQRSTVWY``.

        ``positions`` count residues from 0; default: all. Rows sum to 1.
        """
        if not isinstance(sequence, str) or LOOP_END in sequence:
            raise UserError(f"{sequence!r}: residues are guessed in one whole chain; give its residues as one string")
        (written,) = self.write(_as_list([sequence]))
        row, residues = torch.from_numpy(written.tokens), torch.from_numpy(written.residues)
        positions = range(len(sequence)) if positions is None else positions
        for position in positions:
            if not 0 <= position < len(sequence):
                raise UserError(f"position {position} is outside the sequence of {len(sequence)} residues (from 0)")
        profile = np.empty((len(positions), len(alphabet.AMINO_ACIDS)), dtype=np.float32)
        step = max(1, BATCH_TOKENS // len(row))
        for start in range(0, len(positions), step):
            at = residues[list(positions[start : start + step])]
            batch = row.repeat(len(at), 1)
            batch[torch.arange(len(at)), at] = alphabet.MASK
            with self._computing():
                hidden = self.model(batch.to(self.device))[torch.arange(len(at)), at.to(self.device)]
                logits = self.model.logits(hidden)[:, list(alphabet.AMINO_ACID_IDS)]
            profile[start : start + step] = logits.float().softmax(-1).cpu().numpy()
        return profile

    def masked_probabilities(self, sequence: str, position: int) -> dict[str, float]:
        """The twenty residues' probabilities at ``position`` (from 0), hidden; they sum to 1."""
        return dict(zip(alphabet.AMINO_ACIDS, self.masked_profile(sequence, [position])[0].tolist()))

    def pseudo_log_likelihood(self, sequences: Sequence[str]) -> np.ndarray:
        """Sum over the residues of log p(residue | rest), each hidden in turn: float64 (n,), in nats.

        Salazar et al. 2020 (arXiv:1910.14659). Residues other than the twenty amino acids are not scored.
        """
        scores = []
        for sequence in _as_list(sequences):
            if isinstance(sequence, tuple):
                raise UserError("likelihoods are those of single chains; give each chain as a string")
            scored = [i for i, letter in enumerate(sequence.upper()) if letter in alphabet.AMINO_ACIDS]
            profile = self.masked_profile(sequence, scored)
            columns = [alphabet.AMINO_ACIDS.index(sequence[i].upper()) for i in scored]
            scores.append(np.log(profile[np.arange(len(scored)), columns].astype(np.float64)).sum())
        return np.array(scores)

    def contacts(self, sequence: str) -> np.ndarray:
        """Probability that two residues are in contact in the folded chain: float32 (L, L), symmetric.

        In contact means that their C-beta atoms are within 8 angstrom (Rao et al. 2021). Raises ``UserError`` for an
        encoder without a contact head.
        """
        if self.model.contact_head is None:
            raise UserError(
                f"{self.name} has no contact head; ESM-2 and ESM-1b have one: with a fair-esm .pt, put its "
                "NAME-contact-regression.pt beside it, or take a Hugging Face .safetensors, which holds it"
            )
        (written,) = self.write(_as_list([sequence]))
        row = torch.from_numpy(written.tokens).to(self.device)[None]
        mask = torch.zeros_like(row, dtype=torch.bool)
        mask[:, written.residues] = True
        residues = slice(int(written.residues[0]), int(written.residues[-1]) + 1)
        with self._computing():
            return self.model.contacts(row, mask)[0, residues, residues].float().cpu().numpy()

    def _encode(self, tokens: Tensor, segments: Tensor, layer: int) -> Tensor:
        with self._computing():
            # Token types of others mean other things than which chain of a receptor a token is of.
            own = segments if self.config.pairs else None
            return self.model.hidden_states(tokens, layers=(layer,), segments=own)[0]

    @contextlib.contextmanager
    def _computing(self) -> Iterator[None]:
        dtype = _DTYPES[self.precision]
        with torch.inference_mode(), torch.autocast(self.device.type, dtype, enabled=dtype is not torch.float32):
            yield


def residue_count(sequence: str | tuple[str, ...]) -> int:
    """Residues of a chain, of its loops, or of both chains."""
    chains = sequence if isinstance(sequence, tuple) else (sequence,)
    return sum(len(chain) - chain.count(LOOP_END) for chain in chains)


def _as_list(sequences: Sequences) -> list:
    if isinstance(sequences, str):
        raise UserError("a list of sequences was expected, not one string; write [sequence]")
    sequences = list(sequences)
    for i, sequence in enumerate(sequences):
        for chain in sequence if isinstance(sequence, tuple) and sequence else (sequence,):
            if not isinstance(chain, str) or not chain.strip(LOOP_END):
                raise UserError(
                    f"sequence {i} is {sequence!r}: a string of residues was expected, or a tuple of two chains; drop "
                    "such rows first"
                )
    return sequences


def spans_of_regions(sequences: list, regions: Sequence[str], names: Sequence[str] | None = None) -> list[np.ndarray]:
    """(n, 2) half-open bounds of each of ``regions``, of a pair's first chain and then of its second.

    Of loops by their ends, of chains by IMGT numbering. ``names``: what errors call each sequence.
    """
    pairs = [sequence if isinstance(sequence, tuple) else (sequence,) for sequence in sequences]
    if len({len(chains) for chains in pairs}) > 1:
        raise UserError("some sequences are pairs and some are not; embed the two kinds one after the other")
    whole = list(dict.fromkeys(chain.upper() for chains in pairs for chain in chains if LOOP_END not in chain))
    numbered = dict(zip(whole, number_chains(whole, workers=os.cpu_count() or 1)))
    found = np.empty((len(pairs), len(pairs[0]) if pairs else 1, len(regions), 2), dtype=int)
    for i, chains in enumerate(pairs):
        before = 0
        for c, chain in enumerate(chains):
            bounds, why = _loop_bounds(chain), ""
            if bounds is None:
                numbering = numbered[chain.upper()]
                bounds, why = numbering.bounds, f" ({numbering.reason})" if numbering.reason else ""
            for k, region in enumerate(regions):
                if region not in bounds:
                    raise UserError(
                        f"{_name(i, names)} ({chain[:20]}...): no {region} is found{why}; give whole V domains, or "
                        "pool with mean"
                    )
                found[i, c, k] = [before + at for at in bounds[region]]
            before += residue_count(chain)
    return [found[:, c, k] for c in range(found.shape[1]) for k in range(len(regions))]


def _loop_bounds(chain: str) -> dict[str, tuple[int, int]] | None:
    """Of CDR1|CDR2|CDR3, without a loop that is empty; None of a chain that is not written so."""
    if LOOP_END not in chain:
        return None
    parts = chain.split(LOOP_END)
    if len(parts) != len(LOOPS):
        raise UserError(f"{chain!r} has {len(parts)} parts; loops are written CDR1{LOOP_END}CDR2{LOOP_END}CDR3")
    bounds, start = {}, 0
    for loop, residues in zip(LOOPS, parts):
        if residues:
            bounds[loop] = (start, start + len(residues))
        start += len(residues)
    return bounds


def _loci_of(sequences: Sequence, loci: Loci | None) -> list:
    """A locus or None of each sequence, of pairs a tuple of two. Raises ``UserError`` for others than there are."""
    loci = [None] * len(sequences) if loci is None else [tuple(x) if isinstance(x, list) else x for x in loci]
    if len(loci) != len(sequences):
        raise UserError(f"{len(loci)} loci for {len(sequences)} sequences; give one for each, or none at all")
    for i, (sequence, locus) in enumerate(zip(sequences, loci)):
        chains, named = (x if isinstance(x, tuple) else (x,) for x in (sequence, locus))
        if locus is not None and len(named) != len(chains):
            raise UserError(
                f"loci[{i}] {locus!r} names {len(named)} of {len(chains)} chains; None is of no known locus"
            )
        if unknown := [one for one in named if one is not None and one not in CHAIN_OF_LOCUS]:
            raise UserError(f"loci[{i}]: {unknown[0]!r} is no locus; use one of {', '.join(CHAIN_OF_LOCUS)}, or None")
    return loci


def _unzipped(pairs: list[tuple]) -> tuple[list, list]:
    return [first for first, _ in pairs], [second for _, second in pairs]


def _distinct(keys: Sequence) -> tuple[list, np.ndarray]:
    """The distinct keys in order of first appearance, and each input's index among them."""
    index: dict = {}
    where = np.array([index.setdefault(key, len(index)) for key in keys], dtype=int)
    return list(index), where


def _name(i: int, names: Sequence[str] | None) -> str:
    return f"sequence {i}" if names is None else names[i]


def _firsts(where: np.ndarray, names: Sequence[str] | None = None) -> list[str]:
    """Of each distinct input, as ``_distinct`` numbers them, what the first of its kind is called."""
    return [_name(i, names) for i in np.unique(where, return_index=True)[1]]


def _until_empty(queue: list) -> Iterator[None]:
    while queue:
        yield None
