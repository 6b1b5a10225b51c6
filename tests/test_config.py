"""config.yaml: every mistake in one go, targets, parts, the reference that is written from the models."""

import json
import os
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from airrformer import config_reference
from airrformer.config import Embedding, Target, load_config
from airrformer.errors import UserError

ROOT = Path(__file__).parents[1]
EXAMPLES = [ROOT / "config" / "config.yaml", *sorted((ROOT / "config" / "examples").glob("*.yaml"))]


def small(**changes) -> dict:
    config = {
        "datasets": {
            "tcr": {"sequences": "a.fasta", "receptor": "TCR", "chains": ["TRB"], "labels": {"path": "l.tsv"}},
            "ab": {"sequences": "b.fasta", "receptor": "antibody", "chains": ["heavy", "light"]},
        },
        "encoders": {
            "scratch": {"kind": "pretrain", "corpus": ["tcr", "ab"]},
            "esm": {"kind": "esm2", "name": "esm2_t6_8M_UR50D", "if_unreachable": "skip"},
            "antiberty": {"kind": "antiberty"},
            "kmer": {"kind": "kmer"},
        },
        "poolings": {"mean": {"kind": "mean"}, "counts": {"kind": "counts"}},
        "classifiers": {"logistic": {"kind": "logistic_regression"}},
    }
    return {**config, **changes}


def mistakes(values: dict) -> list[str]:
    with pytest.raises(UserError) as caught:
        load_config(values)
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


# --------------------------------------------------------------------------------------------------------- mistakes


def test_all_mistakes_at_once_each_with_its_place_and_a_near_name():
    values = small(sed=1)
    values["datasets"]["tcr"]["sequnces"] = values["datasets"]["tcr"].pop("sequences")
    values["encoders"]["esm"]["name"] = "esm2_t6_8M"
    values["encoders"]["scratch"]["train"] = {"steps": 0}
    values["classifiers"]["logistic"]["grid"] = {"c": [1]}
    lines = mistakes(values)
    assert len(lines) == 6
    assert "sed: unknown key; did you mean 'seed'?" in lines
    assert "datasets.tcr.sequnces: unknown key; did you mean 'sequences'?" in lines
    assert "datasets.tcr.sequences: missing; it is required" in lines
    assert any(line.startswith("encoders.esm.name: ") and "esm2_t6_8M_UR50D" in line for line in lines)
    assert any(line.startswith("encoders.scratch.train.steps: ") and line.endswith("not 0") for line in lines)
    assert any(line.startswith("classifiers.logistic.grid.c: unknown key") for line in lines)


@pytest.mark.parametrize(
    ("section", "change", "line"),
    [
        ("targets", [{"datasets": ["tcrs"]}], "targets.0.datasets: no dataset 'tcrs'; did you mean 'tcr'?"),
        ("targets", [{"encoders": ["esm3"]}], "targets.0.encoders: no encoder 'esm3'; did you mean 'esm'?"),
        (
            "encoders",
            {"own": {"kind": "pretrain", "corpus": ["abs"]}},
            "encoders.own.corpus: no dataset 'abs'; did you mean 'ab'?",
        ),
        (
            "poolings",
            {"../up": {"kind": "mean"}},
            "poolings.../up: '../up' becomes a folder's name: use letters, digits, '_', '.' and '-'",
        ),
        ("evaluation", {"group": "donr"}, "evaluation.group: dataset 'tcr' has no group 'donr'"),
    ],
)
def test_names_are_checked(section, change, line):
    assert line in mistakes(small(**{section: change}))


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        ({"train": {"held_out_edits": 3}}, ["train.held_out_edits: input should be less than or equal to 2, not 3"]),
        (
            {"train": {"held_out_edits": {"TRA": 1, "TRX": 1}}},
            ["train.held_out_edits.TRX: input should be 'TRA', 'TRB', 'TRG', 'TRD', 'IGH', 'IGK' or 'IGL', not 'TRX'"],
        ),
        ({"sequence": ["cdrs", "cdrs"]}, ["sequence: 'cdrs' stands there twice; name it once"]),
        ({"train": {"held_out_edits": {"TRB": [1]}}}, ["train.held_out_edits.TRB: input should be a valid integer"]),
        ({"corpus": 5}, ["corpus: input should be a valid list or 'train_folds' or 'reversal', not 5"]),
        ({"sequence": [["chain"]]}, ["sequence.0: input should be 'chain', 'junction' or 'cdrs'"]),
        ({"sequence": "foo"}, ["sequence: input should be 'chain', 'junction' or 'cdrs', not 'foo'"]),
    ],
)
def test_one_mistake_is_one_line_where_a_value_may_be_of_two_kinds(settings, lines):
    values = small()
    values["encoders"]["scratch"] |= settings
    assert mistakes(values) == [f"encoders.scratch.{line}" for line in lines]


