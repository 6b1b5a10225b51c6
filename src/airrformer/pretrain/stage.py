"""The pretrain stage: chains tables -> ``results/encoders/<encoder>/``, whole or not at all."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from airrformer.config import REVERSAL, TRAIN_FOLDS, Config, PretrainEncoder
from airrformer.core import weights
from airrformer.core.config import ModelConfig
from airrformer.core.transformer import Transformer
from airrformer.errors import UserError
from airrformer.paths import Results, fold_name, write_json, write_text
from airrformer.pretrain import causal, regions, reversal
from airrformer.pretrain.card import write_card
from airrformer.pretrain.corpus import READ_COLUMNS, Corpus, build_corpus, encode_all
from airrformer.pretrain.objectives import HiddenResidues, NoisedViews, Objective
from airrformer.pretrain.reading import Reader
from airrformer.pretrain.train import Place, Training, stability, train
from airrformer.receptors.splits import CannotSplit, assign_folds
from airrformer.receptors.tables import read_chains, read_receptors, write_table

log = logging.getLogger(__name__)


def pretrain_encoder(
    config: Config, name: str, results: Results, output: str | Path, device: str = "auto", precision: str = "auto"
) -> None:
    """Train the encoder ``name`` of the config on its parsed datasets in ``results``; see ``pretrain``."""
    settings = _settings(config, name)
    datasets = [] if settings.corpus == REVERSAL else settings.corpus
    columns = [*READ_COLUMNS, "junction_aa"] if settings.sequence == ["junction"] else READ_COLUMNS
    if settings.corpus == TRAIN_FOLDS:
        columns = None  # folds are made of all that a receptor has
        datasets = [d for d, dataset in config.datasets.items() if dataset.labels and _fits(dataset, settings)]
    chains = _Tables({dataset: results.chains(dataset) for dataset in datasets}, columns)
    receptors = None
    if settings.corpus == TRAIN_FOLDS or settings.supervised:  # else nobody asks who they are
        receptors = {dataset: read_receptors(results.receptors(dataset)) for dataset in datasets}
    pretrain(config, name, chains, output, device, precision, receptors)


@dataclass(frozen=True)
class _Tables(Mapping):
    """Chains tables by dataset, read from their files when they are asked for, so that none stays in memory."""

    paths: Mapping[str, Path]
    columns: Sequence[str] | None

    def __getitem__(self, name: str) -> pd.DataFrame:
        return read_chains(self.paths[name], self.columns)

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)


def pretrain(
    config: Config,
    name: str,
    chains: Mapping[str, pd.DataFrame],
    output: str | Path,
    device: str = "auto",
    precision: str = "auto",
    receptors: Mapping[str, pd.DataFrame] | None = None,
) -> None:
    """Train the encoder ``name`` on ``chains`` (a chains table a dataset) and write it into ``output``.

    With ``corpus: train_folds`` one more encoder is trained for each fold of each split, on all chains but those of
    the fold's test receptors, into ``output/folds/<split>_<seed>_<fold>/``; ``receptors`` (a receptors table a
    dataset) says who is tested where. Nothing stands under a final name before all is done.
    Raises ``UserError`` for a corpus that is empty or has too long chains, and for a training that diverges.
    """
    settings = _settings(config, name)
    if not chains and settings.corpus != REVERSAL:
        raise UserError(f"encoders.{name}.corpus: no dataset to train on; name at least one")
    place = Place.choose(device, precision)
    with _whole_folder(Path(output)) as folder:
        if settings.corpus == TRAIN_FOLDS:
            if receptors is None:
                raise ValueError("corpus: train_folds needs the receptors tables: they say who is tested in which fold")
            for fold, excluded in folds_and_tested(config, chains, receptors):
                log.info("fold %s: without its %d test receptors", fold, sum(map(len, excluded.values())))
                of_fold = _train(config, settings, chains, place, receptors, excluded)
                weights.save(of_fold.training.model, folder / "folds" / fold)
        done = _train(config, settings, chains, place, receptors)
        weights.save(done.training.model, folder)
        write_table(pd.DataFrame(done.training.history), folder / "history.tsv")
        metrics = _metrics(config, settings, done, place)
        if settings.objective == "seq2seq":
            write_table(reversal.cross_attention(done.training.model, place), folder / "cross_attention.tsv")
        write_json(folder / "metrics.json", metrics)
        write_text(folder / "card.md", write_card(name, settings, metrics))
        status = {
            "status": "ready",
            "kind": settings.kind,
            "objective": settings.objective,
            "sequence": settings.sequence[0],
            "encoder": name,
            "name": None,
            "weights": (Path(output) / "model.safetensors").as_posix(),
            "source": "trained",
            "sha256": weights.sha256(folder / "model.safetensors"),
            "reason": None,
        }
        write_json(folder / "status.json", status)
    for sentence in _results(metrics):
        log.info("%s", sentence)


def folds_and_tested(
    config: Config, chains: Mapping[str, pd.DataFrame], receptors: Mapping[str, pd.DataFrame]
) -> Iterator[tuple[str, dict[str, set[str]]]]:
    """Each fold's name, ``<split>_<seed>_<fold>``, and the receptors of each dataset that are tested in it."""
    evaluation = config.evaluation
    for split in evaluation.splits:
        for seed in evaluation.seeds:
            folds: dict[str, np.ndarray] = {}
            for name, table in receptors.items():
                try:
                    folds[name] = assign_folds(split, table, chains[name], config.datasets[name], evaluation, seed)
                except CannotSplit as reason:
                    log.warning("%s: %s; no encoders for the folds of this split", name, reason)
            for fold in range(max((of.max() for of in folds.values()), default=-1) + 1):
                yield (
                    fold_name(split, seed, fold),
                    {name: set(receptors[name]["receptor_id"][of == fold]) for name, of in folds.items()},
                )


