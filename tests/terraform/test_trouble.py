"""What the provider says, and leaves behind, when something is wrong."""

from __future__ import annotations

import json
import socket
import ssl
from collections import Counter
from pathlib import Path

import pytest

from gtm.core.model.access import Role
from tests.balancer.certificates import Authority
from tests.terraform.conftest import Control, Ran, Terraform, programs
from tests.terraform.proxy import Proxy

pytestmark = pytest.mark.drill

TENANT = 'resource "gtm_tenant" "it" {\n  name = "acme"\n  weight = 2\n}\n'
FEW = 'resource "gtm_tenant" "it" {\n  count = 12\n  name = "t${count.index}"\n}\n'
REGION = """
resource "gtm_region" "fra" {
  name      = "fra"
  country   = "DE"
  lat       = 50
  lon       = 8
  endpoints = [{ url = "https://fra.example.com", ipv4 = ["192.0.2.1"] }]
}
resource "gtm_region" "nyc" {
  name      = "nyc"
  country   = "US"
  lat       = 40
  lon       = -74
  endpoints = [{ url = "https://nyc.example.com", ipv4 = ["192.0.2.2"] }]
}
resource "gtm_service" "chat" {
  name    = "chat"
  members = [{ region = gtm_region.fra.name }, { region = gtm_region.nyc.name }]
}
"""


VERSIONS = 'terraform {\n  required_providers {\n    gtm = { source = "gtm/gtm" }\n  }\n}\n'


@pytest.fixture
def terraform(terraform: Terraform) -> Terraform:
    """Beside a configuration that says where the provider is from."""
    terraform.write("versions.tf", VERSIONS)
    return terraform


def rule(label: str, name: str, allow: str = "EEA") -> str:
    """A residency rule on the service."""
    return (
        f'resource "gtm_residency_rule" "{label}" {{\n  name = "{name}"\n'
        f'  match = {{ services = [gtm_service.chat.name] }}\n  allow = {{ jurisdictions = ["{allow}"] }}\n}}\n'
    )


def provider_block(**settings: str) -> str:
    """The provider block with these settings."""
    lines = "".join(f"  {name} = {json.dumps(value)}\n" for name, value in settings.items())
    return f'provider "gtm" {{\n{lines}}}\n'


def state(terraform: Terraform) -> set[str]:
    """The names of what Terraform believes that there is."""
    file = terraform.folder / "terraform.tfstate"
    resources = json.loads(file.read_text())["resources"] if file.exists() else []
    managed = [held for held in resources if held["mode"] == "managed"]
    return {one["attributes"]["name"] for held in managed for one in held["instances"]}


def nothing_to_do(terraform: Terraform) -> Ran:
    """A plan that changes nothing."""
    done = terraform("plan", "-detailed-exitcode")
    assert done.code == 0, done.out + done.err
    return done


def test_who_is_no_control(terraform: Terraform, tmp_path: Path) -> None:
    """Nothing listens; something else does; TLS is spoken to what has none."""
    terraform.write("main.tf", TENANT)
    terraform.environment["GTM_TOKEN"] = "gtm_x"
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with Proxy("http://127.0.0.1:1") as other:
        other.trouble = lambda _: "before"
        cases = {
            f"http://127.0.0.1:{port}": ("cannot be reached", "refused"),
            other.url.replace("http:", "https:"): ("cannot be reached", "http://"),
            "http://gtm.example.com": ("https", "insecure = true"),
            "gtm.example.com": ("not a URL",),
        }
        for url, said in cases.items():
            applied = terraform("import", "gtm_tenant.it", "acme", GTM_CONTROL_URL=url)
            assert applied.code == 1, url
            assert all(part in applied.said for part in said), applied.said
    assert state(terraform) == set()
    refused = terraform("plan", GTM_TOKEN="")
    assert refused.code == 1
    assert "gtm token create" in refused.said


def test_a_control_that_hangs_or_is_gone_is_said_once(terraform: Terraform, control: Control) -> None:
    """However many resources there are, and whatever reads: the run ends once `timeout` is over, with one reason."""
    many = FEW.replace("count = 12", "count = 40") + 'data "gtm_revision" "now" {}\n'
    terraform.write("main.tf", provider_block(timeout="3s") + many)
    terraform.apply(**control.environment())
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        hangs = f"http://127.0.0.1:{silent.getsockname()[1]}"
        planned = terraform("plan", **{**control.environment(), "GTM_CONTROL_URL": hangs})
    assert planned.code == 1
    assert planned.said.count("does not answer in time (3s)") == 1, planned.said
    refused = terraform("plan", **{**control.environment(), "GTM_CONTROL_URL": hangs})
    assert refused.code == 1
    assert refused.said.count("refused") == 1, refused.said
    assert len(state(terraform)) == 40
    terraform.write("main.tf", provider_block(timeout="soon") + many)
    assert "`timeout` is a duration" in terraform("plan", **control.environment()).said


