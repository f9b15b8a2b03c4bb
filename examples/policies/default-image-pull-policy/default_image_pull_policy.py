"""Default image pull policy: containers that name none get the admin's."""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.defaulter import Defaulted, Request

POLICIES = ("Always", "IfNotPresent", "Never")


class Defaulter(exports.Defaulter):
    policy = "IfNotPresent"

    def configure(self, settings: str) -> None:
        policy = json.loads(settings).get("imagePullPolicy", "IfNotPresent")
        if policy not in POLICIES:
            raise Err(f"imagePullPolicy is {policy!r}; write one of {', '.join(POLICIES)}")
        Defaulter.policy = policy

    def apply_defaults(self, request: Request) -> Defaulted:
        job = json.loads(request.object)
        # A running job must not be rolled by a default: on an update the user's template stays.
        if request.old_object is None:
            for container in containers(job):
                container.setdefault("imagePullPolicy", Defaulter.policy)
        return Defaulted(object=json.dumps(job), warnings=[])


def containers(job: dict) -> list:
    """The containers of the workers' Pod template."""
    spec = job.get("spec", {}).get("workers", {}).get("template", {}).get("spec", {})
    found = spec.get("initContainers", []) + spec.get("containers", [])
    return [container for container in found if isinstance(container, dict)]
