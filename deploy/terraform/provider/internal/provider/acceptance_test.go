package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"terraform-provider-gtm/internal/client"
	"terraform-provider-gtm/internal/spec"
)

// Acceptance tests: `tests/terraform/test_provider.py` starts a real control and runs them. They share it, with names apart.

var factories = map[string]func() (tfprotov6.ProviderServer, error){
	"gtm": providerserver.NewProtocol6WithError(New("test")()),
}

// byHand is somebody who changes the policy past Terraform.
type byHand struct {
	t      *testing.T
	client *client.Client
}

// accept skips unless the tests are run with a control.
func accept(t *testing.T) byHand {
	t.Helper()
	if os.Getenv("TF_ACC") == "" {
		t.Skip("TF_ACC is not set")
	}
	made, err := client.New(client.Options{Endpoint: os.Getenv("GTM_CONTROL_URL"), Token: os.Getenv("GTM_TOKEN")})
	if err != nil {
		t.Fatal(err)
	}
	return byHand{t, made}
}

// must makes a change that overrides whoever manages what it changes.
func (o byHand) must(method, path string, body any) {
	o.t.Helper()
	query := url.Values{}
	if !strings.Contains(path, ":") { // a drain asks no manager
		query = url.Values{"on_managed": {"override"}, "managed_reason": {"a test"}}
	}
	_, err := o.client.Do(context.Background(), client.Call{Method: method, Path: path, Query: query, Body: body})
	if err != nil {
		o.t.Error(err)
	}
}

// try runs steps, on as many tests at once as `go test -parallel` says.
func try(t *testing.T, steps ...resource.TestStep) {
	t.Helper()
	resource.ParallelTest(t, resource.TestCase{ProtoV6ProviderFactories: factories, Steps: steps})
}

// unchanged is a plan that has nothing to do.
func unchanged(config string) resource.TestStep {
	return resource.TestStep{Config: config, PlanOnly: true}
}

func TestAccEveryKind(t *testing.T) {
	accept(t)
	s := samples{prefix: "acc-every"}
	try(t,
		resource.TestStep{Config: s.every(false, false)},
		unchanged(s.every(false, true)), // null is as good as nothing
		resource.TestStep{Config: s.every(true, false), ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: updates()}},
		unchanged(samples{prefix: s.prefix, reversed: true}.every(true, false)),
	)
}

// updates are plans that change each kind in place.
func updates() (found []plancheck.PlanCheck) {
	for _, kind := range spec.Kinds() {
		found = append(found, plancheck.ExpectResourceAction("gtm_"+kind.Name+".it", plancheck.ResourceActionUpdate))
	}
	return found
}

func TestAccImport(t *testing.T) {
	accept(t)
	config := tenant("acc-import", "weight = 2\ncountry = \"DE\"")
	try(t,
		resource.TestStep{Config: config},
		resource.TestStep{
			ResourceName: "gtm_tenant.it", ImportState: true, ImportStateId: "acc-nobody", ExpectError: regexp.MustCompile("There is no tenant `acc-nobody`"),
		},
		resource.TestStep{
			ResourceName: "gtm_tenant.it", ImportState: true, ImportStateId: "acc-import", ImportStateVerify: true, ImportStateVerifyIdentifierAttribute: "name",
		},
	)
}

// tenant is a small configuration.
func tenant(name, rest string) string {
	return fmt.Sprintf("resource \"gtm_tenant\" \"it\" {\n  name = %q\n%s\n}\n", name, rest)
}

func TestAccDriftIsShownAndPutBack(t *testing.T) {
	o := accept(t)
	config := tenant("acc-drift", `weight = 2`)
	check := func(weight string) resource.TestCheckFunc {
		return resource.TestCheckResourceAttr("gtm_tenant.it", "weight", weight)
	}
	changed := func() {
		o.must(http.MethodPut, "/v1/tenants/acc-drift", map[string]any{"weight": 5, "display_name": "by hand"})
	}
	try(t,
		resource.TestStep{Config: config, Check: check("2")},
		resource.TestStep{PreConfig: changed, RefreshState: true, ExpectNonEmptyPlan: true, Check: check("5")},
		resource.TestStep{Config: config, Check: check("2"), ConfigPlanChecks: resource.ConfigPlanChecks{
			PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction("gtm_tenant.it", plancheck.ResourceActionUpdate)},
		}},
		resource.TestStep{PreConfig: func() { o.must(http.MethodDelete, "/v1/tenants/acc-drift", nil) }, Config: config, Check: check("2"), ConfigPlanChecks: resource.ConfigPlanChecks{
			PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction("gtm_tenant.it", plancheck.ResourceActionCreate)},
		}},
		resource.TestStep{Config: tenant("acc-drift", ""), Check: check("1")}, // what is left out again has its default again
		resource.TestStep{PreConfig: func() { o.must(http.MethodDelete, "/v1/tenants/acc-drift", nil) }, Config: config, Destroy: true},
	)
}

func TestAccNamesThatDoNot(t *testing.T) {
	accept(t)
	zone := "resource \"gtm_zone\" \"it\" {\n  name = \"Acc.Test.\"\n  primary_ns = \"ns1.acc.test\"\n  hostmaster = \"hostmaster.acc.test\"\n}\n"
	twins := tenant("acc-twin", "") + strings.Replace(tenant("acc-twin", ""), `"it"`, `"other"`, 1)
	try(t,
		resource.TestStep{Config: zone, PlanOnly: true, ExpectError: regexp.MustCompile("acc.test`")},
		resource.TestStep{Config: twins, ExpectError: regexp.MustCompile("Two resources of this configuration")},
	)
}