def test_line_ends_of_windows(terraform: Terraform, control: Control) -> None:
    """A heredoc of a file that was saved on Windows is the same text; where no line break may be, the carriage return is named."""
    terraform.environment |= control.environment()
    basis = "legal_basis = <<-EOT\n    Art. 44\n    to 46\n  EOT\n"
    terraform.write(
        "main.tf", (REGION + rule("it", "it").removesuffix("}\n") + basis + "}\n").replace("\n", "\r\n")
    )
    terraform.apply()
    (held,) = control.policy()["residency_rules"]
    assert held["legal_basis"] == "Art. 44\nto 46\n"
    nothing_to_do(terraform)
    terraform.write(
        "tenant.tf",
        'resource "gtm_tenant" "it" {\r\n  name = "acme"\r\n  display_name = <<-EOT\r\n    Acme\r\n  EOT\r\n}\r\n',
    )
    wrong = terraform("plan")
    assert wrong.code == 1
    assert "carriage return" in wrong.said, wrong.said


def test_a_route_that_does_not_wait_says_so(terraform: Terraform, control: Control) -> None:
    """It was decided by the policy before the plan; with `depends_on` it is decided after, in the first apply, too."""
    terraform.environment |= control.environment()
    reads = (
        'data "gtm_route" "it" {\n  service = "chat"\n  country = "DE"\n%s}\n'
        'output "allowed" {\n  value = data.gtm_route.it.allowed_regions\n}\n'
    )
    early = "list what it rests on: `depends_on"
    terraform.write("main.tf", REGION + reads % "")
    refused = terraform("plan")
    assert refused.code == 1
    assert early in refused.said, refused.said
    waits = "  depends_on = [gtm_service.chat, gtm_residency_rule.it]\n"
    terraform.write("main.tf", REGION + rule("it", "it") + reads % waits)
    assert early not in terraform.apply().said
    assert terraform.outputs()["allowed"] == ["fra"]
    assert early not in nothing_to_do(terraform).said
    terraform.write("main.tf", REGION + rule("it", "it") + rule("two", "two", "EU") + reads % "")
    assert early in terraform.ok("plan").said
    terraform.write(
        "main.tf",
        REGION
        + rule("it", "it")
        + rule("two", "two", "EU")
        + reads % waits.replace("]", ", gtm_residency_rule.two]"),
    )
    terraform.apply()
    assert terraform.outputs()["allowed"] == ["fra"]


def test_tokens_that_do_not_do(terraform: Terraform, control: Control) -> None:
    """A viewer plans, and is told why it cannot apply; no text of a token, and one that has been revoked."""
    terraform.write("main.tf", TENANT)
    viewer = control.environment(Role.VIEWER)
    assert "not checked" not in terraform.ok("plan", **viewer).said
    refused = terraform("apply", "-auto-approve", **viewer)
    assert refused.code == 1
    assert "operator" in refused.said, refused.said
    made = control.admin.post("/v1/tokens", json={"name": "gone", "role": "operator"})
    assert made.status_code == 201
    text = made.json()["token"]
    terraform.apply(**{**viewer, "GTM_TOKEN": text})
    assert control.admin.delete("/v1/tokens/gone").status_code in (200, 204)
    for token in (text, "gtm_nobody"):
        wrong = terraform("plan", **{**viewer, "GTM_TOKEN": token})
        assert wrong.code == 1
        assert "see that `token` (or GTM_TOKEN)" in wrong.said, wrong.said
    assert state(terraform) == {"acme"}


def test_an_authority_of_ones_own(terraform: Terraform, control: Control, tmp_path: Path) -> None:
    """Without `ca_file` the error says what to do; with it control is spoken with."""
    authority = Authority(tmp_path, "own")
    issued = authority.issue("control", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.chain, issued.key)
    terraform.write("main.tf", TENANT)
    with Proxy(control.url, tls=context) as proxy:
        environment = {**control.environment(), "GTM_CONTROL_URL": proxy.url}
        refused = terraform("apply", "-auto-approve", **environment)
        assert refused.code == 1
        assert "`ca_file`" in refused.said, refused.said
        terraform.apply(**environment, GTM_CA_FILE=str(authority.file))
        missing = terraform("plan", **environment, GTM_CA_FILE=str(tmp_path / "none.pem"))
        assert missing.code == 1
        assert "ca_file" in missing.said
    assert state(terraform) == {"acme"}


