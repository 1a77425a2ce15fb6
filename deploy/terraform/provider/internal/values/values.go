// Package values turns what Terraform holds into what control's API takes, and back.
//
// Laws:
//  1. What is left out in a configuration becomes control's default before anything is compared, so that a plan names
//     every value, and what control fills in is never a surprise.
//  2. null stays null where null means something (no bound), and becomes the default where it does not.
//  3. FromJSON(ToJSON(x)) is x for every x that has its defaults.
package values

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"terraform-provider-gtm/internal/spec"
)

// TypeOf is the Terraform type of an attribute's values.
func TypeOf(a spec.Attribute) tftypes.Type {
	switch a.Type {
	case spec.String:
		return tftypes.String
	case spec.Integer, spec.Number:
		return tftypes.Number
	case spec.Bool:
		return tftypes.Bool
	case spec.Dynamic:
		return tftypes.DynamicPseudoType
	case spec.List:
		return tftypes.List{ElementType: TypeOf(*a.Element)}
	case spec.Set:
		return tftypes.Set{ElementType: TypeOf(*a.Element)}
	case spec.Object:
		return ObjectType(a.Attributes)
	}
	panic("no such type: " + string(a.Type))
}

// ObjectType is the Terraform type of an object with these attributes.
func ObjectType(attributes []spec.Attribute) tftypes.Object {
	types := make(map[string]tftypes.Type, len(attributes))
	for _, a := range attributes {
		types[a.Name] = TypeOf(a)
	}
	return tftypes.Object{AttributeTypes: types}
}

// Complete is a value of a configuration with control's defaults in place of what is left out. What is not known yet
// stays unknown.
func Complete(a spec.Attribute, value tftypes.Value) (tftypes.Value, error) {
	if !value.IsKnown() {
		return value, nil
	}
	if value.IsNull() {
		if !a.HasDefault() {
			return value, nil
		}
		return fromDefault(a)
	}
	switch a.Type {
	case spec.Object:
		return completeObject(a.Attributes, value)
	case spec.List, spec.Set:
		var elements []tftypes.Value
		if err := value.As(&elements); err != nil {
			return value, err
		}
		elements = slices.Clone(elements) // As hands out what the value itself holds
		for i, element := range elements {
			complete, err := Complete(*a.Element, element)
			if err != nil {
				return value, err
			}
			elements[i] = complete
		}
		return tftypes.NewValue(value.Type(), elements), nil
	}
	return value, nil
}

func completeObject(attributes []spec.Attribute, value tftypes.Value) (tftypes.Value, error) {
	var fields map[string]tftypes.Value
	if err := value.As(&fields); err != nil {
		return value, err
	}
	fields = maps.Clone(fields)
	for _, a := range attributes {
		complete, err := Complete(a, fields[a.Name])
		if err != nil {
			return value, fmt.Errorf("%s: %w", a.Name, err)
		}
		fields[a.Name] = complete
	}
	return tftypes.NewValue(value.Type(), fields), nil
}

// CompleteAll does the same for a whole resource.
func CompleteAll(attributes []spec.Attribute, value tftypes.Value) (tftypes.Value, error) {
	if value.IsNull() || !value.IsKnown() {
		return value, nil
	}
	return completeObject(attributes, value)
}

func fromDefault(a spec.Attribute) (tftypes.Value, error) {
	decoded, err := decode(a.Default)
	if err != nil {
		return tftypes.Value{}, err
	}
	return FromJSON(a, decoded)
}

func decode(text []byte) (any, error) {
	var decoded any
	err := Unmarshal(text, &decoded)
	return decoded, err
}

// FromJSON is an attribute's value as control has it, in Terraform's types; what an object leaves out has its default.
func FromJSON(a spec.Attribute, value any) (tftypes.Value, error) {
	kind := TypeOf(a)
	if value == nil {
		return tftypes.NewValue(kind, nil), nil
	}
	switch a.Type {
	case spec.String:
		if text, ok := value.(string); ok {
			return tftypes.NewValue(kind, text), nil
		}
	case spec.Integer, spec.Number:
		if number, ok := value.(json.Number); ok {
			return numberOf(number)
		}
	case spec.Bool:
		if truth, ok := value.(bool); ok {
			return tftypes.NewValue(kind, truth), nil
		}
	case spec.Dynamic:
		return fromScalar(value)
	case spec.List, spec.Set:
		return fromArray(a, kind, value)
	case spec.Object:
		if short, ok := value.(string); ok && a.Short != "" {
			value = map[string]any{a.Short: short}
		}
		if fields, ok := value.(map[string]any); ok {
			return ObjectFromJSON(a.Attributes, fields)
		}
	}
	return tftypes.Value{}, fmt.Errorf("control says %v where a %s should be", value, a.Type)
}

