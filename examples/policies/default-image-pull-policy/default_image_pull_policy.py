"""Default image pull policy: containers that name none get the admin's."""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.defaulter import Answer_Defaulted, Defaulted, Request

POLICIES = ("Always", "IfNotPresent", "Never")


class Defaulter(exports.Defaulter):
    def validate_settings(self, settings: str) -> None:
        policy = set_policy(settings)
        if policy not in POLICIES:
            raise Err(f"imagePullPolicy is {policy!r}; write one of {', '.join(POLICIES)}")

    def apply_defaults(self, request: Request) -> Answer_Defaulted:
        job = json.loads(request.object)
        policy = set_policy(request.settings)
        # A default must not restart a running job: on an update the user's template stays.
        if request.old_object is None:
            for container in containers(job):
                container.setdefault("imagePullPolicy", policy)
        return Answer_Defaulted(Defaulted(object=json.dumps(job), warnings=[]))


def set_policy(settings: str) -> str:
    """The policy that the admin has set."""
    return json.loads(settings).get("imagePullPolicy", "IfNotPresent")


def containers(job: dict) -> list:
    """The containers of the workers' Pod template."""
    spec = job.get("spec", {}).get("workers", {}).get("template", {}).get("spec", {})
    found = spec.get("initContainers", []) + spec.get("containers", [])
    return [container for container in found if isinstance(container, dict)]
