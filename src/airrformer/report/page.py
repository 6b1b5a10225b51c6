"""``report.html``: one file that needs no network, made from result files only.

The template escapes all that comes from data (Jinja's autoescape), and a content security policy lets nothing run but
the page's own script, known by its hash, and nothing load at all.
"""

from __future__ import annotations

import base64
import hashlib
import platform
import re
from importlib.metadata import version as installed_version
from pathlib import Path

import pandas as pd
import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from airrformer.config import STRICTEST_FIRST, Config, Target
from airrformer.paths import Results, write_text
from airrformer.receptors.tables import kind_of_reason
from airrformer.report import figures, words
from airrformer.report.cautions import warnings
from airrformer.report.findings import headline, opening
from airrformer.report.judged import classes_part, comparisons_part, splits_part
from airrformer.report.leaderboard import leaderboard
from airrformer.report.read import (
    METRICS,
    PROBABILITY_METRICS,
    REGRESSION_METRICS,
    SHORTCUT,
    STRONG,
    encoder_status,
    read_baselines,
    read_comparisons,
    read_json,
    read_metrics,
    read_tsv,
)
from airrformer.report.study import Study, target_name
from airrformer.report.trainings import side_by_side, trainings

HERE = Path(__file__).parent
METRIC_NAMES = {
    **{"auroc": "AUROC", "auprc": "AUPRC", "auc01": "AUC0.1", "mcc": "MCC", "precision_at_k": "Top k"},
    **{"brier_calibrated": "Brier", "ece_calibrated": "ECE"},
    **{"spearman": "Spearman", "pearson": "Pearson", "rmse": "RMSE"},
}
KIND_NAMES = {SHORTCUT: "shortcut", STRONG: "plain"}
REJECTED_SHOWN = 3  # examples of each reason
QUARTERS = ["lowest quarter", "second quarter", "third quarter", "highest quarter"]  # of a measured value
KINDS_SHOWN = 7  # V genes or groups in a map, the commonest; the rest is grey
REGIONS_FROM = {
    "genes": "from V, J and CDR3",
    "germlines": "by germline residues",
    "numbering": "by numbering",
    "cdr3_only": "with the CDR3 only",
    "cdrs_only": "with the CDRs only",
    "none": "unknown",
}
STAGES = ("parse", "weights", "pretrain", "generate", "embed", "classify", "baselines", "compare", "explain")


def write_report(config: Config, results: Results, output: str | Path | None = None) -> Path:
    """Write the page to ``output`` (default: ``results.report``), whole or not at all, and return its path.

    Files that a run need not have (encoders, maps, histories) may be missing: their section says so or is left out.
    Equal result files give equal bytes.
    """
    output = Path(output or results.report)
    write_text(output, render(config, results))
    return output


def render(config: Config, results: Results) -> str:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals.update(
        words=words, figures=figures, metric_names=METRIC_NAMES, kind_names=KIND_NAMES, target_name=target_name
    )
    environment.filters["together"] = _together
    return environment.get_template("template.html").render(_context(config, results))


def _together(text: str | Markup) -> Markup:
    """Keep each figure on one line with its interval."""
    return Markup(re.sub(r"\d\.\d+ \[[^\]<>]{1,24}\]", r'<span class="together">\g<0></span>', str(escape(text))))


def _context(config: Config, results: Results) -> dict:
    metrics = read_metrics(config, results)
    status = {name: encoder_status(config, results, name) for name in config.encoders}
    summaries = {name: read_json(results.parse_summary(name)) for name in config.datasets}
    baselines = read_baselines(config, results)
    studies = [
        Study.of(config, name, metrics, baselines[name], read_comparisons(results, name)) for name in config.datasets
    ]
    script = (HERE / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {
        "title": config.report.title,
        "style": Markup((HERE / "style.css").read_text(encoding="utf-8")),
        "script": Markup(script),
        "script_hash": Markup(digest),
        "opening": opening(config, studies, summaries, status),
        "studies": studies,
        "headlines": {study.name: headline(study) for study in studies},
        "warnings": warnings(config, studies, summaries, status, results),
        "splits": [splits_part(config, study, i) for i, study in enumerate(studies) if study.best],
        "leaderboard": _ordered(leaderboard(config, metrics, baselines)),
        "shown_metrics": _shown_metrics(studies),
        "metrics_of": {
            study.name: REGRESSION_METRICS if study.regression else (*METRICS, *PROBABILITY_METRICS)
            for study in studies
        },
        "tasks": {study.dataset.task for study in studies if study.best},
        "split_names": config.evaluation.splits,
        "classes": [classes_part(results, study, i) for i, study in enumerate(studies) if study.best],
        "comparisons": [found for study in studies if (found := comparisons_part(study))],
        "trainings": trainings(config, results),
        "side_by_side": side_by_side(config, results),
        "masked": _masked(config, results),
        "maps": [found for i, study in enumerate(studies) if (found := _map(results, study, i))],
        "inputs": [_inputs(config, results, name, summaries[name]) for name in config.datasets],
        "encoders": [_encoder(results, name, entry) for name, entry in status.items()],
        "timing": _timing(results),
        "versions": _versions(metrics),
        "config": config,
        "config_yaml": yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=100),
        "citations": _citations(config, status, studies),
    }