// ObjectFromJSON is an object of these attributes; fields that the provider does not know are left out.
func ObjectFromJSON(attributes []spec.Attribute, fields map[string]any) (tftypes.Value, error) {
	made := make(map[string]tftypes.Value, len(attributes))
	for _, a := range attributes {
		value, there := fields[a.Name]
		var err error
		if !there && a.HasDefault() {
			made[a.Name], err = fromDefault(a)
		} else {
			made[a.Name], err = FromJSON(a, value)
		}
		if err != nil {
			return tftypes.Value{}, fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	return tftypes.NewValue(ObjectType(attributes), made), nil
}

func fromArray(a spec.Attribute, kind tftypes.Type, value any) (tftypes.Value, error) {
	items, ok := value.([]any)
	if !ok {
		return tftypes.Value{}, fmt.Errorf("control says %v where a list should be", value)
	}
	elements := make([]tftypes.Value, len(items))
	for i, item := range items {
		element, err := FromJSON(*a.Element, item)
		if err != nil {
			return tftypes.Value{}, fmt.Errorf("[%d]: %w", i, err)
		}
		elements[i] = element
	}
	return tftypes.NewValue(kind, elements), nil
}

func fromScalar(value any) (tftypes.Value, error) {
	switch found := value.(type) {
	case string:
		return tftypes.NewValue(tftypes.String, found), nil
	case bool:
		return tftypes.NewValue(tftypes.Bool, found), nil
	case json.Number:
		return numberOf(found)
	}
	return tftypes.Value{}, fmt.Errorf("control says %v where a string, a number or a bool should be", value)
}

// numberOf has the precision that Terraform itself gives numbers of a configuration: 0.1 here is 0.1 there.
func numberOf(number json.Number) (tftypes.Value, error) {
	parsed, _, err := big.ParseFloat(number.String(), 10, 512, big.ToNearestEven)
	if err != nil || tooLarge(parsed) {
		return tftypes.Value{}, fmt.Errorf("`%.40s` is no number", number)
	}
	return tftypes.NewValue(tftypes.Number, parsed), nil
}

// tooLarge says whether JSON's readers take a number for infinite: written out it may have millions of digits.
func tooLarge(number *big.Float) bool { return number.IsInf() || number.MantExp(nil) > 1024 }

// ErrUnknown says that a value is not known before apply.
type ErrUnknown struct{ Path string }

func (e ErrUnknown) Error() string { return e.Path + " is not known before apply" }

// ToJSON is a known value as control takes it; null where it is null.
func ToJSON(a spec.Attribute, value tftypes.Value) (any, error) {
	if !value.IsKnown() {
		return nil, ErrUnknown{a.Name}
	}
	if value.IsNull() {
		return nil, nil
	}
	switch a.Type {
	case spec.Object:
		return ObjectToJSON(a.Attributes, value)
	case spec.List, spec.Set:
		var elements []tftypes.Value
		if err := value.As(&elements); err != nil {
			return nil, err
		}
		items := make([]any, len(elements))
		for i, element := range elements {
			item, err := ToJSON(*a.Element, element)
			if err != nil {
				return nil, err
			}
			items[i] = item
		}
		return items, nil
	}
	return scalarToJSON(value)
}

// ObjectToJSON is an object as control takes it. Fields that are null are left out, which means the same everywhere.
func ObjectToJSON(attributes []spec.Attribute, value tftypes.Value) (map[string]any, error) {
	var fields map[string]tftypes.Value
	if err := value.As(&fields); err != nil {
		return nil, err
	}
	made := make(map[string]any, len(attributes))
	for _, a := range attributes {
		field, err := ToJSON(a, fields[a.Name])
		if err != nil {
			return nil, err
		}
		if field != nil {
			made[a.Name] = field
		}
	}
	return made, nil
}

func scalarToJSON(value tftypes.Value) (any, error) {
	switch {
	case value.Type().Is(tftypes.String):
		var text string
		err := value.As(&text)
		return text, err
	case value.Type().Is(tftypes.Bool):
		var truth bool
		err := value.As(&truth)
		return truth, err
	case value.Type().Is(tftypes.Number):
		var number big.Float
		if err := value.As(&number); err != nil {
			return nil, err
		}
		if tooLarge(&number) {
			return nil, fmt.Errorf("%s is too large a number", number.Text('g', 6))
		}
		if number.IsInt() {
			return json.Number(number.Text('f', 0)), nil
		}
		float, _ := number.Float64()
		return json.Number(strconv.FormatFloat(float, 'g', -1, 64)), nil
	}
	return nil, fmt.Errorf("a %s is neither a string, nor a number, nor a bool", value.Type())
}

// Canonical is a document as text that is the same for all ways to write it: sets in an order of their own.
func Canonical(attributes []spec.Attribute, document map[string]any) string {
	sorted := make(map[string]any, len(document))
	for _, a := range attributes {
		if value, ok := document[a.Name]; ok {
			sorted[a.Name] = canonical(a, value)
		}
	}
	text, err := json.Marshal(sorted)
	if err != nil {
		panic(err) // of what JSON can say
	}
	return string(text)
}

func canonical(a spec.Attribute, value any) any {
	switch found := value.(type) {
	case map[string]any:
		return json.RawMessage(Canonical(a.Attributes, found))
	case []any:
		items := make([]string, len(found))
		for i, item := range found {
			text, err := json.Marshal(canonical(*a.Element, item))
			if err != nil {
				panic(err)
			}
			items[i] = string(text)
		}
		if a.Type == spec.Set {
			slices.Sort(items)
		}
		return items
	}
	return value
}