def test_control_goes_in_the_middle(terraform: Terraform, control: Control) -> None:
    """State holds what was said to be made; the next apply takes over what was made unheard, and makes the rest."""
    terraform.write("main.tf", FEW)
    with Proxy(control.url) as proxy:
        terraform.environment |= {**control.environment(), "GTM_CONTROL_URL": proxy.url}
        for when in ("after", "before"):
            writes = 0

            def second(path: str, when: str = when) -> str | None:
                nonlocal writes
                if path != "/v1/policy:apply":
                    return None
                writes += 1
                return when if writes == 2 or when == "after" else None

            proxy.trouble = second
            broken = terraform("apply", "-auto-approve")
            assert broken.code == 1
            there = {one["name"] for one in control.policy().get("tenants", [])}
            assert state(terraform) <= there
            assert "broke the connection off" in broken.said or "cannot be reached" in broken.said
            assert when == "before" or there - state(terraform), "nothing was made unheard"
            proxy.trouble = lambda _: None
            terraform.apply()
            assert state(terraform) == {f"t{number}" for number in range(12)}
            nothing_to_do(terraform)
            terraform.ok("destroy", "-auto-approve", "-target=gtm_tenant.it[11]")
            proxy.trouble = lambda _: None
            why = provider_block(allow_fence_change="over")
            terraform.write("main.tf", why)
            terraform.apply()
            terraform.write("main.tf", FEW)


def test_an_older_control(terraform: Terraform, control: Control) -> None:
    """One that knows no dry runs of viewers: the plan says that it is not checked, and apply goes on."""
    terraform.write("main.tf", TENANT)
    with Proxy(control.url) as proxy:
        proxy.trouble = lambda path: 404 if path == "/v1/policy:plan" else None
        environment = {**control.environment(), "GTM_CONTROL_URL": proxy.url}
        planned = terraform.ok("plan", **environment)
        assert "not checked as a whole" in planned.said
        assert "older than this provider" in planned.said
        terraform.apply(**environment)
    assert [one["name"] for one in control.policy()["tenants"]] == ["acme"]


def test_many_at_once(terraform: Terraform, control: Control) -> None:
    """200 resources go in a fraction as many changes, without a conflict; a plan of no change lists each kind once."""
    terraform.write("main.tf", FEW.replace("12", "200") + REGION)
    with Proxy(control.url) as proxy:
        terraform.environment |= {**control.environment(), "GTM_CONTROL_URL": proxy.url}
        terraform.apply()
        applied = Counter(proxy.seen)[("POST", "/v1/policy:apply")]
        assert applied <= 45, "ten at once, in twos and threes at the least"
        proxy.seen.clear()
        nothing_to_do(terraform)
        assert Counter(proxy.seen) == {
            ("GET", "/v1/tenants"): 1,
            ("GET", "/v1/regions"): 1,
            ("GET", "/v1/services"): 1,
        }


def test_names_that_are_taken(terraform: Terraform, control: Control, tmp_path: Path) -> None:
    """By hand: the error says how to import. By another workspace: whose it is, and `take_over`."""
    assert control.admin.put("/v1/tenants/acme", json={"weight": 7}).status_code == 201
    terraform.write("main.tf", TENANT)
    terraform.environment |= control.environment()
    taken = terraform("apply", "-auto-approve")
    assert taken.code == 1
    assert 'id = "acme"' in taken.said, taken.said
    assert control.policy()["tenants"][0]["weight"] == 7
    imported = 'import {\n  to = gtm_tenant.it\n  id = "acme"\n}\n'
    terraform.write("import.tf", imported)
    terraform.apply()
    assert control.policy()["tenants"][0]["weight"] == 2
    other = terraform.at(tmp_path / "other")
    other.write("versions.tf", VERSIONS)
    other.write("main.tf", provider_block(workspace="other") + imported + TENANT.replace("2", "3"))
    refused = other("plan")
    assert refused.code == 1
    assert "`terraform/default`" in refused.said, refused.said
    other.write(
        "main.tf",
        provider_block(workspace="other", take_over="moved") + imported + TENANT.replace("2", "3"),
    )
    other.apply()
    assert control.policy()["tenants"][0]["weight"] == 3
    lost = terraform("apply", "-auto-approve")
    assert lost.code == 1
    assert "`terraform/other`" in lost.said
    assert control.policy()["tenants"][0]["weight"] == 3


def test_what_changes_between_plan_and_apply(terraform: Terraform, control: Control) -> None:
    """Who has changed it, and in which revision; nothing of theirs is lost."""
    terraform.write("main.tf", TENANT)
    terraform.environment |= control.environment()
    terraform.apply()
    terraform.write("main.tf", TENANT.replace("2", "3"))
    terraform.ok("plan", "-out=saved")
    hand = {"on_managed": "override", "managed_reason": "incident"}
    done = control.admin.put("/v1/tenants/acme", json={"weight": 9}, params=hand)
    assert done.status_code == 200, done.text
    late = terraform("apply", "saved")
    assert late.code == 1
    assert "by `admin-one`" in late.said, late.said
    assert "revision" in late.said
    assert control.policy()["tenants"][0]["weight"] == 9
    terraform.apply()
    assert control.policy()["tenants"][0]["weight"] == 3


