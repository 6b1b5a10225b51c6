"""The command line: arguments -> one function call. Stages are imported when they are called, so ``--help`` is quick.

Exit codes: 0 all is done, 2 a mistake of the user's (one clear sentence, no traceback), 1 a fault of ours, 130 Ctrl-C.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

import airrformer
from airrformer.errors import UserError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Immune receptors to vectors to honest binding classifiers. `snakemake --cores all` runs all of it; each "
    "command below runs one stage.",
)
weights_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Find, check and convert published weights."
)
explain_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look into vectors and encoders.")
app.add_typer(weights_app, name="weights")
app.add_typer(explain_app, name="explain")


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        app()
    except UserError as error:
        print(f"airrformer: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


# ---------------------------------------------------------------------------------------------- options used often

Config = Annotated[str, typer.Option("--config", "-c", help="config.yaml, or its content as JSON.", metavar="FILE")]
Results = Annotated[Path, typer.Option(help="Folder of the results, as the workflow lays it out.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")]
Device = Annotated[str, typer.Option(help="auto, cpu, mps, cuda or cuda:N; auto takes a GPU where there is one.")]
Precision = Annotated[Literal["auto", "fp32", "bf16", "fp16"], typer.Option(help="auto, fp32, bf16 or fp16.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; default: all.", show_default=False)]


def _use_threads(threads: int | None) -> None:
    # Read when torch and BLAS are first imported, which is later. Threads that wait must sleep: on a machine that
    # others use too, spinning ones hold up those that still compute, and training took several times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if threads is not None:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = str(threads)


def _pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """``["a=b,c=d"]`` -> ``{"a": "b", "c": "d"}``."""
    pairs = [pair.partition("=") for text in texts or [] for pair in text.split(",")]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise typer.BadParameter(f"{name + equals + value!r} is no NAME=VALUE", param_hint=option)
    names = [name.strip() for name, _, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise typer.BadParameter(f"{twice} is given twice", param_hint=option)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _load(config: str | dict, check_files: bool = False, **names: str):
    """The config, in which ``names`` (section: name) are there; checked before a stage and its imports start."""
    from airrformer.config import load_config

    loaded = load_config(config, check_files)
    for section, name in names.items():
        known = getattr(loaded, f"{section}s")
        if name not in known:
            raise UserError(f"no {section} {name!r} in the config; there is {', '.join(known) or 'none'}")
    return loaded


def _layout(results: Path):
    from airrformer.paths import Results

    return Results(results)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"airrformer {airrformer.__version__}")
        raise typer.Exit()


@app.callback()
def _start(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only what needs attention.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and leave.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    logging.basicConfig(
        level=logging.WARNING if quiet else logging.INFO, format="%(message)s", stream=sys.stderr, force=True
    )


# ------------------------------------------------------------------------------------------------------- the stages


@app.command()
def parse(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[INPUT]...", help="FASTA, tables or AnnData; - for standard input.", show_default=False
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder to write to.")] = None,
    config: Annotated[str | None, typer.Option("--config", "-c", help="config.yaml; with --dataset.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Name of the dataset in the config.")] = None,
    describe: Annotated[bool, typer.Option("--describe", help="Say what the files are; write nothing.")] = False,
    receptor: Annotated[
        Literal["auto", "TCR", "antibody"], typer.Option(help="What the sequences are; auto: told by them.")
    ] = "auto",
    chains: Annotated[
        str | None,
        typer.Option(help="Chains of a receptor: TRA, TRB, TRG, TRD, heavy, light. Default: those in the files."),
    ] = None,
    format: Annotated[str, typer.Option(help="What the tables are, where their header does not tell.")] = "auto",
    id: Annotated[str | None, typer.Option(help='FASTA header template, as "{receptor_id}|{locus}".')] = None,
    columns: Annotated[list[str] | None, typer.Option(help="Table columns: OURS=THEIRS,...")] = None,
    molecule: Annotated[Literal["auto", "protein", "nucleotide"], typer.Option(help="What the letters are.")] = "auto",
    missing_chain: Annotated[
        Literal["reject", "zero"] | None,
        typer.Option(help="A receptor that lacks a chain: reject it, or keep it. Default: as the files are."),
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option("--set", help="Further keys of a dataset, as in config/README.md: species=mouse,min_umis=2,..."),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="CSV or TSV with one row a receptor and label; default: the INPUT itself.")
    ] = None,
    label_id: Annotated[str, typer.Option(help="Its column with the receptor's id.")] = "receptor_id",
    label_column: Annotated[
        str | None, typer.Option(help="The column with the class; 'label' where --labels is given.")
    ] = None,
    groups: Annotated[list[str] | None, typer.Option(help="Group columns beside it: NAME=COLUMN,...")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first record that would be rejected.")] = False,
    threads: Threads = None,
) -> None:
    """Read receptors: check them, translate, number, pair the chains, join the labels.

    Writes chains.parquet, receptors.parquet, rejected.tsv, genes.tsv and parse.json into the output folder. Every
    record is either in the tables or, with a reason, in rejected.tsv.

    \b
    Examples:
      airrformer parse --describe filtered_contig_annotations.csv
      airrformer parse filtered_contig_annotations.csv --output results/cells
      airrformer parse heavy.fasta light.fasta --receptor antibody --chains heavy,light \\
        --id "{receptor_id}|{locus}" --labels labels.tsv --output results/mine
      zcat clones.tsv.gz | airrformer parse - --chains TRB --output results/clones
      airrformer parse --config config/config.yaml --dataset sars2_tcr --output results/sars2_tcr
    """
    if bool(inputs) == (config is not None) or (config is None) != (dataset is None):
        raise typer.BadParameter("give either INPUT files, or --config with --dataset", param_hint="INPUT")
    if (output is None) != describe:
        raise typer.BadParameter("give either a folder to write to, or --describe", param_hint="--output")
    if describe and strict:
        raise typer.BadParameter("a description stops at nothing; leave one of them out", param_hint="--strict")
    if config is None:
        dataset = "input"
        loaded = _load_inputs(
            inputs or [],
            receptor=receptor,
            chains=chains,
            settings={
                "format": format,
                "id": id,
                "columns": _pairs(columns, "--columns") or None,
                "molecule": molecule,
                **({"missing_chain": missing_chain} if missing_chain else {}),
                "labels": {
                    "path": str(labels) if labels else None, "id": label_id, "column": label_column or "label",
                } if labels or label_column else None,
                "groups": _pairs(groups, "--groups"),
                **_further(set),
            },
        )  # fmt: skip
    else:
        loaded = _load(config, dataset=dataset)
    told_only = config is None and chains is None  # where the files tell which chains there are, each must tell its own
    if describe:
        from airrformer.parse.describe import describe as described

        typer.echo(described(loaded.datasets[dataset], told_only))
        return
    from airrformer.parse import parse_dataset

    workers = threads or os.cpu_count() or 1
    parse_dataset(loaded.datasets[dataset], output, workers=workers, strict=strict, told_only=told_only)


# What has a flag of its own.
_FLAGS = {"sequences", "receptor", "chains", "labels", "groups", "columns", "id", "format", "molecule", "missing_chain"}


def _further(texts: list[str] | None) -> dict[str, str]:
    """The keys of a dataset that ``--set`` gives."""
    keys = _pairs(texts, "--set")
    if own := sorted(_FLAGS & keys.keys()):
        raise typer.BadParameter(f"{own[0]} has a flag of its own; use it", param_hint="--set")
    return keys


def _load_inputs(inputs: list[str], receptor: str, chains: str | None, settings: dict):
    """A config of one dataset, ``input``; the files tell which receptor and chains it has, where that is not said."""
    for path in inputs:
        if path != "-":
            _check_file(path)
    settings = {"sequences": inputs, **settings}
    known = ({} if receptor == "auto" else {"receptor": receptor}) | ({"chains": _chains(chains)} if chains else {})
    if "receptor" not in known and "chains" in known:
        known["receptor"] = "antibody" if {"heavy", "light"} & {*known["chains"]} else "TCR"
    try:
        if "chains" in known:
            return _load({"datasets": {"input": {**settings, **known}}}, check_files=True)
        # once with any chain, so that mistakes in the other settings are said first
        _load({"datasets": {"input": {**settings, "receptor": "TCR", "chains": ["TRB"]}}}, check_files=True)
    except UserError as error:
        _, *mistakes = str(error).splitlines()
        named = [mistake.strip().removeprefix("datasets.input.") for mistake in mistakes]
        raise UserError("; ".join(named) or str(error)) from None
    from airrformer.parse.describe import guess_chains

    # what is said goes before what is guessed
    guessed = guess_chains(inputs, {**settings, **known})
    return _load({"datasets": {"input": {**guessed, **settings, **known}}})


def _check_file(path: str) -> None:
    try:
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
    except FileNotFoundError:
        raise UserError(f"{path!r}: there is no such file") from None
    except OSError as error:
        raise UserError(f"{path[:200]}: cannot read the file: {error.strerror}") from None
    if is_folder:
        raise UserError(f"{path}: a folder; name the files in it")


def _chains(text: str) -> list[str]:
    """Names of chains as the config has them: also their loci, in any case."""
    from airrformer.receptors.tables import CHAIN_LOCI, CHAIN_OF_LOCUS

    names = {**{name.upper(): name for name in CHAIN_LOCI}, **CHAIN_OF_LOCUS}
    return [names.get(word.strip().upper(), word.strip()) for word in text.split(",")]


@app.command()
def pretrain(
    config: Config,
    encoder: Annotated[str, typer.Option(help="Name of the encoder in the config (kind: pretrain).")],
    output: Output,
    results: Results = Path("results"),
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
) -> None:
    """Train an encoder, or a decoder that writes sequences, from scratch on parsed datasets.

    \b
    Example:
      airrformer pretrain --config config/config.yaml --encoder scratch --output results/encoders/scratch
    """
    _use_threads(threads)
    loaded = _load(config, encoder=encoder)
    from airrformer.pretrain import pretrain_encoder

    pretrain_encoder(loaded, encoder, _layout(results), output, device, precision)


@app.command()
def embed(
    input: Annotated[Path | None, typer.Argument(metavar="[INPUT]", help="FASTA or CSV/TSV file.")] = None,
    encoder: Annotated[str, typer.Option(help="A published name, a folder, or with --config a name in it.")] = "",
    config: Annotated[str | None, typer.Option("--config", "-c", help="config.yaml; with --dataset.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Name of the dataset in the config.")] = None,
    results: Results = Path("results"),
    weights: Annotated[Path | None, typer.Option(help="File with the published encoder's weights.")] = None,
    pooling: Annotated[
        str, typer.Option(help="mean, max, a region such as cdr3 (its mean), or loops (CDR1 to CDR3 side by side).")
    ] = "mean",
    layer: Annotated[int, typer.Option(help="0 the embedding, 1 the first block, -1 the last.")] = -1,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="FILE.parquet, FILE.npz or FILE.csv; one row a record."),
    ] = None,
    residues: Annotated[
        bool | None,
        typer.Option("--residues/--no-residues", help="With --config: keep the vector of every residue too."),
    ] = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
) -> None:
    """Turn sequences into vectors.

    With INPUT: one file, one encoder, one pooling. With --config and --dataset: all poolings of the config into the
    results folder.

    \b
    Examples:
      airrformer embed new.fasta --encoder esm2_t6_8M_UR50D --pooling mean --output new.parquet
      airrformer embed new.fasta --encoder results/encoders/scratch --pooling cdr3 --output new.npz
      airrformer embed --config config/config.yaml --dataset bnab --encoder antiberty
    """
    _use_threads(threads)
    if (input is None) == (config is None) or (config is None) != (dataset is None) or not encoder:
        raise typer.BadParameter("give INPUT and --encoder, or --config, --dataset and --encoder", param_hint="INPUT")
    if config is None and output is None:
        raise typer.BadParameter("with INPUT, name a FILE.parquet, FILE.npz or FILE.csv", param_hint="--output")
    loaded = _load(config, dataset=dataset, encoder=encoder) if config is not None else None
    from airrformer.embed.stage import embed_dataset, embed_file

    if loaded is not None:
        if residues is not None:
            loaded = loaded.model_copy(update={"keep_residues": residues})
        embed_dataset(loaded, dataset, encoder, _layout(results), device, precision)
    else:
        embed_file(input, encoder, output, weights, pooling, layer, device, precision)


@app.command()
def classify(
    config: Config,
    target: Annotated[str, typer.Option(help="dataset/encoder/pooling/classifier, as in the results' paths.")],
    output: Output,
    results: Results = Path("results"),
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train a classifier, judge it by cross-validation and keep the final model.

    \b
    Example:
      airrformer classify --config config/config.yaml --target sars2_tcr/kmer/counts/logistic \\
        --output results/sars2_tcr/kmer/counts/logistic
    """
    from airrformer.config import Target

    _use_threads(threads)
    names = target.split("/")
    if len(names) != len(Target._fields):
        raise typer.BadParameter(f"{target!r} is no dataset/encoder/pooling/classifier", param_hint="--target")
    loaded = _load(config, **dict(zip(Target._fields, names)))
    from airrformer.classify import classify as run

    run(loaded, Target(*names), _layout(results), output, device)


