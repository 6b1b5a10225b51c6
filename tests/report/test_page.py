import json
import re
import shutil
import subprocess
import sys

import pandas as pd
import pytest

from airrformer.config import load_config
from airrformer.paths import Results
from airrformer.report import write_report
from airrformer.report.page import render

SECTIONS = [
    *("summary", "warnings", "splits", "leaderboard", "comparisons", "classes", "pretraining", "masked", "maps"),
    *("inputs", "encoders", "reading", "run"),
]


@pytest.fixture(scope="module")
def page(_built):
    return render(*_built)


@pytest.fixture
def copy(results, tmp_path):
    return Results(shutil.copytree(results.root, tmp_path / "results"))


def plain(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", "", html).split())


def test_sections_come_in_order_with_the_warnings_before_the_numbers(page):
    assert re.findall(r'<section id="(\w+)">', page) == SECTIONS


def test_one_small_file_that_refers_to_nothing_outside(page):
    assert len(page.encode()) < 3_000_000
    references = re.findall(r"""(?:src|href|action|data)\s*=\s*["']([^"']*)""", page)
    assert references and all(reference.startswith(("#", "data:,")) for reference in references)
    assert "http:" not in page and "https:" not in page and "url(" not in page and "@import" not in page


def test_equal_results_give_equal_bytes(config, results, page, tmp_path):
    output = write_report(config, results, tmp_path / "again.html")
    assert output.read_text(encoding="utf-8") == page


def test_the_headline_says_how_much_the_random_split_flatters(page):
    text = plain(page)
    metric = r"(0\.\d\d) \[0\.\d\d, 0\.\d\d\]"
    said = re.search(
        rf"On sars2_tcr the best model \(([\w /]+)\) reaches a macro AUROC of {metric} when receptors are split at "
        rf"random, {metric} when similar receptors are kept together and {metric} when all receptors of one donor "
        r"are kept together: the random split flatters by (0\.\d\d)\. On a receptor of a new donor expect "
        r"(0\.\d\d), not (0\.\d\d)\.",
        text,
    )
    assert said
    random, _cluster, group, drop, expected, flattering = (float(said[i]) for i in range(2, 8))
    assert (drop, expected, flattering) == (round(random - group, 2), group, random)


def test_best_is_judged_in_the_strictest_split(config, results, page):
    auroc = {}
    for target in config.expand_targets():
        path = results.classifier(*target) / "metrics.json"
        if target.dataset == "bnab" and path.exists():
            auroc[target] = json.loads(path.read_text())["splits"]["group"]["macro"]["auroc"]["value"]
    best = max(auroc, key=auroc.get)
    assert f"On bnab the best model ({best.encoder} / {best.pooling} / {best.classifier})" in plain(page)


@pytest.mark.parametrize(
    "sentence",
    [
        "Train and test overlap in sars2_tcr.",
        "random split 41 of 300 (13.7 %) with CDR3s at most one edit apart, 9 with the same chains; cluster split none",
        "scratch has seen the test receptors, without labels.",
        "corpus: train_folds",
        "Encoder esm2_8m was skipped. esm2_t6_8M_UR50D: no weights found and none could be downloaded; put",
        "Classes left out of bnab. MPER (4 receptors: fewer than 3 receptors in some fold).",
        "Undefined metrics in bnab. V3 glycan in the group split",
        "Records rejected from sars2_tcr. 3 records of 303",
        "2 label rows of 302 match no receptor, for example donor9_x",
        "Few positives in sars2_tcr.",
        "What is missing tells the label in bnab. The V gene is missing in 82% of the positives of",
        "genes_only does as well as the best model in bnab. By macro AUROC: random split genes_only (V and J genes)",
        "A shortcut sees no residue; where it does as well as a model, the score can come from how",
        "Plain models that are not clearly beaten in sars2_tcr. In the group split, against kmer / counts / logistic",
        "kmers (3-mers of the CDR3s and the genes, logistic regression): −0.01 [−0.04, 0.02], p 0.60.",
        "it is not better than all of the 13 other models and baselines; it is ahead of 1 by an interval",
        "and of 1 by the corrected test over 3 folds as well.",
        "it is better than each of the 17 other models and baselines (corrected p 0.004).",
    ],
)
def test_warnings(page, sentence):
    assert sentence in plain(page)


def tables(page: str, label: str) -> list[list[str]]:
    """The cells of each row of the table in the scroller of that label."""
    found = re.search(rf'aria-label="{label}" tabindex="0">\s*<table.*?</table>', page, flags=re.S)[0]
    rows = re.findall(r"<tr>(.*?)</tr>", found, flags=re.S)
    return [[plain(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, flags=re.S)] for row in rows]


def test_leakage_of_each_split_and_of_the_corpora(page):
    assert tables(page, "Leakage of sars2_tcr") == [
        ["Split", "Same chains", "1 edit", "2 edits", "of"],
        ["random", "9 (3.0 %)", "41 (13.7 %)", "77 (25.7 %)", "300"],
        ["cluster", "0 (0.0 %)", "0 (0.0 %)", "12 (4.0 %)", "300"],
        ["group", "2 (0.7 %)", "17 (5.7 %)", "40 (13.3 %)", "300"],
    ]
    corpora = tables(page, "Pre-training corpora and sars2_tcr")
    assert corpora[1] == ["scratch", "random", *["300 (100.0 %)"] * 3, "300", "100, 100, 100"]


def test_baselines_are_marked_in_the_leaderboard(page):
    table = re.search(r'<table id="leaderboard-table".*?</table>', page, flags=re.S)[0]
    rows = re.findall(r"<tr data-dataset.*?</tr>", table, flags=re.S)
    own = [plain(re.sub(r"</t[dh]>", " ", row)) for row in rows if "baseline" in row]
    assert sum(row.startswith("baseline shortcut - genes_only") for row in own) == 6
    assert sum(row.startswith("baseline plain - kmers") for row in own) == 6


def test_each_class_has_its_calibration_and_the_kinds_of_negatives_stand_apart(page):
    head, *rows = tables(page, "Classes of bnab")
    assert head[2:] == [
        *("Positives", "Prevalence", "AUROC", "AUPRC", "AUC0.1", "MCC", "Top 10", "Brier", "ECE"),
    ]
    assert all(re.fullmatch(r"0\.\d{3} → 0\.\d{3}", cell) for cell in rows[0][-2:])
    assert "classes [" in rows[-1][4 - 1] or "classes [" in rows[-1][3]
    kinds = tables(page, "Kinds of negatives of bnab")
    assert [row[1] for row in kinds[1:]] == ["swapped", "background"] * 3
    assert kinds[2][2] == "0.93 [0.90, 0.95]"
    text = plain(page)
    assert "Negatives: swapped (of other classes) and background (without a label); 3 were not taken" in text
    assert "in one heap: 0.77 (random), 0.77 (cluster) and 0.77 (group). The pooled AUROC is misleading:" in text
    assert "Calibrated scores can be read as probabilities" in text or "Calibrated scores are no probabilities" in text


def test_the_best_is_compared_with_the_others_split_by_split(page):
    own = tables(page, "Comparisons, sars2_tcr, group")
    assert len(own) == 14 and own[0] == ["Model", "Difference", "p, corrected"]
    assert own[-1] == ["untrained plain", "−0.080 [−0.110, −0.050]", "0.004"]
    assert tables(page, "Comparisons, sars2_tcr, random")[1][2:] == ["unknown", "fewer than 2 folds: no test"]


def test_results_of_an_older_run_have_a_page(config, copy):
    for name in config.datasets:
        shutil.rmtree(copy.baselines(name))
        copy.comparisons(name).unlink()
    for path in copy.dataset(".").rglob("metrics.json"):
        metrics = json.loads(path.read_text())
        if "splits" not in metrics:
            continue
        for split in metrics["splits"].values():
            del split["negatives"], split["pooled"], split["notes"], split["chosen"], split["leakage"]["distance_2"]
            for scores in [split["macro"], *split["classes"].values()]:
                for metric in ("precision_at_k", "brier", "ece", "brier_calibrated", "ece_calibrated"):
                    del scores[metric]
            for metric in ("auroc", "auprc", "auc01", "mcc"):
                del split["macro"][metric]["low_classes"], split["macro"][metric]["high_classes"]
        del metrics["negatives"]
        path.write_text(json.dumps(metrics | {"version": 1, "settings": {}}))
    for path in copy.dataset(".").rglob("predictions.tsv"):
        pd.read_csv(path, sep="\t").drop(columns="probability").to_csv(path, sep="\t", index=False)
    page = render(config, copy)
    sections = re.findall(r'<section id="(\w+)">', page)
    assert sections == [section for section in SECTIONS if section != "comparisons"]
    text = plain(page)
    assert "No baselines beside the models of bnab. Nothing here says whether genes, lengths" in text
    assert tables(page, "Classes of bnab")[0][-1] == "MCC"
    assert tables(page, "Leakage of sars2_tcr")[1] == ["random", "9 (3.0 %)", "41 (13.7 %)", "", "300"]


def test_a_column_that_tells_the_label_is_named_with_the_encoder_that_reads_it(config, copy):
    path = copy.baselines("bnab") / "metrics.json"
    leak = {"check": "group lineage", "level": "bad", "title": "The lineage of a receptor tells its label",
            "auroc": 1.0, "classes": {}, "sentence": "the rate of positives: an AUROC of 1.00 by itself."}  # fmt: skip
    path.write_text(json.dumps(json.loads(path.read_text()) | {"leaks": [leak]}))
    said = "The rate of positives: an AUROC of 1.00 by itself."
    assert plain(render(config, copy)).count(said) == 2  # among the warnings and among the checks
    given = config.model_dump(mode="json")
    given["encoders"]["facts"] = {"kind": "columns", "columns": ["lineage"]}
    given["poolings"]["facts"] = {"kind": "columns"}
    assert plain(render(load_config(given), copy)).count(f"{said} Models of facts read this column.") == 2


def test_without_comparisons_plain_models_are_held_against_the_interval(config, copy):
    copy.comparisons("sars2_tcr").unlink()
    text = plain(render(config, copy))
    found = re.search(r"Plain models that are not clearly beaten in sars2_tcr\. .*?\.", text)
    assert found and "within its interval, or above" in text


def test_a_corpus_of_other_datasets_that_holds_test_receptors_is_told(config, results):
    encoders = config.encoders | {"scratch": config.encoders["scratch"].model_copy(update={"corpus": ["bnab"]})}
    text = plain(render(config.model_copy(update={"encoders": encoders}), results))
    said = "300 of 300 tests of the group split are of a receptor with a chain of its corpus. No label was used."
    assert f"scratch has read test receptors of sars2_tcr. {said}" in text
    assert "scratch has read test receptors of bnab." not in text


def test_a_control_says_that_its_labels_are_shuffled(config, results):
    control = config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"shuffle_labels": True})})
    assert "The labels of this run are shuffled." in plain(render(control, results))


