"""The whole DAG with the real command, on some of the demo's receptors: what is built, runs again, and stops.

One small project is run once; most tests then plan (``--dry-run``) what a change of its config would run again.
"""

from __future__ import annotations

import copy
import csv
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import yaml

ROOT = Path(__file__).parents[2]
CLASSES = ["YLQPRTFLL", "KTFPPTEPK"]
EXAMPLE = (
    "DGGITQSPKYLFRKEGQNVTLSCEQNLNHDAMYWYRQDPGQGLRLIYYSQIVNDFQKGDIAEGYSVSREKKESFPLTVTSAQKNPTAFYLCASSIRSSYEQYFGPGTRLTVT"
)

CONFIG = {
    "compute": {"device": "cpu"},
    "datasets": {
        "tcr": {
            "sequences": "tcr.fasta.gz",
            "id": "{receptor_id}|{locus}|{v_call}|{junction_aa}|{j_call}",
            "receptor": "TCR",
            "chains": ["TRB"],
            "labels": {"path": "tcr.labels.tsv", "column": "epitope"},
            "groups": {"donor": "subject_id"},
        }
    },
    "encoders": {
        "scratch": {
            "kind": "pretrain",
            "corpus": ["tcr"],
            "model": {"layers": 1, "width": 32, "heads": 2, "feed_forward": 64},
            "train": {"steps": 20, "batch_tokens": 512, "validate_every": 10, "warmup_steps": 5},
        },
        "blosum62": {"kind": "blosum62"},
        "kmer": {"kind": "kmer", "k": 2},
    },
    "poolings": {"mean": {"kind": "mean"}, "counts": {"kind": "counts"}},
    "classifiers": {"logistic": {"kind": "logistic_regression", "grid": {"C": [1]}}},
    "evaluation": {"splits": ["random", "group"], "folds": 2, "bootstrap": 100},
    "report": {"masked_example": {"name": "R7", "sequence": EXAMPLE, "region": "CASSIRSSYEQYF"}},
}
ESM = {"kind": "esm2", "name": "esm2_t6_8M_UR50D", "weights": "weights/esm.pt", "if_unreachable": "skip"}


class Project:
    """A folder with data, a config and its results; ``run`` is the real command, in a subprocess."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.config = copy.deepcopy(CONFIG)

    def run(self, *arguments: str, config: dict | None = None) -> subprocess.CompletedProcess:
        (self.folder / "config").mkdir(exist_ok=True)
        text = json.dumps(self.config if config is None else config)
        (self.folder / "config" / "config.yaml").write_text(text, encoding="utf-8")
        return snakemake(self.folder, *arguments)

    def planned(self, config: dict | None = None) -> Counter:
        """How many jobs of each rule a run with ``config`` would start; the project itself is left as it is."""
        done = self.run("--dry-run", config=config)
        assert done.returncode == 0, done.stderr
        return jobs(done)

    def results(self, path: str) -> Path:
        return self.folder / "results" / path


def snakemake(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    # Caches and the network out of reach: what is found must not depend on the machine.
    nowhere = {name: str(folder / "no_cache") for name in ("TORCH_HOME", "HF_HOME", "HF_HUB_CACHE")}
    proxies = {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")}
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--cores", "2"]
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env={**os.environ, **nowhere, **proxies, "no_proxy": "", "NO_PROXY": ""},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=600,
    )


def jobs(done: subprocess.CompletedProcess) -> Counter:
    """Rule -> number of jobs, from the job headers; the target rule counts for nothing."""
    names = re.findall(r"^(?:local)?(?:rule|checkpoint) (\w+):$", done.stdout + done.stderr, flags=re.MULTILINE)
    return Counter(name for name in names if name not in ("all", "default"))


def changed(path: str, value: object) -> dict:
    """The small project's config with the value at ``path`` (a.b.c) replaced or added."""
    config = copy.deepcopy(CONFIG)
    *parents, last = path.split(".")
    inner = config
    for name in parents:
        inner = inner[name]
    inner[last] = value
    return config


