package provider

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"terraform-provider-gtm/internal/spec"
)

// stateVersion counts the forms that states have had: in 0, nested attributes had types.
const stateVersion = 1

// resourceSchema is a kind's schema. Attributes with defaults are computed too: `planned` fills them in, so that a plan
// names every value.
func resourceSchema(kind spec.Kind) schema.Schema {
	attributes := attributesOf(kind.Attributes)
	name := attributes["name"].(schema.StringAttribute)
	name.PlanModifiers = []planmodifier.String{stringplanmodifier.RequiresReplace()}
	if kind.Field == "zones" {
		name.Validators = append(name.Validators, stringCheck{zoneName})
	}
	attributes["name"] = name
	return schema.Schema{Version: stateVersion, MarkdownDescription: kind.Description, Attributes: attributes}
}

// zoneName is a zone's name as control keeps it: by another spelling the zone would not be found again.
var zoneName = check{"in lower case", func(value any) string {
	text := value.(string)
	if kept := strings.ToLower(strings.TrimSuffix(text, ".")); kept != text {
		return fmt.Sprintf("zones are named in lower case and without the dot at the end: `%s`", kept)
	}
	return ""
}}

func attributesOf(specs []spec.Attribute) map[string]schema.Attribute {
	found := make(map[string]schema.Attribute, len(specs))
	for _, one := range specs {
		found[one.Name] = attributeOf(one)
	}
	return found
}

func attributeOf(a spec.Attribute) schema.Attribute {
	optional, computed := !a.Required, a.HasDefault()
	said := described(a)
	if a.Nested() { // computed even without a default: a null has a type, and only of what is computed is one as good as another
		return schema.DynamicAttribute{Required: a.Required, Optional: optional, Computed: optional, MarkdownDescription: said, Validators: []validator.Dynamic{shapeOf(a)}}
	}
	switch a.Type {
	case spec.String:
		return schema.StringAttribute{Required: a.Required, Optional: optional, Computed: computed, MarkdownDescription: said, Validators: stringValidators(a)}
	case spec.Integer:
		return schema.Int64Attribute{Required: a.Required, Optional: optional, Computed: computed, MarkdownDescription: said, Validators: integerValidators(a)}
	case spec.Number:
		return schema.NumberAttribute{Required: a.Required, Optional: optional, Computed: computed, MarkdownDescription: said, Validators: numberValidators(a)}
	case spec.Bool:
		return schema.BoolAttribute{Required: a.Required, Optional: optional, Computed: computed, MarkdownDescription: said}
	case spec.Dynamic:
		return schema.DynamicAttribute{Required: a.Required, Optional: optional, Computed: computed, MarkdownDescription: said}
	case spec.List:
		return schema.ListAttribute{Required: a.Required, Optional: optional, Computed: computed, MarkdownDescription: said, ElementType: elementType(*a.Element), Validators: listValidators(a)}
	case spec.Set:
		return schema.SetAttribute{Required: a.Required, Optional: optional, Computed: computed, MarkdownDescription: said, ElementType: elementType(*a.Element), Validators: setValidators(a)}
	}
	panic("no such type: " + string(a.Type))
}

func elementType(a spec.Attribute) attr.Type {
	switch a.Type {
	case spec.String:
		return types.StringType
	case spec.Integer:
		return types.Int64Type
	case spec.Number:
		return types.NumberType
	case spec.Bool:
		return types.BoolType
	}
	panic("no list of " + string(a.Type))
}

// describe is the API's description, with what may be given and what holds where nothing is.
func describe(a spec.Attribute) string {
	said := a.Description
	add := func(text string) {
		if said != "" {
			said += " "
		}
		said += text
	}
	if len(a.Enum) > 0 && len(a.Enum) <= 12 {
		list := ""
		for i, value := range a.Enum {
			if i > 0 {
				list += ", "
			}
			list += "`" + value + "`"
		}
		add("One of " + list + ".")
	}
	if a.HasDefault() && !slices.Contains([]string{"{}", "[]", `""`}, string(a.Default)) && a.Type != spec.Object {
		add(fmt.Sprintf("Default: `%s`.", a.Default))
	}
	return said
}