def test_nothing_from_the_data_is_markup(page):
    assert "alert(" in page and "<script>alert" not in page
    assert page.count("<script") == 1
    assert re.search(r"script-src 'sha256-[\w+/=]{44}'", page)


def test_every_figure_has_alternative_text(page):
    figures = re.findall(r'<svg[^>]*class="figure"[^>]*>.*?</svg>', page, flags=re.S)
    assert len(figures) >= 2 + 8 + 2 + 2 + 4
    for figure in figures:
        assert 'role="img"' in figure and "<title id=" in figure and "<desc id=" in figure
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for named in re.findall(r'aria-labelledby="([^"]+)"', page):
        assert set(named.split()) <= set(ids)


def test_what_was_read(page):
    text = plain(page)
    assert "303 records in 1 file (data/sars2_tcr.fasta.gz; protein) gave 300 chains (TRB) of 300 receptors" in text
    assert "Regions of its chains: 296 from V, J and CDR3, 3 by numbering and 1 unknown." in text
    assert "Of 302 label rows 300 matched a receptor and 2 did not." in text


def test_undefined_is_never_a_number(page):
    row = re.search(r'<td class="n">0</td>\s*<td class="n">0.00</td>(.*?)</tr>', page, flags=re.S)[1]
    assert row.count("undefined") == 7


