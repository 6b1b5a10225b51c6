"""The config, checked before any job starts, and what follows from it: paths, names, and what each job depends on."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

try:
    import airrformer
except ModuleNotFoundError:
    sys.exit(f"airrformer is not installed for {sys.executable}, which runs Snakemake; run: pip install -e .")

from airrformer.config import (
    AS_THEY_ARE,
    REVERSAL,
    TRAIN_FOLDS,
    PretrainEncoder,
    PublishedEncoder,
    Target,
    load_config,
    read_yaml,
)
from airrformer.core.weights import find_local
from airrformer.errors import UserError
from airrformer.paths import Results
from airrformer.versions import STAGE_VERSIONS

# One local GPU goes to one job at a time, unless --resources or a profile says that there are more.
if "gpu" not in workflow.global_resources:
    workflow.global_resources["gpu"] = 1

# Every job runs in the interpreter that runs Snakemake; nothing is looked up on PATH.
os.environ.update(AIRRFORMER_PYTHON=sys.executable)

try:
    for path in workflow.configfiles:
        read_yaml(path)  # stricter than Snakemake, which does not mind a key that stands there twice
    CONFIG = load_config(config, check_files=True)
except UserError as error:
    print(f"airrformer: {error}", file=sys.stderr)
    sys.exit(2)

RESULTS = Results()  # ./results, as the commands have it too
LOGS, BENCHMARKS = Path(RESULTS.root) / "logs", Path(RESULTS.root) / "benchmarks"
EXAMPLE = CONFIG.report.masked_example

TARGETS = CONFIG.expand_targets()
EMBEDDINGS = CONFIG.expand_embeddings()
RESIDUES = CONFIG.expand_residues()  # a classifier has the encoder make them: no features lie there beforehand
ENCODERS = list(dict.fromkeys(embedding.encoder for embedding in EMBEDDINGS + RESIDUES))
POOLINGS = list(dict.fromkeys(embedding.pooling for embedding in EMBEDDINGS))

# An encoder is trained here, or has published weights that may be out of reach, or needs no weights at all.
PRETRAINED = [name for name in ENCODERS if isinstance(CONFIG.encoders[name], PretrainEncoder)]
PUBLISHED = [name for name in ENCODERS if isinstance(CONFIG.encoders[name], PublishedEncoder)]
WRITERS = CONFIG.writers  # they make no features, so no target names them
GENERATING = [name for name in WRITERS if CONFIG.encoders[name].objective == "causal"]
FOLDED = [name for name in PRETRAINED if CONFIG.encoders[name].corpus == TRAIN_FOLDS]  # one more a fold
GUESSING = [name for name in PRETRAINED + PUBLISHED if EXAMPLE and EXAMPLE.receptor in CONFIG.encoders[name].receptors]

# A GPU is asked for where the config says so or, with `auto`, where the machine that runs Snakemake has one.
DEVICE = CONFIG.compute.device
GPUS = int(DEVICE.startswith("cuda") or (DEVICE == "auto" and shutil.which("nvidia-smi") is not None))

# Long jobs leave half of the cores (at most 8 are of use) to what does not wait for them.
HALF_THE_CORES = max(1, min(8, (workflow.cores or 16) // 2))

# Counts are not pooled, so one job makes either the one kind of features or the other.
COUNTED = [name for name in ENCODERS if CONFIG.encoders[name].kind == "kmer"]
DENSE = [name for name in ENCODERS if name not in COUNTED]
DENSE_POOLINGS = [name for name in POOLINGS if CONFIG.poolings[name].kind != "counts"]
COUNT_POOLINGS = [name for name in POOLINGS if CONFIG.poolings[name].kind == "counts"]

# Datasets to learn from, and whether what a model has to beat is made beside.
LEARNT = list(dict.fromkeys(target.dataset for target in TARGETS))
WITH_BASELINES = LEARNT if CONFIG.evaluation.baselines else []

# What is built, each with the encoders that it waits for.
CLASSIFIED = [(target, {embedding.encoder for embedding in CONFIG.inputs(target)}) for target in TARGETS]
MAPPED = [(RESULTS.map(*embedding), {embedding.encoder}) for embedding in EMBEDDINGS if embedding.encoder in DENSE]
WANTED = [(RESULTS.classifier(*target) / "metrics.json", encoders) for target, encoders in CLASSIFIED] + MAPPED
WANTED += [(RESULTS.features(*embedding), {embedding.encoder}) for embedding in EMBEDDINGS]
WANTED += [(RESULTS.masked(encoder), {encoder}) for encoder in GUESSING]
WANTED += [(RESULTS.encoder(encoder) / "model.safetensors", {encoder}) for encoder in WRITERS]
WANTED += [(RESULTS.generated(encoder), {encoder}) for encoder in GENERATING]
WANTED += [(RESULTS.baselines(dataset) / "metrics.json", set()) for dataset in WITH_BASELINES]
if CONFIG.keep_residues:
    WANTED += [
        (RESULTS.residues(*embedding[:2]), {embedding.encoder})
        for embedding in EMBEDDINGS
        if embedding.encoder in DENSE
    ]


def one_of(names):
    """A wildcard's constraint: these names and nothing else; without any name, nothing."""
    return "|".join(map(re.escape, names)) or "(?!)"


