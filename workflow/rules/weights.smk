# A file is looked for on this machine and, where there is none, downloaded once. status.json says how it went, and the
# targets of an encoder that is out of reach (`if_unreachable: skip`) are dropped.


localrules:
    weights,


checkpoint weights:
    output:
        status=RESULTS.encoder_status("{encoder}"),
    log:
        LOGS / "weights" / "{encoder}.log",
    benchmark:
        BENCHMARKS / "weights" / "{encoder}.tsv"
    wildcard_constraints:
        encoder=one_of(PUBLISHED),
    conda:
        "../envs/airrformer.yaml"
    resources:
        mem_mb=1000,
        runtime=120,
    params:
        config=weights_part,
        local=local_weights,
        version=STAGE_VERSIONS["weights"],
    shell:
        '"$AIRRFORMER_PYTHON" -m airrformer weights fetch --config {params.config:q} --encoder {wildcards.encoder}'
        " --output $(dirname {output.status}) > {log} 2>&1 || {{ cat {log} >&2; exit 1; }}"