def test_learning_is_told_against_guesses_without_context(page, config, copy):
    assert "CDR3: perplexity 6.50 against 8.90 for residue frequencies at each position." in page
    path = copy.encoder("scratch") / "metrics.json"
    path.write_text(path.read_text().replace('"perplexity": 6.5', '"perplexity": 9.5'))
    assert "9.50 against 8.90 for residue frequencies at each position: it has learned no more than that." in render(
        config, copy
    )


def test_without_optional_files_the_page_stands(config, copy):
    shutil.rmtree(copy.encoder("scratch"))
    shutil.rmtree(copy.dataset("benchmarks"))
    for pattern in ("map.tsv", "predictions.tsv", "masked.tsv", "rejected.tsv", "parse.json"):
        for path in copy.dataset(".").rglob(pattern):
            path.unlink()
    page = render(config, copy)
    sections = re.findall(r'<section id="(\w+)">', page)
    assert sections == [s for s in SECTIONS if s not in ("pretraining", "masked", "maps")]
    assert "There is no summary of what was read." in page


def test_nothing_scored_at_all(config, tmp_path):
    page = render(config, Results(tmp_path))
    assert "On <strong>sars2_tcr</strong> nothing was scored" in page
    assert "Not run in sars2_tcr." in page


def test_an_empty_rejects_table_and_a_receptor_of_two_classes(config, copy):
    pd.DataFrame(columns=["file", "line", "id", "reason", "value"]).to_csv(copy.rejected("bnab"), sep="\t", index=False)
    for path in copy.dataset("bnab").rglob("map.tsv"):
        table = pd.read_csv(path, sep="\t")
        table.loc[0, "label"] = "V2 apex;V3 glycan"
        table.loc[1, "label"] = None
        table.to_csv(path, sep="\t", index=False)
    assert "other 2." in render(config, copy)