func TestAccRenameIsAReplacement(t *testing.T) {
	accept(t)
	replaced := resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectResourceAction("gtm_tenant.it", plancheck.ResourceActionDestroyBeforeCreate)}}
	try(t,
		resource.TestStep{Config: tenant("acc-before", "")},
		resource.TestStep{Config: tenant("acc-after", ""), ConfigPlanChecks: replaced, Check: resource.TestCheckResourceAttr("gtm_tenant.it", "name", "acc-after")},
	)
}

func TestAccRegionStates(t *testing.T) {
	o := accept(t)
	region := `
resource "gtm_region" "it" {
  name      = "acc-state"
  country   = "DE"
  lat       = 50
  lon       = 8
  endpoints = [{ url = "http://127.0.0.1:9000" }]
}
`
	state := func(wanted string) string {
		return region + fmt.Sprintf("resource \"gtm_region_state\" \"it\" {\n  region = gtm_region.it.name\n  admin_state = %q\n}\n", wanted)
	}
	is := func(wanted string) resource.TestCheckFunc {
		return resource.TestCheckResourceAttr("gtm_region_state.it", "admin_state", wanted)
	}
	try(t,
		resource.TestStep{Config: state("draining"), Check: is("draining")},
		resource.TestStep{Config: state("disabled"), Check: is("disabled")},
		resource.TestStep{PreConfig: func() { o.must(http.MethodPost, "/v1/regions/acc-state:activate", nil) }, Config: state("disabled"), Check: is("disabled")},
		resource.TestStep{Config: state("Disabled"), ExpectError: regexp.MustCompile("none of")},
		resource.TestStep{Config: state("draining"), ResourceName: "gtm_region_state.it", ImportState: true, ImportStateId: "acc-state", ImportStateVerify: true, ImportStateVerifyIdentifierAttribute: "region"},
		resource.TestStep{Config: region, Check: func(*terraform.State) error {
			var found struct {
				AdminState string `json:"admin_state"`
			}
			if _, err := o.client.Do(context.Background(), client.Call{Method: http.MethodGet, Path: "/v1/regions/acc-state", Into: &found}); err != nil || found.AdminState != active {
				return fmt.Errorf("%s, %w", found.AdminState, err)
			}
			return nil
		}},
		resource.TestStep{Config: state("draining")}, // and is destroyed together with its region
	)
}

func TestAccPolicies(t *testing.T) {
	o := accept(t)
	policy := func(documents ...map[string]any) string {
		var text bytes.Buffer
		_ = json.NewEncoder(&text).Encode(map[string]any{"tenants": documents})
		return "provider \"gtm\" {\n  allow_fence_change = \"acceptance\"\n}\n" + fmt.Sprintf("resource \"gtm_policy\" \"it\" {\n  document = %q\n}\n", text.String())
	}
	a, b := map[string]any{"name": "acc-policy-a"}, map[string]any{"name": "acc-policy-b", "weight": 2}
	changes := func(lines ...string) resource.TestCheckFunc {
		checks := []resource.TestCheckFunc{resource.TestCheckResourceAttr("gtm_policy.it", "changes.#", fmt.Sprint(len(lines)))}
		for i, line := range lines {
			checks = append(checks, resource.TestCheckResourceAttr("gtm_policy.it", fmt.Sprintf("changes.%d", i), line))
		}
		return resource.ComposeAggregateTestCheckFunc(checks...)
	}
	gone := func(name string) func() {
		return func() { o.must(http.MethodDelete, "/v1/tenants/"+name, nil) }
	}
	try(t,
		resource.TestStep{Config: policy(a, b), Check: changes("created tenants.acc-policy-a", "created tenants.acc-policy-b")},
		resource.TestStep{PreConfig: gone("acc-policy-a"), Config: policy(a, b), Check: changes("created tenants.acc-policy-a")},
		resource.TestStep{PreConfig: gone("acc-policy-a"), Config: policy(b)}, // what it let go of is gone already
		resource.TestStep{Config: policy(a, b)},
		resource.TestStep{PreConfig: gone("acc-policy-a"), Config: policy(a, b), Destroy: true},
	)
}

func TestAccTokens(t *testing.T) {
	accept(t)
	token := func(role, rest string) string {
		return fmt.Sprintf("resource \"gtm_token\" \"it\" {\n  name = \"acc-token\"\n  role = %q\n  secret_wo = %q\n%s\n}\n", role, fmt.Sprintf("acc-%036d-%s", rand.Uint64(), role), rest)
	}
	try(t,
		resource.TestStep{Config: token("viewer", "secret_wo_version = 1\nexpires_at = \"2040-01-01T01:00:00+01:00\"")},
		resource.TestStep{Config: token("viewer", "secret_wo_version = 1\nexpires_at = \"2040-01-01T01:00:00+01:00\"\ngrace_seconds = 10")},
		resource.TestStep{Config: token("Viewer", "secret_wo_version = 1"), ExpectError: regexp.MustCompile("none of")},
		resource.TestStep{Config: token("viewer", "secret_wo_version = 1")},
	)
}