@app.command()
def baselines(
    config: Config,
    dataset: Annotated[str, typer.Option(help="Name of a dataset of the config.")],
    output: Output,
    results: Results = Path("results"),
) -> None:
    """Judge the shortcuts and the plain models on the folds that the classifiers are judged on, and look for leaks.

    \b
    Example:
      airrformer baselines --config config/config.yaml --dataset sars2_tcr --output results/sars2_tcr/baselines
    """
    loaded = _load(config, dataset=dataset)
    from airrformer.classify import make_baselines as run

    run(loaded, dataset, _layout(results), output)


@app.command()
def compare(
    config: Config,
    dataset: Annotated[str, typer.Option(help="Name of a dataset of the config.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="FILE.tsv: a row a comparison and split.")],
    results: Results = Path("results"),
) -> None:
    """Compare the best classifier of a dataset with all others and the baselines, on the same receptors.

    \b
    Example:
      airrformer compare --config config/config.yaml --dataset sars2_tcr --output results/sars2_tcr/comparisons.tsv
    """
    loaded = _load(config, dataset=dataset)
    from airrformer.classify import compare_dataset as run

    run(loaded, dataset, _layout(results), output)


@app.command()
def predict(
    model: Annotated[Path, typer.Option(help="The model/ folder that classify wrote.")],
    input: Annotated[Path, typer.Option("--input", "-i", help="FASTA or CSV/TSV file, as parse reads it.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="FILE.tsv: a row a receptor, a column a class.")],
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Score new receptors with a saved classifier.

    The rows stand in the order of the input. What could not be scored is listed in FILE.rejected.tsv beside the output,
    and the training receptors nearest to each, with a warning for what is unlike them, in FILE.nearest.tsv.

    \b
    Example:
      airrformer predict --model results/sars2_tcr/scratch/cdr3/logistic/model --input new.fasta --output scores.tsv
    """
    _use_threads(threads)
    from airrformer.classify import predict as run

    run(model, input, output, device=device)


@app.command()
def generate(
    encoder: Annotated[str, typer.Option(help="Folder of a trained decoder (objective: causal).", metavar="DIR")],
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="How many sequences.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="FILE.fasta; the numbers go to FILE.json.")],
    reference: Annotated[
        list[Path] | None,
        typer.Option(help="chains.parquet, a table or FASTA to compare with; may be given again.", show_default=False),
    ] = None,
    sequence: Annotated[
        Literal["junction", "chain"] | None,
        typer.Option(help="What the decoder writes; default: what it was trained on.", show_default=False),
    ] = None,
    max_residues: Annotated[
        int | None,
        typer.Option(min=1, help="At most; default: 40 of a junction, 150 of a chain.", show_default=False),
    ] = None,
    temperature: Annotated[float, typer.Option(help="Below 1: more of what is likely; above 1: less.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Draw from so many likeliest residues; 0: from all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw from the fewest that have this probability together.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Of all that is drawn.")] = 1,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Let a decoder write new sequences, and say how many are valid and new and how like the reference they are.

    \b
    Example:
      airrformer generate --encoder results/encoders/writer -n 1000 --output new.fasta \\
        --reference results/sars2_tcr/chains.parquet
    """
    _use_threads(threads)
    from airrformer.generate import generate_file

    generate_file(encoder, n, output, reference or (), sequence, max_residues, temperature, top_k, top_p, seed, device)


@explain_app.command("map")
def explain_map(
    config: Config,
    dataset: Annotated[str, typer.Option(help="Name of the dataset in the config.")],
    encoder: Annotated[str, typer.Option(help="Name of the encoder in the config.")],
    results: Results = Path("results"),
) -> None:
    """Lay a dataset's vectors out in the plane (PCA and t-SNE), for each pooling of the config.

    \b
    Example:
      airrformer explain map --config config/config.yaml --dataset sars2_tcr --encoder scratch
    """
    loaded = _load(config, dataset=dataset, encoder=encoder)
    from airrformer.explain import map_embeddings

    map_embeddings(loaded, dataset, encoder, _layout(results))


@explain_app.command("masked")
def explain_masked(
    encoder: Annotated[str, typer.Option(help="A published name, or a folder such as results/encoders/scratch.")],
    sequence: Annotated[str, typer.Option(help="Amino acids of the whole chain.")],
    positions: Annotated[
        str | None, typer.Option(help="Which to hide, from 0 in the chain: 109,114; default: all.", metavar="NUMBERS")
    ] = None,
    region: Annotated[str | None, typer.Option(help="Or the stretch to hide, as residues of the chain.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="FILE.tsv: a row a position, a column for each of the twenty residues."),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Hide residues of a chain one at a time and let an encoder guess them; a line a residue.

    \b
    Example:
      airrformer explain masked --encoder antiberty --sequence EVQLV...VTVSS --region CARDYW
    """
    _use_threads(threads)
    try:
        at = None if positions is None else [int(number) for number in positions.split(",")]
    except ValueError:
        raise UserError(f"--positions {positions!r}: numbers joined by commas were expected, such as 109,114") from None
    from airrformer.explain import guess_lines, masked_guesses

    guesses = masked_guesses(encoder, sequence, region, output, device, at)
    for line in guess_lines(guesses, region is not None):
        typer.echo(line)


@app.command()
def report(
    config: Config,
    results: Results = Path("results"),
    output: Annotated[Path, typer.Option("--output", "-o", help="The page; one file.")] = Path("results/report.html"),
) -> None:
    """Write the leaderboard, the table of trained encoders and the report from the result files.

    \b
    Example:
      airrformer report --config config/config.yaml --results results --output results/report.html
    """
    loaded = _load(config)
    from airrformer.report import write_leaderboard, write_pretraining, write_report

    write_leaderboard(loaded, _layout(results))
    write_pretraining(loaded, _layout(results))
    write_report(loaded, _layout(results), output)


@weights_app.command("list")
def weights_list() -> None:
    """Show the published encoders: size, licence, and where their weights are on this machine or how to get them.

    \b
    Example:
      airrformer weights list
    """
    from airrformer.core.config import FAMILIES
    from airrformer.core.weights import CHECKPOINTS, find_local, how_to_get, url_of

    rows = [("name", "parameters", "licence", "source", "weights")]
    for name, config in FAMILIES.items():
        checkpoint = CHECKPOINTS[name]
        size = f"{sum(config.parameters().values()):,}"
        where = find_local(name) or f"not here; {url_of(name) or how_to_get(name)}"
        rows.append((name, size, checkpoint.licence, checkpoint.source, where))
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    typer.echo("`airrformer weights fetch NAME` downloads one, or says how to get it by hand.", err=True)


@weights_app.command("check")
def weights_check(
    path: Annotated[Path, typer.Argument(help="A weights file as it is published, or its folder.")],
    name: Annotated[
        str | None, typer.Option(help="The published encoder that it should be; default: found out.")
    ] = None,
) -> None:
    """Load weights and say what they are.

    Every tensor of the file must have a place in the model, or a name that is left out on purpose, and the model must
    be filled. Sizes are compared, numbers are not: only the sha256 tells whether a file is the published one.

    \b
    Example:
      airrformer weights check esm2_t6_8M_UR50D.pt --name esm2_t6_8M_UR50D
    """
    from airrformer.core.weights import CHECKPOINTS, identify, load_foreign, sha256, weights_file

    if name is None:
        names, model = identify(path)
    else:
        _check_published(name)
        names, model = [name], load_foreign(name, path)
    file = weights_file(path, names[0])
    parameters = sum(tensor.numel() for tensor in model.parameters())
    rows = {
        "model": " or ".join(names) + (" (same sizes; only their numbers differ)" if len(names) > 1 else ""),
        "source": f"{CHECKPOINTS[names[0]].source}, {CHECKPOINTS[names[0]].licence}",
        "parameters": f"{parameters:,}",
        "compared": f"embedding, {model.config.layers} layers and output: every tensor has its place",
        "contacts": "yes" if model.config.contacts else "no",
        "sha256": sha256(file),
    }
    typer.echo(str(file))
    for key, value in rows.items():
        typer.echo(f"  {key:<12}{value}")


@weights_app.command("fetch")
def weights_fetch(
    name: Annotated[
        str | None, typer.Argument(help="A published encoder, as `weights list` shows them.", show_default=False)
    ] = None,
    config: Annotated[str | None, typer.Option("--config", "-c", help="config.yaml; with --encoder.")] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Name of an encoder in the config with published weights.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder for status.json.")] = None,
) -> None:
    """Find an encoder's weights on this machine or download them once.

    With NAME: prints where the file is. With --config, --encoder and --output: writes status.json, which says how it
    went; `if_unreachable: skip` in the config makes it no error when they can be had nowhere.

    \b
    Examples:
      airrformer weights fetch esm2_t6_8M_UR50D
      airrformer weights fetch --config config/config.yaml --encoder esm2_8m --output results/encoders/esm2_8m
    """
    if (name is None) == (config is None) or (config is None) != (encoder is None):
        raise typer.BadParameter("give either NAME, or --config with --encoder", param_hint="NAME")
    if config is not None and output is None:
        raise typer.BadParameter("with --config, name the folder for status.json", param_hint="--output")
    if name is not None:
        _check_published(name)
        from airrformer.embed.checkpoints import fetch_by_name

        typer.echo(fetch_by_name(name, output))
        return
    settings = _load(config, encoder=encoder).encoders[encoder]
    from airrformer.config import PublishedEncoder
    from airrformer.embed.checkpoints import fetch

    if not isinstance(settings, PublishedEncoder):
        raise UserError(f"encoder {encoder!r} is of kind {settings.kind}, which has no published weights to fetch")
    fetch(settings, encoder, output)


@weights_app.command("convert")
def weights_convert(
    path: Annotated[Path, typer.Argument(help="A weights file as it is published, or its folder.")],
    name: Annotated[str, typer.Option(help="The published encoder that it is, as `weights list` shows them.")],
    output: Output,
) -> None:
    """Write published weights as files of our own: model.safetensors and config.json, a folder for --encoder.

    \b
    Example:
      airrformer weights convert esm2_t6_8M_UR50D.pt --name esm2_t6_8M_UR50D --output encoders/esm2_8m
    """
    _check_published(name)
    from airrformer.core.weights import load_foreign, load_own, save

    model = load_foreign(name, path)
    save(model, output)
    written, wanted = load_own(output).state_dict(), model.state_dict()
    if written.keys() != wanted.keys() or not all(written[key].equal(wanted[key]) for key in wanted):
        raise RuntimeError(f"{output}: what was written does not come back the same")
    typer.echo(
        f"{output}: {name}, {sum(tensor.numel() for tensor in model.parameters()):,} parameters, read back equal"
    )


def _check_published(name: str) -> None:
    from airrformer.core.config import FAMILIES

    if name not in FAMILIES:
        raise UserError(f"no published encoder {name!r}; there is {', '.join(FAMILIES)}")