def test_numbers_are_for_regressors_and_classes_for_classifiers():
    values = small()
    values["datasets"]["numbers"] = {**values["datasets"]["tcr"], "task": "regression"}
    values["classifiers"] |= {"ridge": {"kind": "ridge"}, "forest": {"kind": "random_forest"}}
    found = {(target.dataset, target.classifier) for target in load_config(values).expand_targets()}
    assert {name for dataset, name in found if dataset == "numbers"} == {"ridge", "forest"}
    assert "ridge" not in {name for dataset, name in found if dataset == "tcr"}


def kernels_on(*kernels, **row):
    values = small()
    values["encoders"]["letters"] = {"kind": "letters"}
    values["poolings"] |= {"letters": {"kind": "letters"}}
    values["classifiers"]["several"] = {"kind": "multi_kernel", "kernels": list(kernels)}
    values["targets"] = [{"encoders": ["letters"], "poolings": ["letters"], "classifiers": ["several"], **row}]
    return values


@pytest.mark.parametrize(
    "kernels, said",
    [
        ([{"encoder": "kmer", "pooling": "counts", "distance": {}}], "a distance compares letters, and encoder 'kmer'"),
        ([{"distance": {"chains": ["heavy"]}}], "a distance compares heavy, no chain of dataset"),
        ([{}, {"encoder": "kmer"}], "encoder 'kmer' with pooling 'letters' cannot read dataset"),
    ],
)
def test_kernels_that_cannot_be_made_are_said(kernels, said):
    values = kernels_on(*kernels)
    config = load_config(values)
    assert not config.expand_targets()
    (line,) = config.loose_ends()
    assert line.startswith("targets.0.classifiers: 'several' is never built: ") and said in line


def test_kernels_of_nothing_and_of_no_width():
    (line,) = mistakes(kernels_on({"distance": {"weights": [0, 0, 0]}}))
    assert "nothing is compared" in line
    (line,) = mistakes(kernels_on({"bandwidth": 1e-30}))
    assert line.startswith("classifiers.several.") and "bandwidth" in line


def test_a_stack_reads_what_its_members_read():
    values = small()
    values["encoders"]["letters"] = {"kind": "letters"}
    values["poolings"]["letters"] = {"kind": "letters"}
    values["classifiers"]["density"] = {"kind": "density_ratio"}
    kmer = next(name for name, encoder in values["encoders"].items() if encoder["kind"] == "kmer")
    counts = next(name for name, pooling in values["poolings"].items() if pooling["kind"] == "counts")
    logistic = next(iter(values["classifiers"]))
    members = [{"classifier": "density"}, {"classifier": logistic, "encoder": kmer, "pooling": counts}]
    values["classifiers"]["both"] = {"kind": "stack", "members": members}
    values["targets"] = [{"encoders": ["letters"], "poolings": ["letters"], "classifiers": ["both"]}]
    config = load_config(values)
    (target,) = config.expand_targets()
    assert config.inputs(target) == [("tcr", "letters", "letters"), ("tcr", kmer, counts)]
    assert config.expand_embeddings() == [("tcr", kmer, counts)]  # letters are no file
    part = load_config(config.part(**config.parts_of(target), evaluation=True, seed=True))
    assert part.inputs(target) == config.inputs(target)

    values["classifiers"]["both"]["members"][1]["encoder"] = "letter"
    assert mistakes(values) == ["classifiers.both.members.1.encoder: no encoder 'letter'; did you mean 'letters'?"]
    values["classifiers"]["both"]["members"] = [{"classifier": "both"}, {"classifier": "density"}]
    assert mistakes(values) == ["classifiers.both.members.0.classifier: a stack cannot be a member of a stack"]


def test_chains_must_belong_to_the_receptor():
    values = small()
    values["datasets"]["tcr"]["chains"] = ["heavy"]
    assert mistakes(values) == ["datasets.tcr.chains: heavy is no chain of a TCR"]


def test_missing_files_are_named(tmp_path):
    values = small()
    values["encoders"]["esm"] |= {"weights": "esm.pt", "if_unreachable": "fail"}
    with pytest.raises(UserError) as caught:
        load_config(values, check_files=True)
    text = str(caught.value)
    assert text.startswith("the config: 4 mistakes in the config:")
    assert "datasets.tcr.sequences: there is no file 'a.fasta'" in text
    assert "datasets.tcr.labels.path: there is no file 'l.tsv'" in text
    assert "encoders.esm.weights: there is no file 'esm.pt'" in text