wildcard_constraints:
    dataset=one_of(CONFIG.datasets),
    encoder=one_of(CONFIG.encoders),
    pooling=one_of(CONFIG.poolings),
    classifier=one_of(CONFIG.classifiers),


# ------------------------------------------------------------------------------------------ encoders out of reach


def read_status(encoder):
    """status.json of an encoder with published weights, as it lies there; {} before its first job."""
    try:
        return json.loads(RESULTS.encoder_status(encoder).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def is_ready(encoder):
    """Whether an encoder can be used. For published weights the DAG waits for the checkpoint that says so."""
    if encoder in PUBLISHED:
        checkpoints.weights.get(encoder=encoder)
        return read_status(encoder).get("status") == "ready"
    return True


def skipped_encoders():
    statuses = {encoder: read_status(encoder) for encoder in PUBLISHED}
    return [
        f"{encoder}: {status['reason']}" for encoder, status in statuses.items() if status.get("status") == "skipped"
    ]


def local_weights(wildcards):
    """The weights file that is on this machine now, "" for none: tracked, so that one put in place later is used.

    A file that the workflow itself has downloaded was not there when the job was planned. It must not look like a
    change at the next run, so it counts as none for as long as it lies there.
    """
    encoder, status = CONFIG.encoders[wildcards.encoder], read_status(wildcards.encoder)
    if status.get("source") == "download" and Path(status["weights"]).is_file():
        return ""
    return find_local(encoder.published_name, encoder.weights) or ""


# ----------------------------------------------------------------- what each job depends on, and nothing besides
#
# Each is JSON with sorted keys, given to the command and tracked by Snakemake: a job runs again if and only if its
# part changes. Only schedule and device are outside: they are resources, which Snakemake does not track.


def parse_part(wildcards):
    return CONFIG.part(datasets=[wildcards.dataset])


def placed_files(wildcards):
    """The files of a dataset that lie where the config says."""
    dataset = CONFIG.datasets[wildcards.dataset]
    return [path for path in [*dataset.files, *dataset.label_files] if path not in dataset.moving]


def moving_files(wildcards):
    """Name, size and time of those below a variable of the environment: moved with it they are the same."""
    found = [(Path(path).name, Path(path).stat()) for path in CONFIG.datasets[wildcards.dataset].moving]
    return [[name, stat.st_size, stat.st_mtime_ns] for name, stat in found]


def weights_part(wildcards):
    # What to do without weights matters only as long as there are none.
    return CONFIG.part(encoders=[wildcards.encoder], unreachable=not local_weights(wildcards))


def corpus(wildcards):
    named = CONFIG.encoders[wildcards.encoder].corpus
    if named == REVERSAL:
        return []
    if named != TRAIN_FOLDS:
        return named
    return [name for name, dataset in CONFIG.datasets.items() if dataset.labels and fits(name, wildcards.encoder)]


def fits(dataset, encoder):
    return CONFIG.datasets[dataset].receptor in CONFIG.encoders[encoder].receptors


def pretrain_part(wildcards):
    folds = wildcards.encoder in FOLDED
    return CONFIG.part(
        datasets=corpus(wildcards), encoders=[wildcards.encoder], training=True, evaluation=folds, seed=True
    )


def embed_part(wildcards):
    return CONFIG.part(**fitting(wildcards))


def map_part(wildcards):
    return CONFIG.part(**fitting(wildcards), seed=True)


def fitting(wildcards):
    poolings = COUNT_POOLINGS if wildcards.encoder in COUNTED else DENSE_POOLINGS
    return {"datasets": [wildcards.dataset], "encoders": [wildcards.encoder], "poolings": poolings}


def classify_part(wildcards):
    return CONFIG.part(**CONFIG.parts_of(Target(*wildcards)), evaluation=True, seed=True)


def classify_input(wildcards):
    """The features that a target reads, its own or those of a stack's members; letters are no file of their own.

    Where it reads residues, the encoder that makes them.
    """
    inputs = CONFIG.inputs(Target(*wildcards))
    embeddings = [e for e in inputs if e.encoder in DENSE + COUNTED and e not in RESIDUES]
    read = list(dict.fromkeys(e.encoder for e in inputs if e in RESIDUES))
    return {
        "encoders": [path for encoder in read for path in encoder_files(encoder)],
        "fold_encoders": [RESULTS.fold_encoders(encoder) for encoder in read if encoder in FOLDED],
        "features": [RESULTS.features(*embedding) for embedding in embeddings],
        "folds": [RESULTS.folds(*embedding[:2]) for embedding in embeddings if embedding.encoder in FOLDED],
        "receptors": RESULTS.receptors(wildcards.dataset),
        "chains": RESULTS.chains(wildcards.dataset),
    }


def read_before(dataset):
    """The encoders trained here on named datasets that read a dataset, and the datasets that they have read."""
    encoders = [
        name
        for name, encoder in CONFIG.encoders.items()
        if isinstance(encoder, PretrainEncoder) and isinstance(encoder.corpus, list) and fits(dataset, name)
        if name not in WRITERS
    ]
    return encoders, list(dict.fromkeys(name for e in encoders for name in CONFIG.encoders[e].corpus))


def baselines_part(wildcards):
    encoders, corpora = read_before(wildcards.dataset)
    names = list(dict.fromkeys([wildcards.dataset, *corpora]))
    return CONFIG.part(datasets=names, encoders=encoders, evaluation=True, seed=True, corpora=True)


def compare_part(wildcards):
    targets = [target for target in TARGETS if target.dataset == wildcards.dataset]
    parts = [CONFIG.parts_of(target) for target in targets]
    names = {field: list(dict.fromkeys(n for part in parts for n in part[field])) for field in parts[0]}
    rows = [{field: [name] for field, name in zip(names, target)} for target in targets]
    return CONFIG.part(**names, evaluation=True, seed=True, targets=rows)


def compare_input(wildcards):
    """The predictions of all targets of a dataset whose encoders are there, and of its baselines."""
    folders = [
        RESULTS.classifier(*target)
        for target, encoders in CLASSIFIED
        if target.dataset == wildcards.dataset and all(map(is_ready, encoders))
    ]
    folders += [RESULTS.baselines(wildcards.dataset)] if wildcards.dataset in WITH_BASELINES else []
    return [folder / "predictions.tsv" for folder in folders]


def encoder_files(encoder):
    """The file of an encoder that its readers wait for; none for encoders without weights."""
    if encoder in PRETRAINED:
        return [RESULTS.encoder(encoder) / "model.safetensors"]
    return [RESULTS.encoder_status(encoder)] if encoder in PUBLISHED else []


def reads_residues(wildcards):
    return any(embedding in RESIDUES for embedding in CONFIG.inputs(Target(*wildcards)))


def report_input(wildcards):
    """Every result that there is; what stands on an encoder out of reach is left out and named by its status."""
    ready = {encoder for encoder in ENCODERS if is_ready(encoder)} | {
        name for name, encoder in CONFIG.encoders.items() if encoder.kind in AS_THEY_ARE
    }
    done = [target for target, encoders in CLASSIFIED if encoders <= ready]
    classified = [RESULTS.classifier(*target) for target in done]
    compared = list(dict.fromkeys(target.dataset for target in done))
    trained = [RESULTS.encoder(encoder) for encoder in PRETRAINED + WRITERS]
    return {
        "summaries": [RESULTS.parse_summary(dataset) for dataset in CONFIG.datasets],
        "chains": [RESULTS.chains(dataset) for dataset in CONFIG.datasets],
        "rejected": [RESULTS.rejected(dataset) for dataset in CONFIG.datasets],
        "statuses": [RESULTS.encoder_status(encoder) for encoder in PRETRAINED + WRITERS + PUBLISHED],
        "histories": [folder / "history.tsv" for folder in trained],
        "trainings": [folder / "metrics.json" for folder in trained],
        "metrics": [folder / "metrics.json" for folder in classified],
        "predictions": [folder / "predictions.tsv" for folder in classified],
        "baselines": [RESULTS.baselines(dataset) / "metrics.json" for dataset in WITH_BASELINES],
        "comparisons": [RESULTS.comparisons(dataset) for dataset in compared],
        "maps": [path for path, encoders in MAPPED if encoders <= ready],
        "masked": [RESULTS.masked(encoder) for encoder in GUESSING if encoder in ready],
        "generated": [RESULTS.generated(encoder).with_suffix(".json") for encoder in GENERATING],
    }
