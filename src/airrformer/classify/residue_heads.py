"""Classifiers that read the residue vectors of an encoder, and may train it along with them.

Residues are a table with one row a receptor and columns ``<chain>_sequence``, the chain as its encoder reads it,
``<chain>_span``, the residues of it that count, as text such as ``104:117`` (from 0, half-open), and ``<chain>_locus``;
``""`` where the receptor lacks the chain. They come with the encoder that reads them. torch is imported where it is
needed: it costs seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from airrformer.classify.networks import AveragedNetworks
from airrformer.classify.residues import fill_missing, find_donors
from airrformer.core.writing import LOOP_END
from airrformer.errors import UserError
from airrformer.receptors.distances import near_copies, unique
from airrformer.receptors.forms import bounds_of, written_chains

if TYPE_CHECKING:
    import torch

    from airrformer.classify.heads import Part, ResidueNetwork
    from airrformer.embed.encoders import ResidueEncoder

logger = logging.getLogger(__name__)

HEADS = ("attention", "light_attention", "cnn")
FINE_TUNE = ("none", "lora", "all")
ENCODER_RATES = {"lora": 5e-4, "all": 5e-5}  # by default
AT_ONCE = 256  # receptors scored together
_FULL_PRECISION = 2**31  # bytes of residue vectors up to which they are kept as float32
_SCALE_ROWS = 256  # receptors of which the scale of residue vectors is learned
_CLIP = 1.0
_LEAST_STEPS = 30  # of an epoch: a few hundred receptors are gone through several times
_ALIKE = 1  # edits between receptors that are held out together


class Chain(NamedTuple):
    """A chain as it stands in a table of residues."""

    sequence: str
    span: str
    locus: str = ""


class ResidueSource:
    """An encoder, loaded when it is first needed, and the residue vectors that it has made so far.

    load: gives the encoder. layer: which of its layers is read; -1 the last. name: what it is called. device: where a
        network computes that has an encoder of its own.
    """

    def __init__(
        self, load: Callable[[], ResidueEncoder], layer: int = -1, name: str = "", device: str = "auto"
    ) -> None:
        self._load, self._layer, self.name, self.device = load, layer, name, device
        self._made: dict[Chain, np.ndarray] = {}
        self._bytes = 0

    @cached_property
    def encoder(self) -> ResidueEncoder:
        return self._load()

    @property
    def layer(self) -> int:
        """From 0. Raises ``UserError`` for one that the encoder does not have."""
        return self.encoder.layer_number(self._layer)

    def vectors(self, chains: Sequence[Chain]) -> list[np.ndarray]:
        """Of each chain the vectors of the span's residues, (L_i, D), in the context of the sequence.

        Each is made once and kept, as float32, or as float16 once they take more than 2 GB.
        """
        new = [chain for chain in dict.fromkeys(chains) if chain not in self._made]
        for start in range(0, len(new), 2000):
            some = new[start : start + 2000]
            loci = [chain.locus or None for chain in some]
            made = self.encoder.embed_residues([chain.sequence for chain in some], self._layer, loci=loci)
            for chain, values in zip(some, made):
                first, end = bounds(chain.span)
                kept = values[first:end].copy()
                if self._bytes + kept.nbytes > _FULL_PRECISION:
                    kept = kept.astype(np.float16)
                self._made[chain] = kept
                self._bytes += kept.nbytes
        return [self._made[chain] for chain in chains]


@dataclass(frozen=True)
class Residues:
    """Receptors as a residue head reads them: a table (see above), and the source of their residue vectors.

    ``X[rows]`` are some of them, with the same source, so that folds share what the encoder has made.
    """

    table: pd.DataFrame
    source: ResidueSource

    @property
    def shape(self) -> tuple[int, int]:
        return self.table.shape

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, rows) -> Residues:
        return Residues(self.table.iloc[np.arange(len(self.table))[rows]], self.source)


def bounds(span: str) -> tuple[int, int]:
    """
    >>> bounds("104:117")
    (104, 117)
    """
    first, end = span.split(":")
    return int(first), int(end)


def residue_table(
    receptor_ids: Sequence[str], chains: pd.DataFrame, names: Sequence[str], region: str | None, form: str = "chain"
) -> pd.DataFrame:
    """The table of residues of receptors, in their order; ``names``: of the chains, ``region``: what counts of each.

    ``form``: how the encoder reads a chain, as ``written_chains``.

    A chain without bounds of the region counts whole, and a line of the log says how many these are.
    """
    from airrformer.embed.features import region_spans

    columns: dict[str, np.ndarray] = {}
    for name in names:
        rows = chains[chains["chain"] == name].drop_duplicates("receptor_id").set_index("receptor_id", drop=False)
        present = np.array([receptor in rows.index for receptor in receptor_ids], dtype=bool)
        rows = rows.loc[[receptor for receptor, there in zip(receptor_ids, present) if there]]
        sequences, known = written_chains(rows["sequence_aa"], bounds_of(rows), form, LOOP_END)
        spans = region_spans(rows["receptor_id"], sequences, known, region, name)
        loci = rows["locus"].astype(object).fillna("").tolist()
        found = {"sequence": sequences, "span": [f"{first}:{end}" for first, end in spans], "locus": loci}
        for part, texts in found.items():
            column = columns[f"{name}_{part}"] = np.full(len(receptor_ids), "", dtype=object)
            column[present] = texts
    return pd.DataFrame(columns, index=pd.RangeIndex(len(receptor_ids)), dtype=object)


class ResidueHeadClassifier(AveragedNetworks):
    """A small network on the residue vectors of an encoder, which may be trained with it; averaged over networks.

    Parameters
    ----------
    encoder, weights, device: as ``airrformer.load`` takes them; not looked at where X brings its own encoder.
    layer: 0 the embedding, -1 the last. region: the head sees these residues alone (``cdr3``, ...), found by IMGT
        numbering; ``None``: all of the chain. Both are X's own where it is ``Residues``.
    head: ``attention`` (four weighted means over the residues), ``light_attention`` (Stärk et al. 2021: a weighted
        mean and a maximum of convolved residues), ``cnn`` (two convolutions, then mean and maximum).
    fine_tune: ``none``: the encoder stays as it is, and makes its vectors once. ``lora``: changes of low rank
        (``lora_rank``) of its matrices are learned, by the package peft. ``all``: all of its weights are trained.
    hidden: channels of the head and units of the layer after it, a multiple of 4. kernel: residues that a convolution
        looks at. dropout: of residue vectors and units.
    learning_rate, encoder_learning_rate: of AdamW, for the head and for the encoder's last block (``None``: 5e-4 with
        lora, 5e-5 with all); ``layer_decay``: times this for each block further down. Both fall to a tenth along a
        cosine over ``max_epochs``. weight_decay, batch_size: of AdamW, receptors a step.
    max_epochs, patience: an epoch is a round through the receptors, or as many as make 30 steps. Training stops when
        the log loss on the receptors held out has not improved for ``patience`` epochs; the weights of the best epoch
        are kept.
    validation: share of the receptors that each network holds out of those that ``fit`` is given, and of no others.
        Receptors that differ by one edit or less are held out together (where that ties more than half of them into
        one, those with the same residues), or those of one of the ``groups`` that ``fit`` is told.
    n_models: networks, each with its own first weights and its own receptors held out; their log-odds are averaged.

    ``fit(X, Y, groups=None)``: X sequences of one chain (list, array, Series), a table with a column
    ``<chain>_sequence`` for each chain, or ``Residues``; Y int8 (n, K) of 1, 0 and -1 (unknown: left out of the loss),
    or y (n,) of two labels. Several chains stand side by side; one that a receptor lacks is that of a training
    receptor (``fill_missing``). ``predict_proba``: float64 (m, K), or (m, 2). The same on every run on one machine
    with one ``random_state``.

    Attributes
    ----------
    weights_: of each network, name -> float32 array: of its head and of what was trained of the encoder.
    epochs_: the best epoch of each.
    """

    def __init__(
        self,
        encoder="antiberty",
        head="attention",
        fine_tune="none",
        region=None,
        layer=-1,
        hidden=64,
        kernel=9,
        dropout=0.2,
        learning_rate=1e-3,
        encoder_learning_rate=None,
        layer_decay=0.8,
        lora_rank=8,
        weight_decay=1e-2,
        batch_size=64,
        max_epochs=30,
        patience=5,
        validation=0.1,
        n_models=1,
        weights=None,
        device="auto",
        random_state=0,
    ):
        self.encoder = encoder
        self.head = head
        self.fine_tune = fine_tune
        self.region = region
        self.layer = layer
        self.hidden = hidden
        self.kernel = kernel
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.encoder_learning_rate = encoder_learning_rate
        self.layer_decay = layer_decay
        self.lora_rank = lora_rank
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation = validation
        self.n_models = n_models
        self.weights = weights
        self.device = device
        self.random_state = random_state

    def fit(self, X, Y, groups=None) -> ResidueHeadClassifier:
        """Train on all rows but those held out for stopping. Raises ``UserError`` for settings that cannot be."""
        self._check()
        Y = self._learn_labels(Y, len(X), groups)
        if not isinstance(X, Residues):
            self.source_ = ResidueSource(self._load, self.layer, str(self.encoder), self.device)
        X = self._read(X)
        self.n_features_in_ = X.shape[1]
        chains = [str(name).removesuffix("_sequence") for name in X.table if str(name).endswith("_sequence")]
        self.chains_ = [chain for chain in chains if (X.table[f"{chain}_sequence"] != "").any()]
        if not self.chains_:
            raise UserError("no receptor has a chain: there are no residues to learn from")
        self.donors_ = find_donors(X.table, self.chains_, self._columns())
        self.width_, self.layer_, self.config_ = X.source.encoder.width, X.source.layer, None
        if self.fine_tune != "none":
            if not hasattr(X.source.encoder, "model"):
                raise UserError(f"encoder {X.source.encoder.name} has no weights to train: use fine_tune: none")
            self.config_ = X.source.encoder.model.config.to_dict()
            if self.fine_tune == "lora" and self.layer_ == 0:
                raise UserError("fine_tune: lora changes the blocks, and layer 0 is before the first of them")
        chains = self._chains(X.table)
        groups = similar_groups(chains) if groups is None else groups
        return self._fit_networks(groups, lambda held, seed: self._train(X.source, chains, Y, held, seed))

    @property
    def rates(self) -> tuple[float, float, float]:
        """Learning rates of the head and of the encoder's last block, and their decay a block."""
        given = self.encoder_learning_rate
        return self.learning_rate, ENCODER_RATES.get(self.fine_tune, 0) if given is None else given, self.layer_decay

    def _check(self) -> None:
        for name, value, known in (("head", self.head, HEADS), ("fine_tune", self.fine_tune, FINE_TUNE)):
            if value not in known:
                raise UserError(f"{name} {value!r} is unknown: use one of {', '.join(known)}")
        if self.hidden % 4:
            raise UserError(f"hidden is {self.hidden}: a multiple of 4 is needed")

    # ---------------------------------------------------------------------------------------------- what is read

    def _columns(self) -> list[str]:
        return [f"{chain}_{part}" for chain in self.chains_ for part in Chain._fields]

    def _read(self, X) -> Residues:
        """X as residues, read by its own encoder or by that of the parameters."""
        if isinstance(X, Residues):
            return X
        if not isinstance(X, pd.DataFrame):
            if any(isinstance(sequence, tuple | list) for sequence in X):
                raise UserError(
                    "several chains of a receptor are columns of a table, such as TRA_sequence, TRB_sequence"
                )
            X = pd.DataFrame({"chain_sequence": np.asarray(X, dtype=object)})
        columns = {}
        for name in [str(name) for name in X.columns if str(name).endswith("_sequence")]:
            texts = X[name].fillna("").astype(str).tolist()
            columns[name] = texts
            columns[name.removesuffix("sequence") + "span"] = self._spans(texts)
            columns[name.removesuffix("sequence") + "locus"] = [""] * len(texts)
        if not columns:
            raise UserError(f"a column <chain>_sequence was expected; there are {', '.join(map(str, X.columns))}")
        if not hasattr(self, "source_"):  # it was fitted elsewhere
            self.source_ = ResidueSource(self._load, self.layer, str(self.encoder), self.device)
        return Residues(pd.DataFrame(columns, dtype=object), self.source_)

    def _load(self) -> ResidueEncoder:
        from airrformer.embed.encoders import load

        return load(self.encoder, self.weights, self.device)

    def _spans(self, sequences: list[str]) -> list[str]:
        there = [sequence for sequence in sequences if sequence]
        if self.region is None:
            found = [(0, len(sequence.replace(LOOP_END, ""))) for sequence in there]
        else:
            from airrformer.embed.encoders import spans_of_regions

            found = spans_of_regions(there, (self.region,))[0].tolist()
        spans = iter(found)
        return [":".join(map(str, next(spans))) if sequence else "" for sequence in sequences]

    def _chains(self, table: pd.DataFrame) -> Chains:
        """Those of each receptor; what one lacks is filled in."""
        filled = fill_missing(table, self._columns(), self.donors_)
        return [
            [Chain(*texts) for texts in zip(*(filled[f"{chain}_{part}"] for part in Chain._fields))]
            for chain in self.chains_
        ]

    # ------------------------------------------------------------------------------------------------- networks

    def _network(self, outputs: int, encoder=None) -> ResidueNetwork:
        from airrformer.classify.heads import ResidueNetwork

        size = self.head, self.hidden, self.kernel, self.dropout
        return ResidueNetwork(self.width_, len(self.chains_), outputs, *size, encoder, self.layer_)

    def _train(self, source: ResidueSource, chains, Y: np.ndarray, held: np.ndarray, seed: int):
        """What was trained, name -> float32 array, and the best epoch."""
        from airrformer.classify.heads import changes, learning_rates, trainable
        from airrformer.classify.training import train

        encoder, tuned = source.encoder, self.fine_tune != "none"
        read = _tokens(encoder, chains) if tuned else _vectors(source, chains)
        learned = np.flatnonzero(~held)
        some = learned[np.linspace(0, len(learned) - 1, min(len(learned), _SCALE_ROWS)).astype(int)]

        def build():
            own = trainable(encoder.model, self.fine_tune, self.layer_, self.lora_rank) if tuned else None
            network = self._network(Y.shape[1], own).to(encoder.device).eval()
            network.learn_scale(
                part for start in range(0, len(some), self.batch_size) for part in read(some[start:][: self.batch_size])
            )
            return network

        network, epoch = train(
            build,
            lambda network: learning_rates(network, *self.rates),
            read,
            Y,
            held,
            batch_size=self.batch_size,
            weight_decay=self.weight_decay,
            max_epochs=self.max_epochs,
            patience=self.patience,
            seed=seed,
            least_steps=_LEAST_STEPS,
            clip=_CLIP,
            at_once=AT_ONCE,
            device=encoder.device,
        )
        return network.own_state() | (changes(network.encoder) if tuned else {}), epoch

    def _logits(self, X) -> np.ndarray:
        check_is_fitted(self, "weights_")
        import torch

        X = self._read(X)
        chains, n = self._chains(X.table), len(X)
        found = np.zeros((len(self.weights_), n, len(self.classes_) if self.multi_ else 1))
        for logits, weights in zip(found, self.weights_ if n else []):
            network, read = self._restore(X.source, chains, weights)
            with torch.inference_mode():
                for start in range(0, n, AT_ONCE):
                    rows = np.arange(start, min(start + AT_ONCE, n))
                    logits[rows] = network(read(rows)).cpu().numpy()
        return found.mean(axis=0)

    def _restore(self, source: ResidueSource, chains, weights: Mapping[str, np.ndarray]):
        """A network with its weights, in eval mode, and what reads rows for it."""
        own = {name: value for name, value in weights.items() if not name.startswith(("encoder.", "adapter."))}
        encoder = None
        if self.fine_tune == "none":
            read, device = _vectors(source, chains), source.encoder.device
        else:
            encoder = self._tuned(source, weights)
            read, device = _tokens(encoder, chains), encoder.device
        network = self._network(len(own["top.4.bias"]), encoder and encoder.model)
        network.load_own_state(own)
        return network.to(device).eval(), read

    def _tuned(self, source: ResidueSource, weights: Mapping[str, np.ndarray]) -> ResidueEncoder:
        """The encoder as it was trained: with ``all`` made of its own weights, with ``lora`` of the source's."""
        from airrformer.classify.heads import changed
        from airrformer.core.config import ModelConfig
        from airrformer.core.transformer import Transformer
        from airrformer.embed.encoders import TransformerEncoder

        if self.fine_tune == "all":
            base, device = Transformer(ModelConfig.from_dict(self.config_)), source.device
        else:
            base, device = source.encoder.model, str(source.encoder.device)
        return TransformerEncoder(changed(base, weights), source.name, device)

    def __getstate__(self) -> dict:
        # The encoder is a file: a pickle names it and loads it again.
        return {key: value for key, value in super().__getstate__().items() if key != "source_"}


