"""The SkyPilot task and the JobSet hold only fields that those engines know, and scripts that run.

Fields are those of SkyPilot 0.14 (its task schema) and of JobSet v1alpha2 and Kubernetes 1.30.
"""

import math
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

from fakes.paths import ROOT
from fakes.shell import LAUNCH
from launch import slices

SKY = {
    "": "name workdir num_nodes resources file_mounts setup run envs secrets volumes config",
    "resources": "infra accelerators accelerator_args use_spot disk_size disk_tier job_recovery "
    "cpus memory instance_type image_id labels ports any_of ordered autostop network_tier",
    "resources.any_of": "infra accelerators accelerator_args use_spot",
    "resources.any_of.accelerator_args": "runtime_version tpu_name tpu_vm gcp_queued_resource",
    "resources.accelerator_args": "runtime_version tpu_name tpu_vm gcp_queued_resource",
    "resources.job_recovery": "strategy max_restarts_on_errors recover_on_exit_codes",
}
CONTAINER = "name image command args env ports resources volumeMounts workingDir securityContext"
JOBSET = {
    "": "apiVersion kind metadata spec",
    "metadata": "name namespace labels annotations",
    "spec": "replicatedJobs network successPolicy failurePolicy startupPolicy suspend coordinator "
    "managedBy ttlSecondsAfterFinished volumeClaimPolicies",
    "spec.failurePolicy": "maxRestarts restartStrategy rules",
    "spec.failurePolicy.rules": "name action onJobFailureReasons onJobFailureMessagePatterns "
    "targetReplicatedJobs",
    "spec.replicatedJobs": "name groupName template replicas dependsOn",
    "spec.replicatedJobs.template": "metadata spec",
    "spec.replicatedJobs.template.spec": "parallelism completions backoffLimit podFailurePolicy "
    "template completionMode suspend activeDeadlineSeconds ttlSecondsAfterFinished",
    "spec.replicatedJobs.template.spec.podFailurePolicy": "rules",
    "spec.replicatedJobs.template.spec.podFailurePolicy.rules": "action onExitCodes "
    "onPodConditions",
    "spec.replicatedJobs.template.spec.podFailurePolicy.rules.onExitCodes": "containerName "
    "operator values",
    "spec.replicatedJobs.template.spec.template": "metadata spec",
    "spec.replicatedJobs.template.spec.template.spec": "restartPolicy nodeSelector containers "
    "terminationGracePeriodSeconds tolerations volumes serviceAccountName hostNetwork dnsPolicy",
    "spec.replicatedJobs.template.spec.template.spec.containers": CONTAINER,
    "spec.replicatedJobs.template.spec.template.spec.containers.resources": "limits requests",
    "spec.replicatedJobs.template.spec.template.spec.containers.ports": "containerPort name",
    "spec.replicatedJobs.template.spec.template.spec.containers.env": "name value valueFrom",
    "spec.replicatedJobs.template.spec.template.spec.containers.env.valueFrom": "secretKeyRef",
}


def unknown(content, fields, path=""):
    """Return the paths of fields that `known` does not list."""
    if isinstance(content, list):
        return [name for item in content for name in unknown(item, fields, path)]
    if not isinstance(content, dict) or path not in fields:
        return []
    join = lambda name: f"{path}.{name}".lstrip(".")
    names = [join(name) for name in content if name not in fields[path].split()]
    return names + [
        u for name, value in content.items() for u in unknown(value, fields, join(name))
    ]


@pytest.fixture
def task():
    return yaml.safe_load((LAUNCH / "sky.yaml").read_text())


@pytest.fixture
def jobset():
    return yaml.safe_load((LAUNCH / "jobset.yaml").read_text())


def test_the_engines_know_every_field(task, jobset):
    assert not unknown(task, SKY)
    assert not unknown(jobset, JOBSET)
    jobset["spec"]["replicatedJobs"][0]["replica"] = 1
    assert unknown(jobset, JOBSET) == ["spec.replicatedJobs.replica"]


def test_the_task_asks_for_slices_with_their_runtimes(task):
    offers = task["resources"]["any_of"]
    assert len(offers) > 1
    for offer in offers:
        kind = offer["accelerators"].removeprefix("tpu-")
        runtime = next(r for start, r in slices.RUNTIMES.items() if kind.startswith(start))
        assert runtime == offer["accelerator_args"]["runtime_version"]
    assert task["envs"]["MODEL_DIR"].startswith("gs://")
    assert task["secrets"] == {"HF_TOKEN": ""}


def test_the_job_has_a_worker_for_each_four_chips_of_its_topology(jobset):
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    topology = pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"]
    chips = math.prod(map(int, topology.split("x")))
    assert job["parallelism"] == job["completions"] == chips / 4
    assert container["resources"]["limits"] == {"google.com/tpu": 4}
    assert job["podFailurePolicy"]["rules"][0]["onExitCodes"]["containerName"] == container["name"]
    assert pod["restartPolicy"] == "Never", "a pod failure policy asks for it"
    assert re.fullmatch("[a-z0-9-]{1,40}", jobset["metadata"]["name"])


def test_their_scripts_please_bash_and_call_launch_scripts(task, jobset, tmp_path):
    (container,) = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][
        "containers"
    ]
    texts = [task["setup"], task["run"], *container["args"]]
    called = [path for text in texts for path in re.findall(r"bash (launch/\S+)", text)]
    assert called == ["launch/setup.sh", "launch/ro_t5x_base.sh", "launch/ro_t5x_base.sh"]
    assert all((ROOT / path).exists() for path in called)
    shellcheck = pathlib.Path(sys.executable).parent / "shellcheck"
    for text in texts:
        assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
        if shellcheck.exists():
            script = tmp_path / "script.sh"
            script.write_text(f"#!/usr/bin/env bash\n{text}")
            process = subprocess.run([shellcheck, script], capture_output=True, text=True)
            assert process.returncode == 0, process.stdout
