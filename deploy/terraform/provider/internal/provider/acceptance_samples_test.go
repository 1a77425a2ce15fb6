package provider

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"terraform-provider-gtm/internal/spec"
)

// samples writes configurations from the spec: what a field that control gets tomorrow is tested with by itself.
type samples struct {
	prefix string
	// reversed turns the elements of sets round.
	reversed bool
}

// meant are values that cannot be made up from an attribute's bounds: %s is the test's prefix, `ref` what it names.
// Two of them are for sets.
var meant = map[string][]string{
	"regions.country":                              {`"DE"`},
	"regions.subdivision":                          {`"BY"`},
	"regions.operator_country":                     {`"IE"`},
	"regions.endpoints.url":                        {`"HTTPS://Fra.Example.COM/v1/"`},
	"regions.endpoints.cname":                      {`"Fra.Example.COM."`},
	"regions.models":                               {`"llama-3.1-8b"`, `"mistral:7b"`},
	"regions.probe.path":                           {`"/health?x=1"`},
	"regions.probe.host":                           {`"Probe.Example.com"`},
	"regions.probe.body_regex":                     {`"^ok$"`},
	"regions.probe.json_field":                     {`"a.status"`},
	"regions.probe.json_value":                     {`"ready"`},
	"regions.probe.type":                           {`"https"`},
	"zones.name":                                   {`"%s.test"`},
	"zones.primary_ns":                             {`"NS1.%s.test."`},
	"zones.hostmaster":                             {`"hostmaster.%s.test"`},
	"zones.name_servers.name":                      {`"ns1.%s.test"`},
	"zones.name_servers.country":                   {`"DE"`},
	"zones.name_servers.operator_country":          {`"IE"`},
	"zones.records.name":                           {`"www"`, `"mail"`},
	"zones.records.type":                           {`"TXT"`},
	"zones.records.data":                           {`"one"`, `"two"`},
	"services.members.region":                      {`gtm_region.it.name`},
	"services.hostnames.name":                      {`"Chat.${gtm_zone.it.name}"`, `"*.apps.${gtm_zone.it.name}."`},
	"services.hostnames.tenant":                    {`gtm_tenant.it.name`},
	"services.hostnames.data_class":                {`gtm_data_class.it.name`},
	"services.zone":                                {`gtm_zone.it.name`},
	"services.https_record.alpn":                   {`"h2"`},
	"services.cors.origins":                        {`"https://app.example.com"`},
	"services.cors.methods":                        {`"POST"`},
	"services.cors.fields":                         {`"authorization"`},
	"services.model":                               {`"llama-3.1-8b"`},
	"services.families":                            {`"together"`}, // with the other one endpoints may have no cname
	"services.min_ttl":                             {`7`},
	"services.service_time_ms":                     {`400.5`},
	"residency_rules.match.services":               {`gtm_service.it.name`},
	"residency_rules.match.client_countries":       {`"DE"`, `"FR"`},
	"residency_rules.match.client_jurisdictions":   {`gtm_jurisdiction.it.name`, `"EEA"`},
	"residency_rules.match.tenants":                {`gtm_tenant.it.name`},
	"residency_rules.match.tenant_jurisdictions":   {`"EEA"`, `"CH"`},
	"residency_rules.match.data_classes":           {`gtm_data_class.it.name`},
	"residency_rules.allow.jurisdictions":          {`"EEA"`, `"DE"`},
	"residency_rules.allow.regions":                {`gtm_region.it.name`},
	"residency_rules.allow.operator_jurisdictions": {`"EEA"`, `"IE"`},
	"residency_rules.deny.jurisdictions":           {`"US"`, `"CN"`},
	"residency_rules.deny.regions":                 {`gtm_region.other.name`},
	"residency_rules.deny.operator_jurisdictions":  {`"US"`, `"CN"`},
	"residency_rules.effective_from":               {`"2030-01-01T00:00:00Z"`},
	"residency_rules.effective_until":              {`"2031-01-01T01:00:00+01:00"`},
	"spillover_rules.from_region":                  {`gtm_region.it.name`},
	"spillover_rules.to_regions":                   {`gtm_region.other.name`},
	"jurisdictions.name":                           {`"%s-land"`},
	"jurisdictions.members":                        {`"DE"`, `"FR"`},
	"jurisdictions.terms.member":                   {`"DE"`},
	"jurisdictions.terms.effective_from":           {`"2030-01-01T00:00:00Z"`},
	"jurisdictions.terms.effective_until":          {`"2031-01-01T00:00:00Z"`},
	"tenants.country":                              {`"DE"`},
}

// whole are values of attributes whose parts say something about one another.
var whole = map[string]string{
	"services.members": `[{ region = gtm_region.other.name, weight = 3 }, { region = gtm_region.it.name, share = 0.25, capacity = { outstanding = 5, requests_per_second = 6.5 } }]`,
}