# ----------------------------------------------------------------------------------------------------- one training


@dataclass(frozen=True)
class _Done:
    training: Training
    objective: Objective
    corpus: Corpus | None
    seconds: float


def _train(
    config: Config,
    settings: PretrainEncoder,
    chains: Mapping[str, pd.DataFrame],
    place: Place,
    receptors: Mapping[str, pd.DataFrame] | None,
    excluded: Mapping[str, set[str]] | None = None,
) -> _Done:
    started = time.monotonic()
    corpus, objective = _objective(config, settings, chains, receptors, excluded)
    model_config = settings.to_model_config()
    training = Training.start(model_config, settings.train, config.seed, place)
    train(training, settings.train, objective, config.seed, place)
    return _Done(training, objective, corpus, round(time.monotonic() - started, 1))


def _objective(
    config: Config,
    settings: PretrainEncoder,
    chains: Mapping[str, pd.DataFrame],
    receptors: Mapping[str, pd.DataFrame] | None,
    excluded: Mapping[str, set[str]] | None,
) -> tuple[Corpus | None, Objective]:
    training, seed = settings.train, config.seed
    if settings.objective == "seq2seq":
        return None, reversal.Reversal(training, seed)
    if settings.objective == "causal" and settings.sequence == ["junction"]:
        chains = {name: _junctions(name, table) for name, table in chains.items()}
    model = settings.to_model_config()
    around = len(model.before) + len(model.after) + 2 * model.tags
    labels = None
    if settings.supervised:
        labels = {name: _classes(name, table) for name, table in (receptors or {}).items()}
    corpus = build_corpus(
        chains,
        settings.model.max_length - around,
        training.validation_fraction,
        seed,
        excluded,
        training.held_out_edits,
        labels,
    )
    if settings.objective == "causal":
        encoded = [encode_all(part.chains["sequence_aa"]) for part in (corpus.train, corpus.validation)]
        return corpus, causal.NextResidue(*encoded, training, seed)
    species = {name: config.datasets[name].named_species for name in chains}
    readers = [
        Reader(part, model, tuple(settings.sequence), settings.pairs, species)
        for part in (corpus.train, corpus.validation)
    ]
    for reader in readers:
        _check_window(reader, model)
    if settings.objective == "masked":
        return corpus, HiddenResidues(*readers, training, seed)
    guess = training.guess_weight if settings.objective == "both" else 0.0
    return corpus, NoisedViews(*readers, training, seed, guess, settings.supervised)


def _check_window(reader: Reader, model: ModelConfig) -> None:
    longest = int(reader.lengths.max())
    if model.max_length is not None and longest > model.max_length:
        row = int(reader.lengths.max(0).argmax())
        shown = "/".join(reader.part.chains["sequence_aa"][chain][:20] for chain in reader.members[row] if chain >= 0)
        raise UserError(
            f"the longest receptor, {shown}..., is {longest} tokens with its two chains together; raise the encoder's "
            f"model.max_length from {model.max_length} to {longest} or more, or leave such receptors out"
        )


def _classes(name: str, receptors: pd.DataFrame) -> pd.Series:
    """The first class of each receptor that has any, by receptor_id."""
    labelled = receptors[receptors["label"].map(lambda label: isinstance(label, list) and len(label) > 0)]
    if labelled.empty:
        raise UserError(
            f"{name}: no receptor has a class, so that `supervised` has nothing to learn from; leave it out"
        )
    return labelled.set_index("receptor_id")["label"].str[0]


_COMPARED = 100  # chains of each locus: the published encoders are large


def _compared(
    model: Transformer, settings: PretrainEncoder, chains: pd.DataFrame, seed: int, place: Place
) -> dict[str, dict]:
    """How well this encoder and published ones guess the same hidden residues, by encoder and locus.

    Of an encoder whose weights are not at hand stands nothing.
    """
    if not settings.compare:
        return {}
    some = chains.groupby("locus", group_keys=False)[chains.columns].apply(
        lambda of_locus: of_locus.sample(min(_COMPARED, len(of_locus)), random_state=seed)
    )
    sequences, loci = some["sequence_aa"].tolist(), some["locus"].tolist()
    found = {"": regions.guess_hidden(model, sequences, settings.train, seed, place, loci)}
    for name in settings.compare:
        file = weights.find_local(name)
        if file is None:
            log.warning("%s: its weights are not on this machine; it is not compared", name)
            continue
        published = weights.load_foreign(name, file).to(place.device)
        found[name] = regions.guess_hidden(published, sequences, settings.train, seed, place)
    some = some.reset_index(drop=True)
    return {name: regions.by_locus(some, guesses) for name, guesses in found.items()}


