package provider

import (
	"context"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"terraform-provider-gtm/internal/spec"
)

// check is one bound of an attribute: what is wrong with a value, empty: nothing.
type check struct {
	says string
	of   func(value any) string
}

func (c check) Description(context.Context) string         { return c.says }
func (c check) MarkdownDescription(context.Context) string { return c.says }

func (c check) add(diagnostics *diag.Diagnostics, where path.Path, value any) {
	if wrong := c.of(value); wrong != "" {
		diagnostics.AddAttributeError(where, notTaken, wrong)
	}
}

type stringCheck struct{ check }

func (c stringCheck) ValidateString(_ context.Context, request validator.StringRequest, response *validator.StringResponse) {
	if !request.ConfigValue.IsNull() && !request.ConfigValue.IsUnknown() {
		c.add(&response.Diagnostics, request.Path, request.ConfigValue.ValueString())
	}
}

type integerCheck struct{ check }

func (c integerCheck) ValidateInt64(_ context.Context, request validator.Int64Request, response *validator.Int64Response) {
	if !request.ConfigValue.IsNull() && !request.ConfigValue.IsUnknown() {
		c.add(&response.Diagnostics, request.Path, new(big.Float).SetInt64(request.ConfigValue.ValueInt64()))
	}
}

type numberCheck struct{ check }

func (c numberCheck) ValidateNumber(_ context.Context, request validator.NumberRequest, response *validator.NumberResponse) {
	if !request.ConfigValue.IsNull() && !request.ConfigValue.IsUnknown() {
		c.add(&response.Diagnostics, request.Path, request.ConfigValue.ValueBigFloat())
	}
}

type countCheck struct{ check }

func (c countCheck) ValidateList(_ context.Context, request validator.ListRequest, response *validator.ListResponse) {
	if !request.ConfigValue.IsNull() && !request.ConfigValue.IsUnknown() {
		c.add(&response.Diagnostics, request.Path, len(request.ConfigValue.Elements()))
	}
}

func (c countCheck) ValidateSet(_ context.Context, request validator.SetRequest, response *validator.SetResponse) {
	if !request.ConfigValue.IsNull() && !request.ConfigValue.IsUnknown() {
		c.add(&response.Diagnostics, request.Path, len(request.ConfigValue.Elements()))
	}
}

func stringValidators(a spec.Attribute) []validator.String {
	var found []validator.String
	for _, one := range textChecks(a) {
		found = append(found, stringCheck{one})
	}
	return found
}

// textChecks are an attribute's bounds on texts.
func textChecks(a spec.Attribute) []check {
	var found []check
	if len(a.Enum) > 0 {
		found = append(found, check{"one of " + few(a.Enum), func(value any) string {
			text := value.(string)
			if slices.Contains(a.Enum, text) {
				return ""
			}
			for _, known := range a.Enum {
				if strings.EqualFold(known, text) {
					return fmt.Sprintf("`%s` is none of the values: did you mean `%s`?", text, known)
				}
			}
			return fmt.Sprintf("`%s` is none of %s", text, few(a.Enum))
		}})
	}
	if a.Pattern != "" {
		pattern := regexp.MustCompile(a.Pattern)
		found = append(found, check{"like " + a.Pattern, func(value any) string {
			if pattern.MatchString(value.(string)) {
				return ""
			}
			if strings.ContainsRune(value.(string), '\r') {
				return fmt.Sprintf("%q holds a carriage return: the file was saved with the line ends of Windows. Save it with line feeds, or write `replace(TEXT, \"\\r\", \"\")`", shortened(value.(string)))
			}
			return fmt.Sprintf("`%s` does not have the form %s", value, a.Pattern)
		}})
	}
	if a.MinLength != nil || a.MaxLength != nil {
		found = append(found, check{"of a length", func(value any) string {
			return outside("has %s characters", float64(utf8.RuneCountInString(value.(string))), number(a.MinLength), number(a.MaxLength), nil)
		}})
	}
	if a.Format == "date-time" {
		found = append(found, check{"a time (RFC 3339)", func(value any) string {
			if _, err := time.Parse(time.RFC3339, value.(string)); err != nil {
				return fmt.Sprintf("`%s` is no time such as 2026-01-31T00:00:00Z (RFC 3339)", value)
			}
			return ""
		}})
	}
	return found
}

func integerValidators(a spec.Attribute) []validator.Int64 {
	if a.Minimum == nil && a.Maximum == nil && a.Above == nil {
		return nil
	}
	return []validator.Int64{integerCheck{bounds(a)}}
}

func numberValidators(a spec.Attribute) []validator.Number {
	if a.Minimum == nil && a.Maximum == nil && a.Above == nil {
		return nil
	}
	return []validator.Number{numberCheck{bounds(a)}}
}

func bounds(a spec.Attribute) check {
	return check{"within bounds", func(value any) string {
		given, _ := value.(*big.Float).Float64()
		return outside("is %s", given, a.Minimum, a.Maximum, a.Above)
	}}
}

func listValidators(a spec.Attribute) []validator.List {
	if a.MinItems == nil && a.MaxItems == nil {
		return nil
	}
	return []validator.List{countCheck{counts(a)}}
}

func setValidators(a spec.Attribute) []validator.Set {
	if a.MinItems == nil && a.MaxItems == nil {
		return nil
	}
	return []validator.Set{countCheck{counts(a)}}
}

func counts(a spec.Attribute) check {
	return check{"so many", func(value any) string {
		return outside("has %s elements", float64(value.(int)), number(a.MinItems), number(a.MaxItems), nil)
	}}
}

// outside says that a number is not where it may be; empty: it is.
func outside(says string, given float64, least, most, above *float64) string {
	text := fmt.Sprintf(says, shown(given))
	switch {
	case least != nil && given < *least:
		return fmt.Sprintf("it %s; the least is %s", text, shown(*least))
	case above != nil && given <= *above:
		return fmt.Sprintf("it %s; it must be above %s", text, shown(*above))
	case most != nil && given > *most:
		return fmt.Sprintf("it %s; the most is %s", text, shown(*most))
	}
	return ""
}

func shown(value float64) string { return strings.TrimSuffix(fmt.Sprintf("%g", value), ".0") }

func number(bound *int) *float64 {
	if bound == nil {
		return nil
	}
	found := float64(*bound)
	return &found
}

func few(values []string) string {
	if len(values) > 12 {
		return "the country codes (ISO 3166-1 alpha-2)" // the only enumeration that long
	}
	return "`" + strings.Join(values, "`, `") + "`"
}
