rule pretrain:
    input:
        chains=lambda wildcards: [RESULTS.chains(dataset) for dataset in corpus(wildcards)],
        receptors=lambda wildcards: [RESULTS.receptors(dataset) for dataset in corpus(wildcards)],
    output:
        model=RESULTS.encoder("{encoder}") / "model.safetensors",
        config=RESULTS.encoder("{encoder}") / "config.json",
        history=report(
            RESULTS.encoder("{encoder}") / "history.tsv",
            caption="../report/curve.rst",
            category="Training",
            labels={"encoder": "{encoder}"},
        ),
        metrics=RESULTS.encoder("{encoder}") / "metrics.json",
        card=RESULTS.encoder("{encoder}") / "card.md",
        status=RESULTS.encoder_status("{encoder}"),
    log:
        LOGS / "pretrain" / "{encoder}.log",
    benchmark:
        BENCHMARKS / "pretrain" / "{encoder}.tsv"
    wildcard_constraints:
        encoder=one_of(name for name in PRETRAINED + WRITERS if name not in FOLDED),
    priority: 1  # most of the rest waits for it
    conda:
        "../envs/airrformer.yaml"
    threads: HALF_THE_CORES
    resources:
        mem_mb=8000,
        runtime=1440,
        gpu=GPUS,
        device=CONFIG.compute.device,
        precision=CONFIG.compute.precision,
    params:
        config=pretrain_part,
        version=STAGE_VERSIONS["pretrain"],
    shell:
        '"$AIRRFORMER_PYTHON" -m airrformer pretrain --config {params.config:q} --encoder {wildcards.encoder}'
        " --output $(dirname {output.model})"
        " --device {resources.device} --precision {resources.precision} --threads {threads} > {log} 2>&1 || {{ cat {log} >&2; exit 1; }}"


# `corpus: train_folds`: one more encoder for each test fold.
use rule pretrain as pretrain_folds with:
    output:
        model=RESULTS.encoder("{encoder}") / "model.safetensors",
        config=RESULTS.encoder("{encoder}") / "config.json",
        history=RESULTS.encoder("{encoder}") / "history.tsv",
        metrics=RESULTS.encoder("{encoder}") / "metrics.json",
        card=RESULTS.encoder("{encoder}") / "card.md",
        status=RESULTS.encoder_status("{encoder}"),
        folds=directory(RESULTS.fold_encoders("{encoder}")),
    wildcard_constraints:
        encoder=one_of(FOLDED),