def test_references_to_nothing_and_what_is_known_later(terraform: Terraform, control: Control) -> None:
    """The plan says at which attribute; what is known later is said to be unchecked, and applies."""
    terraform.environment |= control.environment()
    terraform.write("main.tf", REGION.replace("gtm_region.nyc.name", '"nowhere"'))
    refused = terraform("plan")
    assert refused.code == 1
    assert "nowhere" in refused.said
    assert "members = [" in refused.said, refused.said
    later = 'resource "terraform_data" "later" {\n  input = 3\n}\n'
    terraform.write("main.tf", later + TENANT.replace("2", "terraform_data.later.output"))
    planned = terraform.ok("plan")
    assert "weight is not known before apply" in planned.said, planned.said
    terraform.apply()
    assert control.policy()["tenants"][0]["weight"] == 3
    nothing_to_do(terraform)


@programs
@pytest.mark.parametrize("parallelism", [1, 10])
def test_fences(parallelism: int, terraform: Terraform, control: Control) -> None:
    """What opens one fails the plan at its rule, and is a warning with a reason; a rule in place of another is neither."""
    many = f"-parallelism={parallelism}"
    terraform.environment |= {**control.environment(), "TF_CLI_ARGS_plan": many, "TF_CLI_ARGS_apply": many}
    terraform.write("main.tf", REGION + rule("gdpr", "gdpr"))
    terraform.apply()
    terraform.write("main.tf", REGION + rule("gdpr", "gdpr", "US"))
    opened = terraform("plan")
    assert opened.code == 1
    assert "opens a residency fence" in opened.said, opened.said
    assert "with gtm_residency_rule.gdpr" in opened.said
    if parallelism > 1:
        terraform.write("main.tf", REGION + rule("other", "gdpr-2"))
        terraform.apply()  # the old one goes once the new one is there
        assert [one["name"] for one in control.policy()["residency_rules"]] == ["gdpr-2"]
    terraform.write("main.tf", REGION)
    planned = terraform("plan")
    assert "no longer keep service" in planned.said, planned.said
    if parallelism > 1:
        assert planned.code == 1
    else:  # nobody can tell that nothing is planned later to take its place: it is said, and the rule stays in force
        assert "unless a change that is planned later makes up for it" in planned.said
    refused = terraform("destroy", "-auto-approve")
    assert refused.code == 1
    assert "fence" in refused.said
    assert len(control.policy()["residency_rules"]) == 1
    terraform.write("main.tf", provider_block(allow_fence_change="a test") + REGION + rule("gdpr", "gdpr"))
    warned = terraform.ok("destroy", "-auto-approve")
    assert "for a reason" in warned.said, warned.said
    assert control.policy() == {}
    assert state(terraform) == set()


def test_configuration_that_terraform_writes(terraform: Terraform, control: Control) -> None:
    """`-generate-config-out` of every kind plans to no change."""
    terraform.environment |= control.environment()
    everything = (
        REGION
        + rule("gdpr", "gdpr")
        + TENANT
        + """
resource "gtm_zone" "it" {
  name       = "acme.test"
  primary_ns = "ns1.acme.test"
  hostmaster = "hostmaster.acme.test"
  records    = [{ name = "www", type = "TXT", data = ["a \\"b\\""], ttl = 5 }]
}
resource "gtm_data_class" "it" {
  name = "health"
}
resource "gtm_jurisdiction" "it" {
  name    = "home"
  members = ["DE", "FR"]
}
resource "gtm_spillover_rule" "it" {
  name        = "over"
  from_region = gtm_region.fra.name
  to_regions  = [gtm_region.nyc.name]
  max_share   = 0.5
}
"""
    )
    terraform.write("main.tf", everything)
    terraform.apply()
    names = {
        "region": "fra", "service": "chat", "residency_rule": "gdpr", "tenant": "acme", "zone": "acme.test",
        "data_class": "health", "jurisdiction": "home", "spillover_rule": "over",
    }  # fmt: skip
    (terraform.folder / "terraform.tfstate").unlink()
    blocks = (f'import {{\n  to = gtm_{kind}.it\n  id = "{name}"\n}}\n' for kind, name in names.items())
    terraform.write("main.tf", "".join(blocks))
    planned = terraform.ok("plan", "-generate-config-out=written.tf")
    assert f"{len(names)} to import, 0 to add, 0 to change, 0 to destroy" in planned.said, planned.said
    again = terraform.ok("plan")
    assert f"{len(names)} to import, 0 to add, 0 to change, 0 to destroy" in again.said
