"""The Kubernetes manifests: valid, complete, and a star."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
OLDEST = "1.30"  # of the versions that the manifests are kept valid for; later ones take what it takes
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
UNITS = ("verifier", "drafter", "sampler")
PODS = ("orchestrator", "weight-store", *UNITS)
METRICS_PORT = 9100
Manifest = dict[str, Any]
MANIFESTS: list[Manifest] = [
    manifest
    for name in KUSTOMIZATION["resources"]
    for manifest in yaml.safe_load_all((FOLDER / name).read_text())
]  # fmt: skip


def manifests(*kinds: str) -> Iterator[Manifest]:
    return (manifest for manifest in MANIFESTS if not kinds or manifest["kind"] in kinds)


def named(kind: str, name: str) -> Manifest:
    (found,) = (manifest for manifest in manifests(kind) if manifest["metadata"]["name"] == name)
    return found


def selects(selector: Manifest, labels: Manifest) -> bool:
    """An empty selector selects every pod."""
    assert set(selector) <= {"matchLabels"}
    return selector.get("matchLabels", {}).items() <= labels.items()


def pod(name: str) -> Manifest:
    template: Manifest = named("Deployment", name)["spec"]["template"]
    return template


def labels(name: str) -> Manifest:
    found: Manifest = pod(name)["metadata"]["labels"]
    return found


def container(name: str) -> Manifest:
    (found,) = pod(name)["spec"]["containers"]
    return found


def test_manifests_fit_the_schemas_of_kubernetes() -> None:
    for manifest in manifests():
        kubernetes_validate.validate(manifest, OLDEST, strict=True)


def test_schemas_refuse_a_field_that_kubernetes_does_not_know() -> None:
    manifest = named("Deployment", "verifier")
    manifest["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, OLDEST, strict=True)


def test_kustomization_names_every_file_beside_it() -> None:
    assert {*KUSTOMIZATION["resources"], "kustomization.yaml"} == {file.name for file in FOLDER.iterdir()}


def test_kustomization_tags_the_images_that_compose_builds_and_pods_run() -> None:
    built = {service["image"] for service in compose_file()["services"].values()}
    assert built == {image["name"] for image in KUSTOMIZATION["images"]} == {container(name)["image"] for name in PODS}


@pytest.mark.parametrize("kind", ["Deployment", "PodDisruptionBudget"])
def test_selectors_select_the_pods_of_one_deployment(kind: str) -> None:
    for manifest in manifests(kind):
        selected = [name for name in PODS if selects(manifest["spec"]["selector"], labels(name))]
        assert selected == [manifest["metadata"]["name"]]


def test_addresses_in_the_settings_are_headless_services_that_reach_their_pods() -> None:
    addresses = {value for value in named("ConfigMap", "settings")["data"].values() if ":" in value}
    assert len(addresses) == 4
    for name, port in (address.split(":") for address in addresses):
        service, reached = named("Service", name)["spec"], container(name)
        assert service["clusterIP"] == "None"
        assert service["selector"].items() <= labels(name).items()
        assert [entry["port"] for entry in service["ports"]] == [int(port)]
        assert [entry["containerPort"] for entry in reached["ports"]] == [int(port), METRICS_PORT]
        assert f"EXPOSE {port}\n" in stage(name)
        assert {reached[f"{kind}Probe"]["grpc"]["port"] for kind in ("startup", "readiness", "liveness")} == {int(port)}


def test_units_are_scaled_within_a_budget_of_disruption() -> None:
    targets = {manifest["spec"]["scaleTargetRef"]["name"] for manifest in manifests("HorizontalPodAutoscaler")}
    budgets = {manifest["metadata"]["name"] for manifest in manifests("PodDisruptionBudget")}
    assert targets == budgets == set(UNITS)


def test_network_policy_is_a_star() -> None:
    star = {("orchestrator", to, port(to)) for to in (*UNITS, "weight-store")}
    star |= {(unit, "weight-store", port("weight-store")) for unit in UNITS}
    ports = [port(name) for name in PODS]
    reached = {(a, b, p) for a, b, p in itertools.product(PODS, PODS, ports) if p == port(b) and reaches(a, b, p)}
    assert reached == star


def test_only_the_orchestrator_is_open_to_others() -> None:
    assert [name for name in PODS if allowed("ingress", name, None, port(name))] == ["orchestrator"]


def test_metrics_are_scraped_where_the_images_serve_them_and_only_from_the_namespace_monitoring() -> None:
    assert f"HETSPEC_METRICS_PORT={METRICS_PORT} " in stage("common")
    assert f"EXPOSE {METRICS_PORT}\n" in stage("common")
    for name in PODS:
        annotations = pod(name)["metadata"]["annotations"]
        assert annotations == {"prometheus.io/scrape": "true", "prometheus.io/port": str(METRICS_PORT)}
        assert not any(allowed("ingress", name, peer, METRICS_PORT) for peer in (None, *PODS))
    (policy,) = (each["spec"] for each in manifests("NetworkPolicy") if each["metadata"]["name"] == "metrics")
    (rule,) = policy["ingress"]
    assert policy["podSelector"] == {}
    assert rule["ports"] == [{"port": METRICS_PORT}]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]


def port(name: str) -> int:
    """At which it serves."""
    (found,) = (entry["containerPort"] for entry in container(name)["ports"] if entry["name"] != "metrics")
    return int(found)


def reaches(client: str, server: str, port: int) -> bool:
    return allowed("egress", client, server, port) and allowed("ingress", server, client, port)


def allowed(direction: str, name: str, peer: str | None, port: int) -> bool:
    """By the policies that select the pod, of which any may allow. peer None: a pod of another namespace."""
    policies = [policy["spec"] for policy in manifests("NetworkPolicy")]
    fitting = [
        policy
        for policy in policies
        if direction.capitalize() in policy["policyTypes"] and selects(policy["podSelector"], labels(name))
    ]
    assert fitting  # else everything would be allowed
    rules = itertools.chain.from_iterable(policy.get(direction, []) for policy in fitting)
    return any(rule_allows(rule, "from" if direction == "ingress" else "to", peer, port) for rule in rules)


def rule_allows(rule: Manifest, side: str, peer: str | None, port: int) -> bool:
    if all(entry["port"] != port for entry in rule["ports"]):
        return False
    if side not in rule:
        return True
    return any(
        peer is not None and "namespaceSelector" not in entry and selects(entry["podSelector"], labels(peer))
        for entry in rule[side]
    )


def compose_file() -> Manifest:
    read: Manifest = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return read


def stage(name: str) -> str:
    """A target of the Dockerfile, as text."""
    stages = (ROOT / "deploy" / "Dockerfile").read_text().split("\nFROM ")
    (found,) = (text for text in stages if text.splitlines()[0].endswith(f" AS {name.replace('-', '_')}"))
    return found