def test_maps_show_the_group_where_no_v_gene_is_known(config, copy):
    chains = pd.read_parquet(copy.chains("bnab"))
    chains.assign(v_call=None).to_parquet(copy.chains("bnab"))
    ids = chains["receptor_id"]
    pd.DataFrame({"receptor_id": ids, "lineage": ["VRC26"] * 50 + ["CH103"] * (len(ids) - 50)}).to_parquet(
        copy.receptors("bnab")
    )
    page = render(config, copy)
    assert "bnab, by lineage" in page and "VRC26 50, CH103 40" in page
    assert "sars2_tcr, by V gene (TRB)" in page


def test_without_a_stricter_split_it_says_so(config, copy):
    for path in copy.dataset("bnab").rglob("metrics.json"):
        metrics = json.loads(path.read_text())
        if "splits" not in metrics:  # the baselines'
            continue
        metrics["splits"]["cluster"] = metrics["splits"]["group"] = {"skipped": "bnab has one lineage only"}
        path.write_text(json.dumps(metrics))
    text = plain(render(config, copy))
    assert "No stricter split was scored, so expect less on new receptors." in text
    assert "No group split in bnab. bnab has one lineage only" in text


def test_a_learned_encoder_is_compared_with_the_plain_ones(page):
    assert re.search(r"No learned encoder does better|The best learned encoder", page)


def test_the_report_imports_no_stage_and_no_torch():
    code = "import sys, airrformer.report; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    stages = [f"airrformer.{stage}" for stage in ("parse", "pretrain", "embed", "classify", "explain")]
    assert not {"torch", *stages} & set(loaded)