def write_data(folder: Path, per_class: int = 24) -> None:
    """Some of the demo's receptors, with their labels and donors."""
    with open(ROOT / "data" / "sars2_tcr.labels.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    chosen = {}
    for label in CLASSES:
        chosen |= {row["receptor_id"]: row for row in [row for row in rows if row["epitope"] == label][:per_class]}
    with gzip.open(ROOT / "data" / "sars2_tcr.fasta.gz", "rt", encoding="utf-8") as file:
        records = [record for record in file.read().split(">")[1:] if record.partition("|")[0] in chosen]
    with gzip.open(folder / "tcr.fasta.gz", "wt", encoding="utf-8") as file:
        file.write("".join(f">{record}" for record in records))
    with open(folder / "tcr.labels.tsv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t")
        writer.writeheader()
        writer.writerows(chosen.values())


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Project:
    """The small project, run once. Tests that change it work on a copy."""
    project = Project(tmp_path_factory.mktemp("project"))
    write_data(project.folder)
    done = project.run()
    assert done.returncode == 0, done.stderr
    return project


@pytest.fixture
def own_copy(project, tmp_path) -> Project:
    """The finished project in a folder of its own; modification times are kept, so nothing needs to run."""
    shutil.copytree(project.folder, tmp_path / "project")
    return Project(tmp_path / "project")


# ---------------------------------------------------------------------------------------------------- what is built


def test_everything_is_where_the_design_says(project):
    for path in (
        "tcr/chains.parquet",
        "tcr/receptors.parquet",
        "tcr/rejected.tsv",
        "encoders/scratch/model.safetensors",
        "encoders/scratch/config.json",
        "encoders/scratch/history.tsv",
        "encoders/scratch/card.md",
        "encoders/scratch/status.json",
        "encoders/scratch/masked.tsv",
        "tcr/scratch/mean/features.parquet",
        "tcr/scratch/mean/map.tsv",
        "tcr/scratch/mean/logistic/metrics.json",
        "tcr/scratch/mean/logistic/predictions.tsv",
        "tcr/scratch/mean/logistic/card.md",
        "tcr/scratch/mean/logistic/model/estimator.skops",
        "tcr/blosum62/mean/logistic/metrics.json",
        "tcr/kmer/counts/logistic/metrics.json",
        "tcr/baselines/metrics.json",
        "tcr/baselines/predictions.tsv",
        "tcr/comparisons.tsv",
        "leaderboard.tsv",
        "report.html",
    ):
        assert project.results(path).stat().st_size > 0, path
    assert not project.results("encoders/blosum62").exists()
    assert not project.results("tcr/kmer/mean").exists()


def test_every_job_leaves_a_log_and_a_benchmark(project):
    for path in ("parse/tcr", "pretrain/scratch", "embed/tcr/scratch", "classify/tcr/kmer/counts/logistic", "report"):
        assert project.results(f"logs/{path}.log").is_file()
        assert pd.read_csv(project.results(f"benchmarks/{path}.tsv"), sep="\t")["s"].item() > 0


def test_leaderboard_has_a_row_for_each_target_and_split(project):
    board = pd.read_csv(project.results("leaderboard.tsv"), sep="\t")
    models, baselines = board[board["kind"] == "model"], board[board["kind"] != "model"]
    found = list(zip(models["encoder"], models["pooling"], models["split"], models["status"]))
    assert found == [
        (encoder, pooling, split, "ok")
        for encoder, pooling in [("scratch", "mean"), ("blosum62", "mean"), ("kmer", "counts")]
        for split in ("random", "group")
    ]
    assert {"genes_only", "kmers", "nearest_tcrdist"} < set(baselines["classifier"])
    assert baselines.groupby("classifier")["split"].agg(set).map(lambda splits: splits == {"random", "group"}).all()
    assert board["auroc"].between(0, 1).all() and (board["auroc_low"] <= board["auroc_high"]).all()


def test_predict_scores_new_receptors_in_their_order(project, tmp_path):
    genes = "TRB|TRBV19*01|CASSIRSSYEQYF|TRBJ2-7*01"
    records = f">new2|{genes}\n{EXAMPLE}\n>new1|{genes}\n{EXAMPLE}\n>bad|{genes}\nCAS1\n"
    (tmp_path / "new.fasta.gz").write_bytes(gzip.compress(records.encode()))
    model = project.results("tcr/scratch/mean/logistic/model")
    command = [sys.executable, "-m", "airrformer", "predict", "--model", str(model)]
    done = subprocess.run(
        [*command, "--input", "new.fasta.gz", "--output", "scores.tsv"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    scores = pd.read_csv(tmp_path / "scores.tsv", sep="\t")
    assert sorted(scores.columns) == sorted(["receptor_id", *CLASSES])
    assert scores["receptor_id"].tolist() == ["new2", "new1"]
    assert scores[CLASSES].iloc[0].tolist() == scores[CLASSES].iloc[1].tolist()
    assert pd.read_csv(tmp_path / "scores.rejected.tsv", sep="\t")["id"].str.startswith("bad").all()
    near = pd.read_csv(tmp_path / "scores.nearest.tsv", sep="\t")
    assert near["receptor_id"].tolist() == ["new2"] * 3 + ["new1"] * 3 and near["training_receptor"].notna().all()


# -------------------------------------------------------------------------------------------------- what runs again


def test_second_run_has_nothing_to_do(project):
    done = project.run()
    assert done.returncode == 0, done.stderr
    assert "Nothing to be done" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("compute", {"device": "auto", "precision": "fp32"}, {}),
        ("targets", [{"encoders": ["kmer"]}], {"compare": 1, "report": 1}),
        (
            "classifiers.logistic",
            {"kind": "logistic_regression", "grid": {"C": [2]}},
            {"classify": 3, "compare": 1, "report": 1},
        ),
        ("classifiers.knn", {"kind": "k_nearest_neighbors"}, {"classify": 3, "compare": 1, "report": 1}),
        ("evaluation.folds", 3, {"classify": 3, "baselines": 1, "compare": 1, "report": 1}),
        ("evaluation.baselines", False, {"compare": 1, "report": 1}),
        ("encoders.kmer.k", 3, {"embed_counts": 1, "classify": 1, "compare": 1, "report": 1}),
        (
            "encoders.scratch.train.steps",
            21,
            {"pretrain": 1, "embed": 1, "classify": 1, "explain_map": 1, "explain_masked": 1, "compare": 1}
            | {"report": 1},
        ),
        ("encoders.scratch.receptors", ["TCR"], {"report": 1}),
        ("poolings.max", {"kind": "max"}, {"embed": 2, "classify": 4, "explain_map": 2, "compare": 1, "report": 1}),
        ("keep_residues", True, {"embed": 2, "classify": 2, "explain_map": 2, "compare": 1, "report": 1}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_change_runs_what_depends_on_it_and_nothing_else(project, path, value, expected):
    assert project.planned(changed(path, value)) == expected


def test_more_cores_run_nothing_again(project):
    done = project.run("--dry-run", "--cores", "7")
    assert jobs(done) == {}


def test_a_new_dataset_runs_nothing_of_the_others(project):
    shutil.copy(project.folder / "tcr.fasta.gz", project.folder / "second.fasta.gz")
    dataset = {**CONFIG["datasets"]["tcr"], "sequences": "second.fasta.gz"}
    done = project.run("--dry-run", config=changed("datasets.second", dataset))
    planned = jobs(done)
    assert planned == {
        "parse": 1, "embed": 2, "embed_counts": 1, "classify": 3, "baselines": 1, "compare": 1, "explain_map": 2,
        "report": 1,
    }  # fmt: skip
    assert "wildcards: dataset=tcr" not in done.stdout + done.stderr


def test_a_changed_input_file_runs_what_stands_on_it(own_copy):
    with (own_copy.folder / "tcr.labels.tsv").open("a", encoding="utf-8") as file:
        file.write(f"nobody\t{CLASSES[0]}\t1\n")
    planned = own_copy.planned()
    assert planned["parse"] == 1 and planned["classify"] == 3 and planned["report"] == 1


# ----------------------------------------------------------------------------------------- encoders out of reach


def test_encoder_out_of_reach_is_skipped_and_used_once_its_file_is_there(own_copy):
    from airrformer.core.weights import sha256

    own_copy.config["encoders"]["esm"] = dict(ESM)
    done = own_copy.run()
    assert done.returncode == 0, done.stderr
    assert jobs(done) == {"weights": 1, "compare": 1, "report": 1}
    assert "skipped: " in done.stderr and "weights/esm.pt" in done.stderr
    status = json.loads(own_copy.results("encoders/esm/status.json").read_text(encoding="utf-8"))
    assert status["status"] == "skipped" and "weights/esm.pt" in status["reason"]
    board = pd.read_csv(own_copy.results("leaderboard.tsv"), sep="\t")
    skipped = board[board["encoder"] == "esm"]
    assert skipped["status"].tolist() == ["skipped", "skipped"]
    assert skipped["note"].str.contains("weights/esm.pt").all()
    assert own_copy.planned(own_copy.config) == {}

    from reference_models import fair_esm_file, reference_esm2

    (own_copy.folder / "weights").mkdir()
    fair_esm_file(reference_esm2("esm2_t6_8M_UR50D"), own_copy.folder / "weights" / "esm.pt")
    done = own_copy.run()
    assert done.returncode == 0, done.stderr
    assert jobs(done) == {
        "weights": 1, "embed": 1, "explain_map": 1, "explain_masked": 1, "classify": 1, "compare": 1, "report": 1
    }  # fmt: skip
    status = json.loads(own_copy.results("encoders/esm/status.json").read_text(encoding="utf-8"))
    assert status["status"] == "ready"
    assert status["sha256"] == sha256(own_copy.folder / "weights" / "esm.pt")
    board = pd.read_csv(own_copy.results("leaderboard.tsv"), sep="\t")
    assert (board["status"] == "ok").all() and (board["encoder"] == "esm").sum() == 2
    assert own_copy.planned(own_copy.config) == {}
    own_copy.config["encoders"]["esm"]["if_unreachable"] = "fail"
    assert own_copy.planned(own_copy.config) == {"report": 1}


def test_encoder_out_of_reach_stops_the_run_by_default(own_copy):
    own_copy.config["encoders"]["esm"] = {"kind": "esm2", "name": "esm2_t6_8M_UR50D"}
    done = own_copy.run()
    assert done.returncode != 0
    assert jobs(done) == {"weights": 1}
    text = done.stdout + done.stderr  # the failed job's log is shown
    assert "encoder esm: the weights of esm2_t6_8M_UR50D are not on this machine" in text
    assert str(own_copy.folder / "no_cache" / "hub" / "checkpoints" / "esm2_t6_8M_UR50D.pt") in text
    assert "if_unreachable: skip" in text
    assert "Traceback" not in text
    assert not own_copy.results("encoders/esm/status.json").exists()


# ------------------------------------------------------------------------------------------- mistakes stop it early


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("evaluation.fold", 5, "evaluation.fold: unknown key; did you mean 'folds'?"),
        ("targets", [{"encoders": ["kmers"]}], "targets.0.encoders: no encoder 'kmers'; did you mean 'kmer'?"),
        ("datasets.tcr.labels.path", "no.tsv", "datasets.tcr.labels.path: there is no file 'no.tsv'"),
        ("datasets.tcr.sequences", "no.fasta", "datasets.tcr.sequences: there is no file 'no.fasta'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_config_mistake_stops_before_any_job(tmp_path, path, value, message):
    project = Project(tmp_path)
    write_data(tmp_path, per_class=2)
    done = project.run(config=changed(path, value))
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr and not jobs(done)
    assert not (tmp_path / "results").exists()


def test_a_failed_job_shows_its_sentence(tmp_path):
    project = Project(tmp_path)
    write_data(tmp_path, per_class=2)
    (tmp_path / "tcr.fasta.gz").write_bytes(gzip.compress(b""))
    done = project.run()
    assert done.returncode == 1
    assert "tcr.fasta.gz" in (tmp_path / "results" / "logs" / "parse" / "tcr.log").read_text(encoding="utf-8")
    assert "airrformer: tcr.fasta.gz" in done.stdout + done.stderr
    assert not (tmp_path / "results" / "tcr" / "chains.parquet").exists()


# --------------------------------------------------------------------------------------------------- what is shipped


@pytest.mark.parametrize("path", sorted((ROOT / "config" / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_plan_a_run_that_replaces_the_demo(path, tmp_path):
    for name in re.findall(r"\$(AIRRFORMER_\w+)/", path.read_text(encoding="utf-8")):
        if name not in os.environ:
            pytest.skip(f"{name} names no folder with the files that this example reads")
    for folder in ("config", "data"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    done = snakemake(tmp_path, "--dry-run", "--configfile", f"config/examples/{path.name}")
    assert done.returncode == 0, done.stderr
    datasets = set(re.findall(r"wildcards: dataset=(\w+)", done.stdout + done.stderr))
    assert datasets == set(yaml.safe_load(path.read_text(encoding="utf-8")).get("datasets", {}))


def test_an_example_runs(tmp_path):
    for folder in ("config", "data"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    done = snakemake(tmp_path, "--configfile", "config/examples/airr_table.yaml")
    assert done.returncode == 0, done.stderr
    board = pd.read_csv(tmp_path / "results" / "leaderboard.tsv", sep="\t")
    board = board[board["kind"] == "model"]
    assert sorted(set(zip(board["encoder"], board["status"]))) == [("esm2_8m", "skipped"), ("kmer", "ok")]
    receptors = pd.read_parquet(tmp_path / "results" / "rearrangements" / "receptors.parquet")
    assert len(receptors) == 90


def test_encoders_that_write_are_trained_generate_and_are_reported(tmp_path):
    project = Project(tmp_path)
    write_data(tmp_path)
    small = project.config["encoders"]["scratch"]
    project.config = {
        "compute": {"device": "cpu"},
        "datasets": {"tcr": {key: CONFIG["datasets"]["tcr"][key] for key in ("sequences", "id", "receptor", "chains")}},
        "encoders": {
            "writer": small | {"objective": "causal", "sequence": "junction"},
            "backwards": small | {"objective": "seq2seq", "corpus": "reversal"},
        },
    }
    done = project.run()
    assert done.returncode == 0, done.stderr
    assert jobs(done) == {"parse": 1, "pretrain": 2, "generate": 1, "report": 1}
    generated = json.loads(project.results("encoders/writer/generated.json").read_text("utf-8"))
    junctions = pd.read_parquet(project.results("tcr/chains.parquet"))["junction_aa"]
    assert generated["n_reference"] == junctions.nunique() and 0 <= generated["shares"]["valid_and_new"] <= 1
    assert project.results("encoders/writer/generated.fasta").read_text("utf-8").count(">") == generated["n"] == 1000
    table = pd.read_csv(project.results("pretraining.tsv"), sep="\t").set_index("encoder")
    assert table["objective"].to_dict() == {"writer": "causal", "backwards": "seq2seq"}
    page = project.results("report.html").read_text("utf-8")
    assert "Of 1,000 generated sequences" in page and "Cross-attention of backwards" in page
    again = project.run()
    assert "Nothing to be done" in again.stderr + again.stdout

    project.config["encoders"]["writer"]["train"] = small["train"] | {"label_smoothing": 0.1}
    assert project.planned() == {"pretrain": 1, "generate": 1, "report": 1}


def test_snakemakes_own_report(project):
    done = project.run("--report", "report.zip")
    assert done.returncode == 0, done.stderr
    assert (project.folder / "report.zip").stat().st_size > 0


def test_with_train_folds_each_fold_has_its_own_encoder_and_features(tmp_path):
    project = Project(tmp_path)
    write_data(tmp_path)
    project.config["encoders"] = {"scratch": {**CONFIG["encoders"]["scratch"], "corpus": "train_folds"}}
    project.config["poolings"] = {"mean": {"kind": "mean"}}
    project.config["report"] = {}
    done = project.run()
    assert done.returncode == 0, done.stderr
    folds = {"random_1_0", "random_1_1", "group_1_0", "group_1_1"}
    assert {path.parent.name for path in project.results("encoders/scratch/folds").glob("*/*.json")} == folds
    features = {fold: project.results(f"tcr/scratch/folds/{fold}/mean.parquet") for fold in folds}
    tables = {fold: pd.read_parquet(path).set_index("receptor_id") for fold, path in features.items()}
    final = pd.read_parquet(project.results("tcr/scratch/mean/features.parquet")).set_index("receptor_id")
    assert all(table.index.equals(final.index) and not table.equals(final) for table in tables.values())
    again = project.run()
    assert "Nothing to be done" in again.stderr + again.stdout