def _ordered(table: pd.DataFrame) -> list[dict]:
    """Rows as a reader without JavaScript wants them: by data set, most demanding split first, best first."""
    order = {name: i for i, name in enumerate(table["dataset"].unique())}
    keys = pd.DataFrame(
        {
            "dataset": table["dataset"].map(order),
            "skipped": table["status"] == "skipped",
            "split": table["split"].map({split: i for i, split in enumerate(STRICTEST_FIRST)}),
            "score": -table[METRICS[0]].fillna(table[REGRESSION_METRICS[0]]),
        }
    )
    return table.loc[keys.sort_values(list(keys), kind="stable").index].to_dict("records")


def _shown_metrics(studies: list[Study]) -> list[str]:
    """The leaderboard's columns: those that some model has."""
    known = {
        metric
        for study in studies
        for metrics in study.metrics.values()
        for result in metrics["splits"].values()
        for metric in result.get("macro", {})
    }
    every = (*METRICS, *PROBABILITY_METRICS, *REGRESSION_METRICS)
    return [metric for metric in every if metric in known] or list(METRICS)


# ------------------------------------------------------------------------------------------------------ masked guesses


def _masked(config: Config, results: Results) -> dict | None:
    example = config.report.masked_example
    guesses = []
    for i, name in enumerate(config.encoders):
        table = read_tsv(results.masked(name), text=("residue",))
        if table is None or table.empty:
            continue
        rows = []
        for row in table.to_dict("records"):
            p = {letter: row[letter] for letter in figures.RESIDUES if row.get(letter) == row.get(letter)}
            ranked = sorted(p, key=lambda letter: (-p[letter], letter))
            true = row["residue"]
            rank = ranked.index(true) + 1 if true in p else None
            rows.append({"residue": true, "p": p.get(true), "rank": rank, "top": [(x, p[x]) for x in ranked[:3]]})
        right = sum(row["rank"] == 1 for row in rows)
        guesses.append(
            {"name": name, "figure": figures.masked_figure(f"masked-{i}", name, table), "rows": rows, "right": right}
        )
    return {"example": example, "guesses": guesses} if guesses else None


# ---------------------------------------------------------------------------------------------------------------- maps


def _map(results: Results, study: Study, index: int) -> dict | None:
    """The map of the best dense target that has one: by label, and by V gene, or else by group."""
    for target in study.ranked():
        places = read_tsv(results.map(*target[:3]), text=("receptor_id", "label"))
        if places is not None and len(places):
            break
    else:
        return None
    classes, labels = study.metrics[target]["classes"], places["label"]
    if study.regression:
        classes, labels = QUARTERS, _quarters(labels)
    by_label = figures.palette(classes)
    panels = [
        {
            "figure": figures.map_figure(f"map-label-{index}", f"{study.name}, by label", places, labels, by_label),
            "legend": list(by_label.values()),
            "other": bool((~labels.isin(classes)).any()),
        }
    ]
    other = _v_genes(results, study, places["receptor_id"]) or _groups(results, study, places["receptor_id"])
    if other:
        title, kinds = other
        common = [kind for kind in kinds.value_counts(sort=True).index if kind][:KINDS_SHOWN]
        series = figures.palette(common)
        title = f"{study.name}, by {title}"
        panels.append(
            {
                "figure": figures.map_figure(f"map-other-{index}", title, places, kinds, series),
                "legend": list(series.values()),
                "other": bool((~kinds.isin(common)).any()),
            }
        )
    return {
        "study": study,
        "target": target,
        "panels": panels,
        "n": len(places),
        "thinned": len(places) > figures.MAX_POINTS,
    }


def _quarters(values: pd.Series) -> pd.Series:
    """Which quarter of the sorted values each is in, as one of ``QUARTERS``; empty where it is no number."""
    rank = pd.to_numeric(values, errors="coerce").rank(pct=True)
    return (rank * 4 - 1e-9).map(lambda place: QUARTERS[int(place)] if place == place else "")


