"""A saved classifier on new sequences: the same reading, the same encoders, the same features, then scores."""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd

from airrformer.classify.columns import text_columns
from airrformer.classify.features import View, prepare, residues_of, view_name
from airrformer.classify.novelty import nearest_training, taken_for_granted
from airrformer.classify.persistence import check_encoders, hash_names, load_model
from airrformer.config import ColumnsEncoder, Config, Dataset, Embedding
from airrformer.errors import UserError
from airrformer.parse import Parsed, parse_input
from airrformer.parse.chain import counted
from airrformer.paths import Results, check_output
from airrformer.receptors.genes import HUMAN, species_name
from airrformer.receptors.loops import receptor_letters
from airrformer.receptors.tables import write_table

logger = logging.getLogger(__name__)


def predict(model_dir: str | Path, input: str | Path, output: str | Path, device: str = "auto") -> pd.DataFrame:
    """Write the scores of the receptors in ``input`` to the TSV ``output``, and return them.

    One row a receptor, in order of first appearance: receptor_id and a column of probabilities a class (in regression
    one column of numbers). Beside it stand ``scores.rejected.tsv``, what was left out, and ``scores.nearest.tsv``, the
    most similar training receptors of each with a warning where it is unlike them all. Raises ``UserError`` when the
    model, its encoders or the input is not what it should be.
    """
    output = check_output(output, input)
    stem = output.name.removesuffix(".tsv")
    rejected, nearest = (
        check_output(output.with_name(f"{stem}.{kind}.tsv"), input) for kind in ("rejected", "nearest")
    )
    saved = load_model(model_dir)
    description, config, target = saved.description, saved.config, saved.target
    results = check_encoders(description, model_dir)
    dataset = config.datasets[target.dataset]
    usual = next(filter(None, map(species_name, saved.training.kinds.species)), HUMAN)
    parsed = parse_input(input, _reading_its_own(dataset), usual_species=usual)
    for note in parsed.notes:  # such as another locus or species than the dataset's
        logger.warning("%s", note)
    for note in _species_untold(parsed, saved.training.kinds.species):
        logger.warning("%s", note)

    letters = receptor_letters(parsed.receptor_ids, parsed.chains, dataset.chains)
    views, names = {}, []
    for embedding in config.inputs(target):
        view, columns = _view(config, embedding, parsed, letters, results, device)
        views[view_name(embedding)] = view
        names += columns
    if hash_names(names) != description["feature_names_sha256"]:
        raise UserError(
            f"{model_dir}: trained on {description['n_features']} features of another version than the "
            f"{len(names)} made here; run `airrformer classify` again"
        )
    X = views if config.reads_several(target) else next(iter(views.values()))
    scores = pd.DataFrame(saved.predict(X), columns=description["classes"])
    scores.insert(0, "receptor_id", parsed.receptor_ids, allow_duplicates=True)
    told = parsed.chains[["receptor_id", "chain", "locus"]].astype(object)
    told["species"], told["conflict"] = (pd.Series(c, dtype=object) for c in (parsed.species, parsed.conflicts))
    told["granted"] = taken_for_granted(parsed.chains)
    near = nearest_training(parsed.receptor_ids, letters, saved.training, told)
    write_table(parsed.rejected, rejected)
    write_table(near, nearest)
    write_table(scores, output)
    logger.info("%s: %d receptors scored; %s: %d left out", output, len(scores), rejected, len(parsed.rejected))
    unlike = near[near["warning"] != ""]["receptor_id"].nunique()
    if unlike:
        logger.warning(
            "%d of %d receptors are unlike those that the model was trained on; trust their scores less; see %s",
            unlike, len(scores), nearest,
        )  # fmt: skip
    return scores


def _reading_its_own(dataset: Dataset) -> Dataset:
    """The dataset, with the columns that it takes from a table of labels looked for in the new file."""
    labels = dataset.labels.model_copy(update={"path": None}) if dataset.labels else None
    return dataset.model_copy(update={"labels": labels})


def _species_untold(parsed: Parsed, trained: list[str]) -> list[str]:
    """Where nothing says whether receptors are of the species of training: a sentence with their number."""
    of = pd.Series(parsed.species, dtype=object).groupby(parsed.chains["receptor_id"].to_numpy()).first()
    notes, untold = [], int(of.isna().sum())
    if trained and untold:
        notes.append(
            f"nothing tells the species of {untold} of {len(of)} receptors (no column of species, no gene that is "
            f"known); scores hold for {' and '.join(trained)}, of which the training receptors are"
        )
    genes = parsed.genes[parsed.genes["column"].isin(["v_call", "j_call"]) & (parsed.genes["kept"] == "")]
    unknown = genes[genes["reason"].str.endswith(" is not known")]
    if len(unknown):
        notes.append(
            f"{', '.join(unknown['given'].head(3))}{', ...' if len(unknown) > 3 else ''}: no such gene is known (of "
            "antibodies those of human are, of TCRs those of human and mouse); "
            f"{counted(unknown['records'].sum(), 'call')} may be of another species"
        )
    return notes


def _columns(groups: dict[str, str], settings: ColumnsEncoder, parsed: Parsed) -> pd.DataFrame:
    """The columns of an encoder, of new receptors. Raises ``UserError`` where the file has none of their values.

    One receptor alone may lack a value, as it may among others.
    """
    said: dict[str, dict[str, str | None]] = {receptor: {} for receptor in parsed.receptor_ids}
    for row in parsed.label_rows:
        if row.receptor_id in said:
            said[row.receptor_id] |= {name: row.value(groups[name]) for name in settings.columns}
    for name in settings.columns:
        if not any(values.get(name) for values in said.values()) and (len(said) > 1 or not parsed.label_rows):
            raise UserError(
                f"{', '.join(parsed.formats)}: no column {groups[name]!r} with values, from which the model learned; "
                "give a table that has it"
            )
    return text_columns(list(said.values()), settings.columns)


def _view(
    config: Config, embedding: Embedding, parsed: Parsed, letters: pd.DataFrame, results: Results, device: str
) -> tuple[View, list[str]]:
    """What a classifier reads of new receptors, and the names of its columns."""
    settings = config.encoders[embedding.encoder]
    if settings.kind == "letters":
        return letters, letters.columns.tolist()
    if isinstance(settings, ColumnsEncoder):
        return _columns(config.datasets[embedding.dataset].groups, settings, parsed), settings.columns
    if config.read_as(embedding) == "residues":
        residues = residues_of(config, embedding, results, parsed.receptor_ids, parsed.chains, device)
        return residues, residues.table.columns.tolist()
    # imported here, so that what only reads letters does not pay for torch
    from airrformer.embed.features import dataset_features
    from airrformer.embed.stage import load_encoder

    dataset, poolings = config.datasets[embedding.dataset], {embedding.pooling: config.poolings[embedding.pooling]}
    encoder = load_encoder(settings.kind, results, embedding.encoder, device, "auto")
    made = dataset_features(parsed.chains, parsed.receptor_ids, dataset, settings, poolings, encoder)
    return prepare(made[embedding.pooling].matrix), made[embedding.pooling].names
