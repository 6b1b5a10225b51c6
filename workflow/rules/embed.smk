# One job reads an encoder once and makes all poolings of a dataset.
rule embed:
    input:
        chains=RESULTS.chains("{dataset}"),
        receptors=RESULTS.receptors("{dataset}"),
        encoder=lambda wildcards: encoder_files(wildcards.encoder),
    output:
        # nothing dense in the config: a name that nobody asks for
        features=[RESULTS.features("{dataset}", "{encoder}", pooling) for pooling in DENSE_POOLINGS or ["none"]],
        residues=[directory(RESULTS.residues("{dataset}", "{encoder}"))] if CONFIG.keep_residues else [],
    log:
        LOGS / "embed" / "{dataset}" / "{encoder}.log",
    benchmark:
        BENCHMARKS / "embed" / "{dataset}" / "{encoder}.tsv"
    wildcard_constraints:
        encoder=one_of(name for name in DENSE if name not in FOLDED),
    conda:
        "../envs/airrformer.yaml"
    threads: HALF_THE_CORES
    resources:
        mem_mb=16000,
        runtime=480,
        gpu=GPUS,
        device=CONFIG.compute.device,
        precision=CONFIG.compute.precision,
        # not tracked: residues that are asked for and not there are reason enough
        residues="--residues" if CONFIG.keep_residues else "--no-residues",
    params:
        config=embed_part,
        version=STAGE_VERSIONS["embed"],
    shell:
        '"$AIRRFORMER_PYTHON" -m airrformer embed --config {params.config:q} --dataset {wildcards.dataset}'
        " --encoder {wildcards.encoder} --device {resources.device} --precision {resources.precision} --threads {threads}"
        " {resources.residues} > {log} 2>&1 || {{ cat {log} >&2; exit 1; }}"


# The same command where each test fold has an encoder of its own: features of all of them.
use rule embed as embed_folds with:
    input:
        chains=RESULTS.chains("{dataset}"),
        receptors=RESULTS.receptors("{dataset}"),
        encoder=lambda wildcards: encoder_files(wildcards.encoder),
        folds=RESULTS.fold_encoders("{encoder}"),
    output:
        features=[RESULTS.features("{dataset}", "{encoder}", pooling) for pooling in DENSE_POOLINGS or ["none"]],
        residues=[directory(RESULTS.residues("{dataset}", "{encoder}"))] if CONFIG.keep_residues else [],
        folds=directory(RESULTS.folds("{dataset}", "{encoder}")),
    wildcard_constraints:
        encoder=one_of(FOLDED),


# The same command for encoders that count: their one pooling is `counts`, and they need no GPU.
use rule embed as embed_counts with:
    output:
        features=[RESULTS.features("{dataset}", "{encoder}", pooling) for pooling in COUNT_POOLINGS or ["none"]],
    wildcard_constraints:
        encoder=one_of(COUNTED),
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
        gpu=0,
        device="cpu",
        precision="fp32",
        residues="--no-residues",
    params:
        config=embed_part,
        version=STAGE_VERSIONS["embed"],