def test_the_whole_may_not_be_empty(tmp_path):
    with pytest.raises(UserError, match="datasets: there is none"):
        load_config({"datasets": {}}, check_files=True)


def test_encoder_that_no_pooling_fits():
    values = small(poolings={"mean": {"kind": "mean"}})
    with pytest.raises(UserError, match=r"encoders.kmer: no pooling fits it; add to poolings: \{counts: "):
        load_config(values, check_files=True)


def test_target_row_that_builds_nothing():
    values = small(targets=[{"datasets": ["tcr"], "encoders": ["antiberty"]}])
    with pytest.raises(UserError, match=r"targets.0: none of its datasets, encoders and poolings fit together"):
        load_config(values, check_files=True)


def test_file_that_is_no_config(tmp_path):
    for content, message in [("", "is empty or not a mapping"), ("a: [1", "not valid YAML"), ("- 1", "not a mapping")]:
        path = tmp_path / "config.yaml"
        path.write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match=message) as caught:
            load_config(path)
        assert str(path) in str(caught.value)
    with pytest.raises(UserError, match="cannot read the config"):
        load_config(tmp_path / "none.yaml")


# --------------------------------------------------------------------------------------------------- what is built


def test_targets_are_the_combinations_that_fit_and_have_labels():
    config = load_config(small())
    assert config.expand_targets() == [
        Target("tcr", "scratch", "mean", "logistic"),
        Target("tcr", "esm", "mean", "logistic"),
        Target("tcr", "kmer", "counts", "logistic"),
    ]
    unlabelled = [embedding for embedding in config.expand_embeddings() if embedding.dataset == "ab"]
    assert unlabelled == [
        Embedding("ab", "scratch", "mean"),
        Embedding("ab", "esm", "mean"),
        Embedding("ab", "antiberty", "mean"),
        Embedding("ab", "kmer", "counts"),
    ]


def test_target_rows_add_up_without_repetition():
    rows = [{"datasets": ["tcr"], "encoders": ["kmer"]}, {"datasets": ["tcr"], "poolings": ["counts"]}]
    assert load_config(small(targets=rows)).expand_targets() == [Target("tcr", "kmer", "counts", "logistic")]


# ------------------------------------------------------------------------------------------------------------ parts


def test_part_is_read_back_and_holds_nothing_besides():
    config = load_config(small())
    part = load_config(
        config.part(datasets=["tcr"], encoders=["esm"], poolings=["mean"], classifiers=["logistic"], evaluation=True)
    )
    assert (list(part.datasets), list(part.encoders), list(part.poolings)) == (["tcr"], ["esm"], ["mean"])
    assert part.datasets["tcr"] == config.datasets["tcr"]
    assert part.fits("tcr", "esm", "mean")
    assert load_config(config.whole()) == config


@pytest.mark.parametrize(
    "change",
    [
        {"compute": {"device": "cpu", "precision": "fp32"}},
        {"classifiers": {"logistic": {"kind": "logistic_regression", "grid": {"C": [1]}}}},
        {"evaluation": {"folds": 5}},
        {"targets": [{"encoders": ["scratch"]}]},
        {"report": {"title": "x"}},
        {"seed": 8},
    ],
)
def test_embedding_depends_on_no_more_than_it_reads(change):
    asked = dict(datasets=["tcr"], encoders=["scratch"], poolings=["mean"])
    assert load_config(small(**change)).part(**asked) == load_config(small()).part(**asked)


def test_embedding_depends_on_no_other_encoder_and_not_on_training_nor_reach():
    before, values = load_config(small()), small()
    values["encoders"]["scratch"]["train"] = {"steps": 7}
    values["encoders"]["esm"]["if_unreachable"] = "fail"
    values["encoders"]["antiberty"]["receptors"] = ["antibody", "TCR"]
    after = load_config(values)
    for encoder in values["encoders"]:
        assert after.part(encoders=[encoder]) == before.part(encoders=[encoder])
    for asked in (
        dict(encoders=["scratch"], datasets=["tcr", "ab"], training=True),
        dict(encoders=["esm"], unreachable=True),
    ):
        assert after.part(**asked) != before.part(**asked)


def test_order_of_keys_is_no_change():
    values = small()
    values["datasets"]["tcr"] = dict(reversed(values["datasets"]["tcr"].items()))
    assert load_config(values).part(datasets=["tcr"]) == load_config(small()).part(datasets=["tcr"])


