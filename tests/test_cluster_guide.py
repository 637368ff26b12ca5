"""The guide to sweeps on many machines: the program accepts its commands and manifests."""

import re
import shlex
from typing import Any

from conftest import ROOT, need_library
from emmclab.cli import application
from emmclab.studies import Study
from emmclab.studies.run import Shard

TEXT = (ROOT / "docs/guides/cluster.md").read_text()


def options(command: str) -> set[str]:
    group: Any = application()
    return {name for one in group.commands[command].params for name in (*one.opts, *one.secondary_opts)}


def test_every_command_of_the_guide_is_one_of_the_program_with_its_options() -> None:
    lines = re.findall(r"emmclab (run|collect|search|report|query)\b([^`\n#]*)", TEXT)
    assert len(lines) > 10
    for command, rest in lines:
        named = {word.partition("=")[0] for word in rest.split() if word.startswith("--")}
        assert named <= options(command), f"{command}{rest}"


def test_the_manifest_is_an_indexed_job_whose_shards_are_those_of_the_study() -> None:
    need_library("yaml")
    import yaml

    (text,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    job = yaml.safe_load(text)
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed" and spec["parallelism"] <= spec["completions"]
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] in ("Never", "OnFailure")
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
    assert container["command"] == ["/bin/sh", "-c"]
    (line,) = container["args"]
    shards = set()
    for index in range(spec["completions"]):
        words = shlex.split(line.replace("$((JOB_COMPLETION_INDEX + 1))", str(index + 1)))
        assert words[:3] == ["exec", "emmclab", "run"]
        given = dict(zip(words[4::2], words[5::2], strict=True))
        assert set(given) <= options("run")
        shards.add(str(Shard.parse(given["--shard"])))
        assert given["--jobs"] == container["resources"]["requests"]["cpu"]
    assert shards == {f"{number}-of-{spec['completions']}" for number in range(1, spec["completions"] + 1)}


def test_the_slurm_array_runs_every_shard() -> None:
    (last,) = re.findall(r"#SBATCH --array=1-(\d+)", TEXT)
    (of,) = re.findall(r'--shard "\$SLURM_ARRAY_TASK_ID/(\d+)"', TEXT)
    assert last == of


def test_the_section_of_the_guide_is_a_space() -> None:
    section = TEXT[TEXT.index("    [search]\n") : TEXT.index("    emmclab search study.toml")]
    grid = 'name = "x"\ninputs = ["Movie"]\n[[grid]]\nname = "collection"\ndevices = ["small-1gb"]\n'
    study = Study.parse(grid + "\n".join(line[4:] for line in section.splitlines()), "x.toml")
    assert study.search is not None
    assert [one.name for one in study.search.ranges] == ["gc.policy", "capacity.over_provisioning_pct"]