def _v_genes(results: Results, study: Study, receptor_ids: pd.Series) -> tuple[str, pd.Series] | None:
    """V gene, without allele, of each receptor's first chain; empty where unknown. ``None`` without any."""
    path, chain = results.chains(study.name), study.dataset.chains[0]
    if not path.is_file():
        return None
    chains = pd.read_parquet(path, columns=["receptor_id", "chain", "v_call"])
    chains = chains[chains["chain"] == chain]
    genes = chains["v_call"].fillna("").astype(str).str.split(",").str[0].str.split("*").str[0]
    return _looked_up(f"V gene ({chain})", chains["receptor_id"], genes, receptor_ids)


def _groups(results: Results, study: Study, receptor_ids: pd.Series) -> tuple[str, pd.Series] | None:
    """The group that the group split keeps together: donor, lineage ..."""
    path, name = results.receptors(study.name), study.group_name()
    if not path.is_file() or name not in study.dataset.groups:
        return None
    receptors = pd.read_parquet(path, columns=["receptor_id", name])
    return _looked_up(name, receptors["receptor_id"], receptors[name].fillna("").astype(str), receptor_ids)


def _looked_up(title: str, ids: pd.Series, kinds: pd.Series, wanted: pd.Series) -> tuple[str, pd.Series] | None:
    of = dict(zip(ids, kinds))
    found = wanted.map(lambda receptor_id: of.get(receptor_id, ""))
    return (title, found) if (found != "").any() else None


# ---------------------------------------------------------------------------------------------- inputs, encoders, run


def _inputs(config: Config, results: Results, name: str, summary: dict | None) -> dict:
    rejected = read_tsv(results.rejected(name), text=("file", "line", "id", "reason", "value"), rows=20_000)
    examples = []
    if rejected is not None and len(rejected):
        totals = (summary or {}).get("rejected") or {}
        for reason, rows in rejected.groupby(rejected["reason"].map(kind_of_reason), sort=False):
            shown = rows.head(REJECTED_SHOWN).to_dict("records")
            examples.append({"reason": reason, "n": totals.get(reason, len(rows)), "rows": shown})
        examples.sort(key=lambda group: -group["n"])
    read = summary or {}
    classes, status = read.get("classes") or {}, read.get("chain_status") or {}
    by = (read.get("numbered") or {}).get("by") or {}
    regions = [f"{words.count(n)} {REGIONS_FROM.get(how, how)}" for how, n in by.items() if n]
    return {
        "name": name,
        "dataset": config.datasets[name],
        "summary": summary,
        "regions": words.listing(regions) if regions else None,
        "status": words.listing([f"{words.count(n)} {word}" for word, n in status.items()]) if status else None,
        "formats": read.get("formats") or {},
        "genes_changed": read.get("genes_changed"),
        "genes_path": results.genes(name).as_posix(),
        "rejected": examples,
        "rejected_path": results.rejected(name).as_posix(),
        "classes": sorted(classes.items(), key=lambda item: -item[1]),
        "largest": max(classes.values(), default=1) or 1,
    }


def _encoder(results: Results, name: str, entry: dict) -> dict:
    metrics = read_json(results.encoder(name) / "metrics.json") or {}
    return {"name": None, "weights": None, "source": None, "sha256": None, "reason": None} | entry | {
        "encoder": name, "parameters": metrics.get("parameters"),
    }  # fmt: skip


def _timing(results: Results) -> list[dict]:
    """Seconds and peak memory by stage, from Snakemake's benchmark files, where there are any.

    Without the report's own: its file is of the run before, and equal results shall give equal bytes.
    """
    root, stages = Path(results.root) / "benchmarks", {stage: None for stage in STAGES}
    for path in sorted(root.rglob("*.tsv")):
        table = read_tsv(path, text=("h:m:s",))
        if table is None or "s" not in table or not len(table):
            continue
        stage = path.relative_to(root).parts[0].removesuffix(".tsv")
        if stage not in stages:
            continue
        seen = stages[stage] = stages[stage] or {"stage": stage, "jobs": 0, "seconds": 0.0, "memory": None}
        seen["jobs"] += 1
        seen["seconds"] += float(table["s"].mean())
        peak = table["max_rss"].max() if "max_rss" in table else None
        if peak is not None and peak == peak:
            seen["memory"] = max(seen["memory"] or 0.0, float(peak))
    return [seen for seen in stages.values() if seen]