@pytest.mark.parametrize(
    ("encoder", "line"),
    [
        ({"kind": "pretrain", "corpus": ["tcr"], "layer": 5}, "encoders.scratch.layer: there is no 5; it has 0"),
        ({"kind": "antiberty", "layer": -10}, "encoders.scratch.layer: there is no -10; it has 0"),
        (
            {"kind": "pretrain", "objective": "seq2seq", "corpus": "reversal", "model": {"max_length": 17}},
            "encoders.scratch.model.max_length: 17 is too short for the strings of the reversal task; give 18",
        ),
    ],
    ids=["trained", "published", "reversal"],
)
def test_what_would_be_found_out_after_the_training(encoder, line):
    values = small()
    values["encoders"]["scratch"] = encoder
    with pytest.raises(UserError) as caught:
        load_config(values, check_files=True)
    assert any(shown.strip().startswith(line) for shown in str(caught.value).splitlines())


def test_a_part_without_the_model_keeps_its_layer():
    values = small()
    values["encoders"]["scratch"] |= {"layer": 7, "model": {"layers": 8}}
    assert load_config(load_config(values).part(encoders=["scratch"])).encoders["scratch"].layer == 7


# --------------------------------------------------------------------------------------- what is shipped in config/


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_shipped_configs_are_complete(path, monkeypatch):
    for name in re.findall(r"\$(AIRRFORMER_\w+)/", path.read_text(encoding="utf-8")):
        if name not in os.environ:
            pytest.skip(f"{name} names no folder with the files that this example reads")
    monkeypatch.chdir(ROOT)
    config = load_config(path, check_files=True)
    assert config.expand_embeddings() or config.writers or config.expand_targets()


def test_demo_is_what_the_readme_says(monkeypatch):
    monkeypatch.chdir(ROOT)
    config = load_config("config/config.yaml", check_files=True)
    per_dataset = {name: sum(target.dataset == name for target in config.expand_targets()) for name in config.datasets}
    assert per_dataset == {"sars2_tcr": 23, "bnab": 29}
    assert config.encoders["esm2_8m"].if_unreachable == "skip"


def test_reference_and_schema_are_current():
    readme = (ROOT / "config" / "README.md").read_text(encoding="utf-8")
    hint = "run: python -m airrformer.config_reference"
    assert config_reference.renewed(readme) == readme, hint
    assert (ROOT / "config" / "config.schema.json").read_text(encoding="utf-8") == config_reference.schema(), hint


def test_every_option_is_explained():
    tables = config_reference.key_tables()
    rows = [row.split(" | ") for row in tables.splitlines() if row.startswith("| `")]
    assert len(rows) > 60
    assert all(row[-1].strip(" |") for row in rows), [row[0] for row in rows if not row[-1].strip(" |")]


def test_schema_accepts_the_shipped_configs():
    schema = json.loads(config_reference.schema())
    for path in EXAMPLES:
        jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), schema)


# ------------------------------------------------------------------------------------------------- hostile files


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"seed: 1\ndatasets: {}\nseed: 2\n", "'seed' stands there twice in line 3"),
        (b"datasets:\n\ttcr: {}\n", "not valid YAML.*line 2"),
        (b"seed: caf\xe9\n", "not valid YAML.*utf-8"),
    ],
)
def test_files_that_are_no_good_yaml(tmp_path, content, words):
    (tmp_path / "config.yaml").write_bytes(content)
    with pytest.raises(UserError, match=words):
        load_config(tmp_path / "config.yaml")
    with pytest.raises(UserError, match="not valid JSON"):
        load_config("{seed")


@pytest.mark.parametrize(
    ("section", "change", "line"),
    [
        ("datasets.tcr", {"chains": ["TRB", "TRB"]}, "datasets.tcr.chains: 'TRB' stands there twice; name it once"),
        ("datasets.tcr", {"groups": {"label": "x"}}, "datasets.tcr.groups.label: this name is taken; give the group "),
        (
            "datasets.tcr.labels",
            {"classes": [1]},
            "datasets.tcr.labels.classes.0: input should be a valid string, not ",
        ),
        ("datasets.tcr.labels", {"classes": []}, "datasets.tcr.labels.classes: list should have at least 1 item"),
        ("encoders.kmer", {"kind": None}, "encoders.kmer.kind: missing; it is required"),
        ("classifiers.logistic", {"grid": {"C": [float("inf")]}}, "classifiers.logistic.grid.C.0: input should be a f"),
        ("encoders", {"chains.parquet": {"kind": "kmer"}}, "encoders.chains.parquet: 'chains.parquet' is the name of "),
    ],
)
def test_values_that_would_break_a_later_stage(section, change, line):
    values = small()
    place = values
    for name in section.split("."):
        place = place[name]
    for key, value in change.items():
        place[key] = value
        if value is None:
            del place[key]
    (found,) = mistakes(values)
    assert found.startswith(line)
