# One job reads an encoder once and makes all poolings of a dataset.
rule embed:
    input:
        chains=RESULTS.chains("{dataset}"),
        receptors=RESULTS.receptors("{dataset}"),
        encoder=encoder_files,
    output:
        # nothing dense in the config: a name that nobody asks for
        features=[RESULTS.features("{dataset}", "{encoder}", pooling) for pooling in DENSE_POOLINGS or ["none"]],
        residues=[directory(RESULTS.residues("{dataset}", "{encoder}"))] if CONFIG.keep_residues else [],
    log:
        LOGS / "embed" / "{dataset}" / "{encoder}.log",
    benchmark:
        BENCHMARKS / "embed" / "{dataset}" / "{encoder}.tsv"
    wildcard_constraints:
        encoder=one_of(DENSE),
    conda:
        "../envs/airrformer.yaml"
    threads: 8
    resources:
        mem_mb=16000,
        runtime=480,
        gpu=GPUS,
        device=CONFIG.compute.device,
        precision=CONFIG.compute.precision,
    params:
        config=embed_part,
        version=STAGE_VERSIONS["embed"],
    shell:
        '"$AIRRFORMER_PYTHON" -m airrformer embed --config {params.config:q} --dataset {wildcards.dataset}'
        " --encoder {wildcards.encoder} --device {resources.device} --precision {resources.precision} --threads {threads} > {log} 2>&1"


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
    params:
        config=embed_part,
        version=STAGE_VERSIONS["embed"],
