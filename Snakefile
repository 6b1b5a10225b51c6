# Makes `snakemake --cores all` work from the top folder; the workflow itself is in workflow/.
include: "workflow/Snakefile"


rule default:
    default_target: True
    input:
        rules.all.input,