def _junctions(name: str, chains: pd.DataFrame) -> pd.DataFrame:
    found = causal.junctions(chains)
    if found.empty:
        raise UserError(f"{name}: no chain has a junction; take `sequence: chain`, or another dataset into the corpus")
    if len(found) < len(chains):
        log.info("%s: %d of %d chains have no junction and are left out", name, len(chains) - len(found), len(chains))
    return found


def _metrics(config: Config, settings: PretrainEncoder, done: _Done, place: Place) -> dict:
    training, objective, corpus, seed = done.training, done.objective, done.corpus, config.seed
    parameters = training.model.config.parameters()
    metrics = {
        "version": 2,
        "objective": settings.objective,
        "parameters": sum(parameters.values()),
        "parameters_by_part": parameters,
        "steps": training.step,
        "best_step": training.best_step,
        "seconds": done.seconds,
        "seed": seed,
        "corpus": [REVERSAL] if corpus is None else list(corpus.names),
        "n_train": None if corpus is None else len(corpus.train.chains),
        "n_validation": None if corpus is None else len(corpus.validation.chains),
        "n_receptors": None if corpus is None else len(corpus.train.receptors),
        "device": str(place.device),
        "precision": place.precision,
        "stability": stability(training.history),
    }
    if settings.objective in ("masked", "both"):
        chains, loci = corpus.validation.chains, corpus.validation.chains["locus"].tolist()
        guesses = regions.guess_hidden(
            training.model, chains["sequence_aa"].tolist(), settings.train, seed, place, loci
        )
        unigrams = regions.Unigrams(corpus.train.chains)
        metrics["regions"] = regions.measure(chains, guesses, unigrams)
        metrics["regions_by_locus"] = regions.by_locus(chains, guesses, unigrams)
        metrics["compared"] = _compared(training.model, settings, chains, seed, place)
    elif settings.objective == "contrastive":
        kept = training.best_step if settings.train.average == 1 else training.step
        metrics["views_told"] = next(r["validation_accuracy"] for r in training.history if r["step"] == kept)
    elif settings.objective == "causal":
        metrics["next_residue"] = causal.measure(
            training.model, objective.train, objective.validation, settings.train, place
        )
    else:
        metrics["reversal"] = reversal.measure(training.model, seed, place)
    return metrics


def _results(metrics: dict) -> Iterator[str]:
    """What the log says at the end, a sentence each."""
    for group, values in metrics.get("regions", {}).items():
        if values["n"]:
            yield _guessed(group, values) + (
                f"; by region: {values['unigram_perplexity']:.2f}, {100 * values['unigram_accuracy']:.1f} %)"
            )
    if "next_residue" in metrics:
        yield _guessed("next residue or end", metrics["next_residue"]) + ")"
    if "reversal" in metrics:
        values = metrics["reversal"]
        on = ", ".join(f"{share:.1%}" for share in values["antidiagonal"])
        yield (
            f"{values['greedy_exact']} of {values['n']} new strings written backwards exactly, {values['beam_exact']} "
            f"by a beam of {values['beam_width']}; {values['example']} -> {values['example_reversed']}; "
            f"cross-attention on the anti-diagonal, by layer: {on}"
        )


def _guessed(what: str, values: dict) -> str:
    return (
        f"{what}: perplexity {values['perplexity']:.2f}, {100 * values['accuracy']:.1f} % right (counts by position: "
        f"{values['position_unigram_perplexity']:.2f}, {100 * values['position_unigram_accuracy']:.1f} %"
    )


def _settings(config: Config, name: str) -> PretrainEncoder:
    settings = config.encoders.get(name)
    if not isinstance(settings, PretrainEncoder):
        known = [n for n, encoder in config.encoders.items() if encoder.kind == "pretrain"]
        raise UserError(
            f"encoder {name!r} is none that is trained from scratch (kind: pretrain); the config has {known or 'none'}"
        )
    return settings


def _fits(dataset, settings: PretrainEncoder) -> bool:
    return dataset.receptor in settings.receptors


@contextmanager
def _whole_folder(output: Path) -> Iterator[Path]:
    """A temporary folder beside ``output``; on success its files move there, the status last, else they vanish."""
    if output.exists() and not output.is_dir():  # said now, not after hours of training
        raise UserError(f"{output}: this is a file; name a folder to write to")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{output.name}.", suffix=".part", dir=output.parent))
    except OSError as error:
        raise UserError(f"{output}: no folder can be written here: {error.strerror}; name another output") from None
    try:
        yield folder
        shutil.rmtree(output / "folds", ignore_errors=True)  # those of an earlier training with other folds
        files = [path for path in folder.rglob("*") if path.is_file()]
        for path in sorted(files, key=lambda path: path.name == "status.json"):
            target = output / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