# ------------------------------------------------------------------------------------------ what a network is given

Chains = list[list[Chain]]  # of each chain that of each receptor
Read = Callable[[object], "list[Part]"]  # row numbers -> a part for each chain


def _vectors(source: ResidueSource, chains: Chains) -> Read:
    """What gives rows their residue vectors, of the spans alone."""
    import torch

    device = source.encoder.device

    def values_of(distinct: list[Chain]):
        made = source.vectors(distinct)
        return lambda used: [(torch.from_numpy(made[i]), np.arange(len(made[i]))) for i in used]

    return _reader(chains, values_of, 0, device)


def _tokens(encoder: ResidueEncoder, chains: Chains) -> Read:
    """What gives rows their tokens, of whole chains; the mask tells the spans."""
    import torch

    from airrformer.core.alphabet import PAD

    def values_of(distinct: list[Chain]):
        written = encoder.write([chain.sequence for chain in distinct], [chain.locus or None for chain in distinct])
        rows = [
            (torch.from_numpy(row.tokens), row.residues[slice(*bounds(chain.span))])
            for chain, row in zip(distinct, written)
        ]
        return lambda used: [rows[i] for i in used]

    return _reader(chains, values_of, PAD, encoder.device)


def _reader(chains: Chains, values_of: Callable, padding: int, device: torch.device) -> Read:
    """Rows of a batch, padded to the longest.

    values_of: distinct chains -> what gives some of them, each with the places that count.
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    from airrformer.classify.heads import Part

    parts = []
    for chain in chains:
        distinct, of = unique(chain)
        parts.append((values_of(distinct), of))

    def read(rows) -> list[Part]:
        found = []
        for values, of in parts:
            used, place = np.unique(of[np.asarray(rows)], return_inverse=True)
            some = values(used)
            padded = pad_sequence([row for row, _ in some], batch_first=True, padding_value=padding)
            mask = torch.zeros(padded.shape[:2], dtype=torch.bool)
            for i, (_, places) in enumerate(some):
                mask[i, places] = True
            found.append(Part(*(tensor.to(device) for tensor in (padded, mask, torch.from_numpy(place)))))
        return found

    return read


def similar_groups(chains: Chains) -> np.ndarray:
    """Who is held out together, int (n,): receptors whose read residues differ by one edit or less, and those in turn.

    Where that ties more than half of them into one, as in a mutational scan: those with the same residues.
    """
    read = [
        tuple(chain.sequence.replace(LOOP_END, "")[slice(*bounds(chain.span))] for chain in receptor)
        for receptor in zip(*chains, strict=True)
    ]
    groups = near_copies(read, _ALIKE)
    return near_copies(read, 0) if np.bincount(groups).max() > len(groups) / 2 else groups


def heads_of(estimator) -> list[ResidueHeadClassifier]:
    """The residue heads within a fitted estimator, in order: itself, or members of a stack."""
    if isinstance(estimator, ResidueHeadClassifier):
        return [estimator]
    return [head for member in getattr(estimator, "members_", []) for head in heads_of(member)]
