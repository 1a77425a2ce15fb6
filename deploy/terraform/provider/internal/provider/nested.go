package provider

import (
	"context"
	"fmt"
	"math/big"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"terraform-provider-gtm/internal/spec"
	"terraform-provider-gtm/internal/values"
)

const notTaken = "Not a value that gtm takes"

// shape holds a nested attribute against what it is made of. To Terraform the attribute is dynamic: of an object with a type
// it drops fields that the type does not have, so that `deny = { operator_jurisdiction = ["US"] }` would deny nothing.
type shape struct {
	attribute spec.Attribute
	checks    []check
	parts     []shape // of an object its fields, in order; of a list its element
}

func shapeOf(a spec.Attribute) shape {
	found := shape{attribute: a}
	switch a.Type {
	case spec.String:
		found.checks = textChecks(a)
	case spec.Integer, spec.Number:
		found.checks = []check{bounds(a)}
	case spec.List, spec.Set:
		found.checks = []check{counts(a)}
		found.parts = []shape{shapeOf(*a.Element)}
	case spec.Object:
		for _, field := range a.Attributes {
			found.parts = append(found.parts, shapeOf(field))
		}
	}
	return found
}

func (s shape) Description(context.Context) string         { return "made of what gtm knows" }
func (s shape) MarkdownDescription(context.Context) string { return "made of what gtm knows" }

func (s shape) ValidateDynamic(ctx context.Context, request validator.DynamicRequest, response *validator.DynamicResponse) {
	written, err := request.ConfigValue.ToTerraformValue(ctx)
	if err != nil {
		response.Diagnostics.AddAttributeError(request.Path, notTaken, err.Error())
		return
	}
	typed, faults := values.Typed(s.attribute, written)
	for _, fault := range append(faults, s.outside(typed, s.attribute.Name)...) {
		response.Diagnostics.AddAttributeError(request.Path, notTaken, fault.Error())
	}
}

// outside are the bounds that a typed value does not keep to; what is not known yet keeps to all.
func (s shape) outside(typed tftypes.Value, where string) (found []values.Fault) {
	if !typed.IsKnown() || typed.IsNull() {
		return nil
	}
	var given any
	switch s.attribute.Type {
	case spec.String:
		var text string
		_ = typed.As(&text)
		given = text
	case spec.Integer, spec.Number:
		var number big.Float
		_ = typed.As(&number)
		given = &number
	case spec.List, spec.Set:
		var elements []tftypes.Value
		_ = typed.As(&elements)
		given = len(elements)
		for i, element := range elements {
			found = append(found, s.parts[0].outside(element, fmt.Sprintf("%s[%d]", where, i))...)
		}
	case spec.Object:
		var fields map[string]tftypes.Value
		_ = typed.As(&fields)
		for _, part := range s.parts {
			found = append(found, part.outside(fields[part.attribute.Name], where+"."+part.attribute.Name)...)
		}
	}
	for _, one := range s.checks {
		if wrong := one.of(given); wrong != "" {
			found = append(found, values.Fault{Path: where, Message: wrong})
		}
	}
	return found
}

// madeOf describes what a nested attribute is made of, as a Markdown list under its own description.
func madeOf(a spec.Attribute, depth int) string {
	indent := strings.Repeat("  ", depth)
	object := a
	if a.Element != nil {
		object = *a.Element
	}
	text := ""
	for _, field := range object.Attributes {
		need := "optional"
		if field.Required {
			need = "required"
		}
		text += fmt.Sprintf("\n%s- `%s` (%s, %s) %s", indent, field.Name, inWords(field), need, describe(field))
		if field.Nested() {
			text += madeOf(field, depth+1)
		}
	}
	return text
}

// inWords is what an attribute takes, in words.
func inWords(a spec.Attribute) string {
	switch a.Type {
	case spec.Dynamic:
		return "text, number or bool"
	case spec.String:
		return "text"
	case spec.List, spec.Set:
		return fmt.Sprintf("%s of %ss", a.Type, inWords(*a.Element))
	}
	return string(a.Type)
}

// described is the description of an attribute as Terraform's schema has it.
func described(a spec.Attribute) string {
	if !a.Nested() {
		return describe(a)
	}
	what := inWords(a)
	return strings.TrimSpace(describe(a)) + " " + strings.ToUpper(what[:1]) + what[1:] + ", made of:" + madeOf(a, 1)
}

// written is what a resource's nested attributes are in a plan or a state, each in the words that it had, if they mean the same.
func (r *kindResource) written(typed, had tftypes.Value) (tftypes.Value, error) {
	now, err := values.WrittenAll(r.kind.Attributes, typed)
	if err != nil {
		return now, err
	}
	return values.Kept(r.kind.Attributes, had, now)
}

// UpgradeState reads states of providers that had nested attributes with types (version 0).
func (r *kindResource) UpgradeState(context.Context) map[int64]resource.StateUpgrader {
	return map[int64]resource.StateUpgrader{0: {StateUpgrader: func(_ context.Context, request resource.UpgradeStateRequest, response *resource.UpgradeStateResponse) {
		upgraded, err := upgrade(r.kind.Attributes, request.RawState)
		if err != nil {
			response.Diagnostics.AddError("gtm's provider cannot read the state of an earlier one", err.Error())
			return
		}
		response.DynamicValue = upgraded
	}}}
}

func upgrade(attributes []spec.Attribute, state *tfprotov6.RawState) (*tfprotov6.DynamicValue, error) {
	leave := tfprotov6.UnmarshalOpts{ValueFromJSONOpts: tftypes.ValueFromJSONOpts{IgnoreUndefinedAttributes: true}}
	typed, err := state.UnmarshalWithOpts(values.ObjectType(attributes), leave)
	if err != nil {
		return nil, err
	}
	written, err := values.WrittenAll(attributes, typed)
	if err != nil {
		return nil, err
	}
	made, err := tfprotov6.NewDynamicValue(values.WrittenType(attributes), written)
	return &made, err
}

// fieldsOf are the fields of a nested attribute of a provider block or a data source, as JSON has them; nil: it is null.
func fieldsOf(ctx context.Context, a spec.Attribute, value types.Dynamic) (map[string]any, error) {
	written, err := value.ToTerraformValue(ctx)
	if err != nil {
		return nil, err
	}
	typed, faults := values.Typed(a, written)
	if len(faults) > 0 {
		return nil, faults[0]
	}
	if typed.IsKnown() && typed.IsNull() {
		return nil, nil
	}
	if !typed.IsKnown() {
		return nil, values.ErrUnknown{Path: a.Name}
	}
	return values.ObjectToJSON(a.Attributes, typed)
}
