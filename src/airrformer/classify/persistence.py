"""A fitted classifier on disk: ``model/`` with estimator.skops, training.parquet and config.json. Never a pickle.

What residue heads have learned stands beside in weights.safetensors: the heads, and of the encoder what was trained. An
encoder of which all was trained is in there whole; any other is read from its place, and must be the same.

config.json holds all that ``predict`` needs to make the same features from new sequences: the parts of the config, and
which encoders, by their folders relative to the results and the hashes of their weights. training.parquet holds the
loops, genes and labels of the training receptors, to tell how like them a new one is.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile, ZipInfo

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline

from airrformer import __version__
from airrformer.classify.calibration import Calibrator
from airrformer.classify.families import PerClass
from airrformer.classify.features import Inputs, Receptors
from airrformer.classify.kernels import ByDistance
from airrformer.classify.models import Fitted
from airrformer.classify.multi_kernel import MultiKernelSVC
from airrformer.classify.neighbors import DistanceNeighborsRegressor
from airrformer.classify.novelty import Kinds, Training
from airrformer.classify.receptor_peptide import ReceptorPeptideClassifier
from airrformer.classify.residue_heads import ResidueHeadClassifier, heads_of
from airrformer.classify.residues import ResidueCNN
from airrformer.classify.stacking import Stack
from airrformer.config import PLAIN_KINDS, Config, StackClassifier, Target, load_config
from airrformer.core.weights import sha256
from airrformer.errors import UserError
from airrformer.paths import Results, replacing, write_json
from airrformer.receptors.loops import receptor_letters
from airrformer.receptors.splits import class_lists
from airrformer.receptors.tables import write_table

# All that a saved classifier may hold beyond numbers and text. Fixed here: what a file asks for is never consulted.
TRUSTED_TYPES: tuple[str, ...] = (
    "airrformer.classify.families.PerClass",
    "airrformer.classify.multi_kernel.MultiKernelRidge",
    "airrformer.classify.multi_kernel.MultiKernelSVC",
    "airrformer.classify.multi_kernel.ViewKernel",
    "airrformer.classify.columns.ColumnsAsNumbers",
    "airrformer.classify.kernels.DensityStack",
    "airrformer.classify.kernels.DistanceNeighbors",
    "airrformer.classify.kernels.DistanceSVC",
    "airrformer.classify.kernels.KernelDensityRatio",
    "airrformer.classify.residues.Completed",
    "airrformer.classify.residues.LettersOf",
    "airrformer.classify.neighbors.DistanceNeighborsRegressor",
    "airrformer.classify.receptor_peptide.ReceptorPeptideClassifier",
    "airrformer.classify.residue_heads.ResidueHeadClassifier",
    "airrformer.classify.residues.LettersOneHot",
    "airrformer.classify.residues.PhysChem",
    "airrformer.classify.residues.ResidueCNN",
    "airrformer.classify.stacking.Stack",
    "airrformer.classify.vectors.Boosting",
    "airrformer.classify.vectors.Densify",
    "airrformer.classify.vectors.LinearSVM",
    "airrformer.classify.vectors.RBFSVM",
    "scipy.sparse._csr.csr_array",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.gaussian_process.kernels.ConstantKernel",
    "sklearn.gaussian_process.kernels.Product",
    "sklearn.gaussian_process.kernels.RBF",
    "sklearn.gaussian_process.kernels.Sum",
    "sklearn.gaussian_process.kernels.WhiteKernel",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.tree._tree.Tree",
)

# Of config.json: what predict stands on.
_CLASSIFIERS = (
    *(Pipeline, PerClass, Stack, ByDistance, ResidueCNN, ResidueHeadClassifier, MultiKernelSVC),
    *(TransformedTargetRegressor, DistanceNeighborsRegressor, ReceptorPeptideClassifier),
)
_KEYS = {
    *("config", "target", "results", "encoders", "task", "classes", "trained", "calibration", "usual_edits"),
    *("n_features", "feature_names_sha256", "n_receptors", "receptor_ids_sha256"),
}


def _skops():
    """``skops.io`` without torch: on import it walks through all of scikit-learn, and one package there imports torch.

    That one is shown to the walk as already there and empty, which spares each job that only fits a classifier
    seconds.
    """
    name = "sklearn.externals.array_api_compat.torch"
    stub = None
    if "skops.io" not in sys.modules and name not in sys.modules:
        stub = sys.modules[name] = ModuleType(name)
        stub.__path__ = []
    try:
        import skops.io
    finally:
        if stub is not None:
            del sys.modules[name]
    return skops.io


def save_model(
    folder: str | Path,
    config: Config,
    target: Target,
    results: Results,
    data: Receptors,
    inputs: Inputs,
    fitted: Fitted,
) -> None:
    """Write ``estimator.skops``, ``training.parquet`` and ``config.json``; each whole or not at all.

    And ``weights.safetensors``, where the estimator is a residue head or a stack that has one.
    """
    folder = Path(folder)
    if heads := heads_of(fitted.estimator):
        from safetensors.numpy import save_file

        with replacing(folder / "weights.safetensors") as temporary:
            save_file(_tensors(heads), temporary)
    with replacing(folder / "estimator.skops") as temporary, _without_weights(heads):
        temporary.write_bytes(_same_bytes(_skops().dumps(fitted.estimator)))
    letters = receptor_letters(data.ids, data.chains, config.datasets[target.dataset].chains)
    kinds = Kinds.of(data.chains, _species_of(config, target, results))
    training = Training.of(data.ids, _label_texts(data), letters, kinds)
    needed = {read.encoder for read in _leaves(config, target) if not _brings_encoder(config, read)}
    write_table(training.table(), folder / "training.parquet")
    write_json(
        folder / "config.json",
        {
            "version": 3,
            "target": target._asdict(),
            "config": json.loads(config.part(**config.parts_of(target), evaluation=True)),
            "task": config.datasets[target.dataset].task,
            "classes": data.classes,
            "trained": [bool(there) for there in fitted.trained],
            "thresholds": [float(threshold) for threshold in fitted.thresholds],
            "calibration": [calibrator.to_dict() for calibrator in fitted.calibrators],
            "usual_edits": training.usual,
            "kinds": asdict(kinds),
            "chosen": fitted.chosen,
            "n_features": len(inputs.feature_names),
            "feature_names_sha256": hash_names(inputs.feature_names),
            "n_receptors": len(data.ids),
            "receptor_ids_sha256": hash_names(data.ids),
            "results": os.path.relpath(results.root, folder),
            "encoders": [
                _describe_encoder(config, encoder, results, read=encoder in needed)
                for encoder in encoders_of(config, target)
            ],
            "versions": {name: version(name) for name in ("scikit-learn", "skops", "numpy")}
            | {"airrformer": __version__},
        },
    )


def _tensors(heads: list[ResidueHeadClassifier]) -> dict[str, np.ndarray]:
    """All weights of all networks, ``<head>.<network>.<name>``."""
    return {
        f"{i}.{j}.{name}": np.ascontiguousarray(value)
        for i, head in enumerate(heads)
        for j, weights in enumerate(head.weights_)
        for name, value in weights.items()
    }


@contextmanager
def _without_weights(heads: list[ResidueHeadClassifier]) -> Iterator[None]:
    kept = [head.weights_ for head in heads]
    for head in heads:
        head.weights_ = [{} for _ in head.weights_]
    try:
        yield
    finally:
        for head, weights in zip(heads, kept):
            head.weights_ = weights


def _fill_weights(heads: list[ResidueHeadClassifier], path: Path) -> None:
    from safetensors.numpy import load_file

    for name, value in load_file(path).items():
        head, network, own = name.split(".", 2)
        heads[int(head)].weights_[int(network)][own] = value


def _leaves(config: Config, target: Target) -> list[Target]:
    """The classifiers that read features themselves: a target, or the members of its stack."""
    settings = config.classifiers[target.classifier]
    if isinstance(settings, StackClassifier):
        return [leaf for member in settings.members for leaf in _leaves(config, config.source(target, member))]
    return [Target(*embedding, target.classifier) for embedding in config.inputs(target)]


def _brings_encoder(config: Config, target: Target) -> bool:
    """Whether a saved classifier holds the encoder that it reads by."""
    return getattr(config.classifiers[target.classifier], "fine_tune", None) == "all"


def _same_bytes(saved: bytes) -> bytes:
    """What ``skops`` wrote, the same from run to run.

    It names objects and files by where they lay in memory; here they are numbered as they come, and have no date.
    """
    with ZipFile(io.BytesIO(saved)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(files.pop("schema.json"))
    numbers: dict[int, int] = {}
    names: dict[str, str] = {}

    def renamed(node):
        if isinstance(node, list):
            return [renamed(value) for value in node]
        if isinstance(node, str) and node in files:
            return names.setdefault(node, f"{len(names)}{Path(node).suffix}")
        if not isinstance(node, dict):
            return node
        return {
            key: numbers.setdefault(value, len(numbers)) if key == "__id__" else renamed(value)
            for key, value in node.items()
        }

    written = {"schema.json": json.dumps(renamed(schema)).encode()} | {new: files[old] for old, new in names.items()}
    with io.BytesIO() as found:
        with ZipFile(found, "w") as archive:
            for name, content in written.items():
                archive.writestr(ZipInfo(name), content)
        return found.getvalue()


def encoders_of(config: Config, target: Target) -> list[str]:
    """The encoders that a target reads, once each."""
    return list(dict.fromkeys(embedding.encoder for embedding in config.inputs(target)))


def _species_of(config: Config, target: Target, results: Results) -> dict[str, int]:
    """How many chains of the dataset are of a species, as ``parse`` was told or its genes say; empty: not known."""
    try:
        return json.loads(results.parse_summary(target.dataset).read_text(encoding="utf-8")).get("species", {})
    except FileNotFoundError:  # tables that another program made
        return {}


def _label_texts(data: Receptors) -> list[str]:
    """The labels of each receptor, as its neighbours in a prediction are shown with."""
    if data.numbers is not None:
        return [f"{value:g}" for value in data.numbers[:, 0]]
    told = zip(class_lists(data.receptors), class_lists(data.receptors, "not_label"))
    return ["; ".join([*is_one, *(f"not {name}" for name in is_none)]) for is_one, is_none in told]


@dataclass(frozen=True)
class Saved:
    """A saved classifier: its estimator, what config.json says, and the receptors that it learned from.

    config, target: the parts of the config that it stands on, and which of them it is.
    """

    estimator: BaseEstimator
    description: dict
    training: Training
    config: Config
    target: Target

    def predict(self, X) -> np.ndarray:
        """Calibrated probabilities of each class, or numbers, float64 (m, K); NaN for a class that was not trained."""
        regression = self.description["task"] == "regression"
        trained = np.array(self.description["trained"])
        calibrators = tuple(Calibrator.from_dict(saved) for saved in self.description["calibration"])
        fitted = Fitted(self.estimator, trained, regression=regression, calibrators=calibrators)
        return fitted.calibrate(fitted.scores(X))


def load_model(folder: str | Path) -> Saved:
    """A saved classifier. Raises ``UserError`` for anything else in its place."""
    folder = Path(folder)
    try:
        description = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if not isinstance(description, dict) or description.get("version") != 3 or not description.keys() >= _KEYS:
            raise ValueError("it was not written by `airrformer classify` of this version")
        estimator = _skops().load(folder / "estimator.skops", trusted=list(TRUSTED_TYPES))
        if heads := heads_of(estimator):
            _fill_weights(heads, folder / "weights.safetensors")
        table = pd.read_parquet(folder / "training.parquet")
        # a model saved before kinds were kept warns of none
        training = Training.from_table(table, float(description["usual_edits"]), Kinds(**description.get("kinds", {})))
        config, target = load_config(description["config"]), Target(**description["target"])
        _check_whole(description, training, config, target)
    except OSError as error:
        raise UserError(
            f"{error.filename or folder}: cannot read the model: {error.strerror}; give the folder model/ that "
            "`airrformer classify` wrote"
        ) from None
    except Exception as error:  # skops and zipfile have no common class for a file that is not theirs
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{folder}: no saved classifier of airrformer: {reason}") from None
    if not isinstance(estimator, _CLASSIFIERS):
        raise UserError(f"{folder / 'estimator.skops'}: holds a {type(estimator).__name__}, not a classifier")
    return Saved(estimator, description, training, config, target)


def _check_whole(description: dict, training: Training, config: Config, target: Target) -> None:
    """Raises ``ValueError`` where the parts of a saved classifier are not of one another."""
    if hash_names(training.ids) != description["receptor_ids_sha256"]:
        raise ValueError("training.parquet does not hold the receptors that it was trained on")
    for calibration in description["calibration"]:
        Calibrator.from_dict(calibration).apply(np.array([0.5]))
    classes = len(description["classes"])
    calibrations = classes if description["task"] == "classification" else 0
    if len(description["trained"]) != classes or len(description["calibration"]) != calibrations:
        raise ValueError("config.json names another number of classes than it calibrates")
    sections = (config.datasets, config.encoders, config.poolings, config.classifiers)
    if not all(name in section for name, section in zip(target, sections)):
        raise ValueError(f"config.json does not say what {'/'.join(target)} is")
    if description["task"] != config.datasets[target.dataset].task:
        raise ValueError(f"config.json calls its task {description['task']!r}")


def check_encoders(description: dict, folder: str | Path) -> Results:
    """The results that the model belongs to, its encoders there being those that it was trained on.

    Raises ``UserError`` when an encoder's folder or weights are gone or have changed.
    """
    results = Results(os.path.normpath(Path(folder) / description["results"]))
    for encoder in description["encoders"]:
        if encoder["sha256"] is None:
            continue
        place = results.encoder(encoder["name"])
        weights = _weights_file(results, encoder["name"])
        if weights is None or not weights.is_file():
            raise UserError(
                f"{place}: the encoder of this model is not there ({weights or 'no weights'}); keep model/ and "
                "encoders/ in their places under one results folder"
            )
        if sha256(weights) != encoder["sha256"]:
            raise UserError(
                f"{weights}: these are not the weights that the model was trained on; run `airrformer classify` again"
            )
    return results


def hash_names(names: list[str]) -> str:
    """One hash of a list of names, in order."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def _describe_encoder(config: Config, encoder: str, results: Results, read: bool) -> dict:
    kind = config.encoders[encoder].kind
    weights = _weights_file(results, encoder) if read and kind not in PLAIN_KINDS else None
    return {
        "name": encoder,
        "kind": kind,
        "directory": os.path.relpath(results.encoder(encoder), results.root) if weights else None,
        "sha256": sha256(weights) if weights else None,
    }


def _weights_file(results: Results, encoder: str) -> Path | None:
    """Our own model.safetensors, or the foreign file that status.json names."""
    own = results.encoder(encoder) / "model.safetensors"
    if own.is_file():
        return own
    try:
        status = json.loads(results.encoder_status(encoder).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Path(status["weights"]) if status.get("weights") else None
