package provider

import (
	"testing"

	"terraform-provider-gtm/internal/spec"
)

// TestCountriesAreNotListed: of 250 values nobody reads a dozen to learn what the others are. One that is the only long enumeration may be called by name.
func TestCountriesAreNotListed(t *testing.T) {
	var look func(attributes []spec.Attribute)
	look = func(attributes []spec.Attribute) {
		for _, one := range attributes {
			if one.Element != nil {
				look([]spec.Attribute{*one.Element})
			}
			look(one.Attributes)
			if len(one.Enum) <= 12 {
				continue
			}
			check := textChecks(one)[0]
			if found := check.of("XQ"); found != "`XQ` is none of the country codes (ISO 3166-1 alpha-2)" {
				t.Errorf("%s: %s", one.Name, found)
			}
			if found := check.of("de"); found != "`de` is none of the values: did you mean `DE`?" {
				t.Errorf("%s: %s", one.Name, found)
			}
		}
	}
	for _, kind := range spec.Kinds() {
		look(kind.Attributes)
	}
}