// least are what a resource needs, though no attribute by itself does.
var least = map[string]map[string]string{
	"residency_rules": {"allow": `{ jurisdictions = ["DE"] }`},
	"spillover_rules": {"max_share": "0.5"},
}

// resource is a resource's block: `full` gives every attribute a value other than its default, else it has the least.
// What is null is said as well if `nulls`.
func (s samples) resource(kind spec.Kind, full, nulls bool) string {
	text := fmt.Sprintf("resource \"gtm_%s\" \"it\" {\n", kind.Name)
	for _, a := range kind.Attributes {
		where := kind.Field + "." + a.Name
		need, needed := least[kind.Field][a.Name]
		switch {
		case full || a.Required:
			text += fmt.Sprintf("  %s = %s\n", a.Name, s.value(a, where, 0, full))
		case needed:
			text += fmt.Sprintf("  %s = %s\n", a.Name, need)
		case nulls:
			text += fmt.Sprintf("  %s = null\n", a.Name)
		}
	}
	return text + "}\n"
}

func (s samples) value(a spec.Attribute, where string, which int, full bool) string {
	known := meant[where]
	if text, ok := whole[where]; ok && full {
		return text
	}
	switch a.Type {
	case spec.Object:
		text := "{ "
		for _, field := range a.Attributes {
			if full || field.Required {
				text += fmt.Sprintf("%s = %s, ", field.Name, s.value(field, where+"."+field.Name, which, full))
			}
		}
		return text + "}"
	case spec.List, spec.Set:
		return s.elements(a, where, full)
	}
	if len(known) > 0 {
		return strings.ReplaceAll(known[min(which, len(known)-1)], "%s", s.prefix)
	}
	return s.scalar(a, which)
}

func (s samples) elements(a spec.Attribute, where string, full bool) string {
	count := 1
	if full && a.Type == spec.Set && (len(meant[where]) != 1 && len(meant[where+".name"]) != 1) && (a.Element.Type != spec.Object || len(meant[where+".name"]) > 1) {
		count = 2
	}
	var items []string
	for i := range count {
		items = append(items, s.value(*a.Element, where, i, full))
	}
	if s.reversed && a.Type == spec.Set {
		slices.Reverse(items)
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// scalar is a value within an attribute's bounds that is not its default.
func (s samples) scalar(a spec.Attribute, which int) string {
	var otherwise any
	_ = json.Unmarshal(a.Default, &otherwise)
	switch a.Type {
	case spec.Bool:
		return fmt.Sprint(otherwise != true)
	case spec.Integer, spec.Number:
		value := 1.0
		if given, ok := otherwise.(float64); ok {
			value = given
		} else if a.Minimum != nil {
			value = *a.Minimum
		}
		value += float64(1 + which)
		if a.Maximum != nil && value > *a.Maximum {
			value = *a.Maximum
			if a.Type == spec.Number {
				value /= 2
			}
		}
		return fmt.Sprint(value)
	}
	switch {
	case a.Name == "name":
		return fmt.Sprintf("%q", s.prefix)
	case len(a.Enum) > 0:
		for _, one := range a.Enum {
			if one != otherwise {
				return fmt.Sprintf("%q", one)
			}
		}
	case a.Format == "ipv4":
		return fmt.Sprintf(`"192.0.2.%d"`, 7+which)
	case a.Format == "ipv6":
		return fmt.Sprintf(`"2001:DB8::000%d"`, 7+which)
	case a.Pattern == "" || strings.Contains(a.Pattern, `[^\x00`):
		return `"Ein „Wort“ und \"Zeichen\""`
	}
	panic("there is no sample of " + a.Name + ": " + a.Pattern)
}

// every is a configuration of all kinds; a second region is for rules between two.
func (s samples) every(full, nulls bool) string {
	text := fmt.Sprintf(`
provider "gtm" {
  allow_fence_change = "acceptance"
}

resource "gtm_region" "other" {
  name      = "%s-other"
  country   = "FR"
  lat       = 48.8566
  lon       = 2.3522
  endpoints = [{ url = "https://paris.example.com", ipv4 = ["192.0.2.99"] }]
}
`, s.prefix)
	for _, kind := range spec.Kinds() {
		text += s.resource(kind, full, nulls)
	}
	return text
}

// TestSamplesCoverTheSpec: an attribute that the spec gets is in the acceptance tests, or this says that it needs a sample.
func TestSamplesCoverTheSpec(t *testing.T) {
	full, least := samples{prefix: "x"}.every(true, false), samples{prefix: "x"}.every(false, false)
	for _, kind := range spec.Kinds() {
		for _, a := range kind.Attributes {
			if !strings.Contains(full, "  "+a.Name+" = ") || (a.Required && !strings.Contains(least, "  "+a.Name+" = ")) {
				t.Errorf("%s.%s is in no sample", kind.Name, a.Name)
			}
		}
	}
}