_NAMED_PACKAGES = ("torch", "numpy", "pandas", "skops", "tidytcells", "anarcism", "snakemake")


def _versions(metrics: dict[Target, dict]) -> dict[str, str]:
    """Versions as the targets recorded them; two where a rerun mixed them."""
    seen: dict[str, dict[str, None]] = {}
    for target_metrics in metrics.values():
        for package, version in (target_metrics.get("versions") or {}).items():
            seen.setdefault(package, {})[str(version)] = None
    recorded = {package: ", ".join(versions) for package, versions in seen.items()}
    # The rest as installed where the page is made: the jobs of a run share one environment.
    here = {package: installed_version(package) for package in _NAMED_PACKAGES if package not in recorded}
    return recorded | here | {"Python": platform.python_version()}


def _citations(config: Config, status: dict[str, dict], studies: list[Study]) -> list[str]:
    """What a paper with these results should name, by what this run used."""
    ready = [name for name, entry in status.items() if entry["status"] == "ready"]
    used = {status[name]["kind"] for name in ready}
    distances = any("nearest_tcrdist" in study.baselines for study in studies)
    objectives = {getattr(config.encoders[name], "objective", None) for name in ready}
    rows = [
        (True, "airrformer, with the version below, and the source of each data set (for the demo: data/README.md)."),
        ("esm2" in used, "ESM-2: Lin Z et al. Evolutionary-scale prediction of atomic-level protein structure with a "
         "language model. Science 2023; 379: 1123-1130. doi:10.1126/science.ade2574"),
        ("esm1b" in used, "ESM-1b: Rives A et al. Biological structure and function emerge from scaling unsupervised "
         "learning to 250 million protein sequences. PNAS 2021; 118: e2016239118. doi:10.1073/pnas.2016239118"),
        ("antiberty" in used, "AntiBERTy: Ruffolo JA, Gray JJ, Sulam J. Deciphering antibody affinity maturation with "
         "language models and weakly supervised learning. 2021; arXiv:2112.07782"),
        ("ablang" in used, "AbLang: Olsen TH, Moal IH, Deane CM. AbLang: an antibody language model for completing "
         "antibody sequences. Bioinform Adv 2022; 2: vbac046. doi:10.1093/bioadv/vbac046"),
        ("ablang2" in used, "AbLang2: Olsen TH, Moal IH, Deane CM. Addressing the antibody germline bias and its "
         "effect on language models for improved antibody design. Bioinformatics 2024; 40: btae618"),
        ("blosum62" in used, "BLOSUM62: Henikoff S, Henikoff JG. Amino acid substitution matrices from protein blocks. "
         "PNAS 1992; 89: 10915-10919. doi:10.1073/pnas.89.22.10915"),
        (bool({"causal", "seq2seq"} & objectives), "The Transformer: Vaswani A et al. Attention is all you need. "
         "NeurIPS 2017; arXiv:1706.03762"),
        (bool({"contrastive", "both"} & objectives), "Noised views: Nagano Y et al. Contrastive learning of T cell "
         "receptor representations. 2024; arXiv:2406.06397"),
        (bool({"masked", "both"} & objectives), "Masked training: Devlin J et al. BERT: pre-training of deep "
         "bidirectional transformers for language understanding. NAACL 2019; arXiv:1810.04805"),
        (any(d.receptor == "TCR" for d in config.datasets.values()), "TCR gene names and germlines: Nagano Y, Chain B. "
         "tidytcells: standardizer for TR/MH nomenclature. Front Immunol 2023; 14: 1276106"),
        (bool(config.datasets), "Numbering: Lefranc MP et al. IMGT unique numbering for immunoglobulin and T cell "
         "receptor variable domains. Dev Comp Immunol 2003; 27: 55-77"),
        (distances, "TCRdist: Dash P et al. Quantifiable predictive features define epitope-specific T cell receptor "
         "repertoires. Nature 2017; 547: 89-93. doi:10.1038/nature22383"),
        (any(study.comparisons is not None for study in studies), "Comparisons: Nadeau C, Bengio Y. Inference for the "
         "generalization error. Mach Learn 2003; 52: 239-281; Holm S. Scand J Stat 1979; 6: 65-70"),
        (bool(config.expand_targets()), "scikit-learn: Pedregosa F et al. JMLR 2011; 12: 2825-2830"),
        (True, "Snakemake: Mölder F et al. Sustainable data analysis with Snakemake. F1000Research 2021; 10: 33"),
    ]  # fmt: skip
    return [citation for wanted, citation in rows if wanted]
