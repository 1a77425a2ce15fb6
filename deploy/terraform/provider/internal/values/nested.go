package values

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"terraform-provider-gtm/internal/spec"
)

// Nested attributes are dynamic to Terraform (spec.Attribute.Nested says why). Everything here turns between how one is
// written, where fields may be left out, and its typed value, which has them all.

// Fault is what is wrong inside of an attribute, and where: `deny.jurisdictions[0]`.
type Fault struct{ Path, Message string }

func (f Fault) Error() string { return f.Path + ": " + f.Message }

// WrittenType is the Terraform type of a resource with these attributes: nested ones may be anything.
func WrittenType(attributes []spec.Attribute) tftypes.Object {
	types := make(map[string]tftypes.Type, len(attributes))
	for _, a := range attributes {
		types[a.Name] = TypeOf(a)
		if a.Nested() {
			types[a.Name] = tftypes.DynamicPseudoType
		}
	}
	return tftypes.Object{AttributeTypes: types}
}

// TypedAll is a resource whose nested attributes are of their types. A fault is left out of the value.
func TypedAll(attributes []spec.Attribute, written tftypes.Value) (tftypes.Value, []Fault, error) {
	kind := ObjectType(attributes)
	if written.IsNull() {
		return tftypes.NewValue(kind, nil), nil, nil
	}
	var fields map[string]tftypes.Value
	if err := written.As(&fields); err != nil {
		return written, nil, err
	}
	var faults []Fault
	typed := make(map[string]tftypes.Value, len(attributes))
	for _, a := range attributes {
		value, wrong := fields[a.Name], []Fault(nil)
		if a.Nested() {
			value, wrong = Typed(a, value)
		}
		typed[a.Name], faults = value, append(faults, wrong...)
	}
	return tftypes.NewValue(kind, typed), faults, nil
}

// WrittenAll is a resource whose nested attributes are as one would write them.
func WrittenAll(attributes []spec.Attribute, typed tftypes.Value) (tftypes.Value, error) {
	kind := WrittenType(attributes)
	if typed.IsNull() {
		return tftypes.NewValue(kind, nil), nil
	}
	var fields map[string]tftypes.Value
	if err := typed.As(&fields); err != nil {
		return typed, err
	}
	written := make(map[string]tftypes.Value, len(attributes))
	for _, a := range attributes {
		value := fields[a.Name]
		if a.Nested() {
			var err error
			if value, err = Written(a, value); err != nil {
				return typed, fmt.Errorf("%s: %w", a.Name, err)
			}
		}
		written[a.Name] = value
	}
	return tftypes.NewValue(kind, written), nil
}

// AsWritten is a configuration with what `complete` says in place of attributes that are left out.
func AsWritten(attributes []spec.Attribute, config, complete tftypes.Value) (tftypes.Value, error) {
	whole, err := WrittenAll(attributes, complete)
	if err != nil {
		return config, err
	}
	var given, fields map[string]tftypes.Value
	if err := config.As(&given); err != nil {
		return config, err
	}
	if err := whole.As(&fields); err != nil {
		return config, err
	}
	planned := maps.Clone(fields)
	for _, a := range attributes {
		if value := given[a.Name]; a.Nested() && !(value.IsKnown() && value.IsNull()) {
			planned[a.Name] = value
		}
	}
	return tftypes.NewValue(whole.Type(), planned), nil
}

// Kept is a resource as it is now, with each nested attribute in the words that it had where they mean the same; both are as
// they are written.
func Kept(attributes []spec.Attribute, had, now tftypes.Value) (tftypes.Value, error) {
	var before, after map[string]tftypes.Value
	if had.IsNull() || now.IsNull() {
		return now, nil
	}
	if err := had.As(&before); err != nil {
		return now, err
	}
	if err := now.As(&after); err != nil {
		return now, err
	}
	kept := make(map[string]tftypes.Value, len(after))
	for _, a := range attributes {
		kept[a.Name] = after[a.Name]
		if !a.Nested() || before[a.Name].IsNull() {
			continue
		}
		one, known := meaning(a, before[a.Name])
		other, alike := meaning(a, after[a.Name])
		if known && alike && one == other {
			kept[a.Name] = before[a.Name]
		}
	}
	return tftypes.NewValue(now.Type(), kept), nil
}

// meaning is a text that is the same for all ways to write a nested value; ok: it is known, and one that may be.
func meaning(a spec.Attribute, written tftypes.Value) (text string, ok bool) {
	typed, faults := Typed(a, written)
	if len(faults) > 0 {
		return "", false
	}
	complete, err := Complete(a, typed)
	if err != nil {
		return "", false
	}
	json, err := ToJSON(a, complete)
	if err != nil {
		return "", false
	}
	return canonicalText(a, json), true
}

// Typed is a nested attribute's value in its type, with null for each field that is left out, and all that is wrong with it.
// What is not known yet stays unknown.
func Typed(a spec.Attribute, written tftypes.Value) (tftypes.Value, []Fault) {
	var faults []Fault
	typed := read(a, written, a.Name, &faults)
	return typed, faults
}

func read(a spec.Attribute, value tftypes.Value, where string, faults *[]Fault) tftypes.Value {
	kind := TypeOf(a)
	if value.Type() == nil || (value.IsKnown() && value.IsNull()) {
		return tftypes.NewValue(kind, nil)
	}
	if !value.IsKnown() {
		return tftypes.NewValue(kind, tftypes.UnknownValue)
	}
	var found any
	ok := false
	switch a.Type {
	case spec.Object:
		var fields map[string]tftypes.Value
		if value.As(&fields) == nil {
			return tftypes.NewValue(kind, readFields(a, fields, where, faults))
		}
	case spec.List, spec.Set:
		var elements []tftypes.Value
		if value.As(&elements) == nil {
			return tftypes.NewValue(kind, readElements(a, elements, where, faults))
		}
	case spec.Dynamic:
		if _, ok := scalar(spec.String, value); ok {
			return value
		}
	default:
		found, ok = scalar(a.Type, value)
	}
	if !ok {
		*faults = append(*faults, Fault{where, fmt.Sprintf("this is %s where %s is wanted", told(value), wanted(a))})
		return tftypes.NewValue(kind, nil)
	}
	return tftypes.NewValue(kind, found)
}

func readFields(a spec.Attribute, fields map[string]tftypes.Value, where string, faults *[]Fault) map[string]tftypes.Value {
	typed := make(map[string]tftypes.Value, len(a.Attributes))
	var names []string
	for _, field := range a.Attributes {
		names = append(names, field.Name)
		value, there := fields[field.Name]
		if field.Required && (!there || (value.IsKnown() && value.IsNull())) {
			*faults = append(*faults, Fault{where, fmt.Sprintf("the field `%s` is missing", field.Name)})
		}
		typed[field.Name] = read(field, value, where+"."+field.Name, faults)
	}
	var unknown []string
	for name := range fields {
		if !slices.Contains(names, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		*faults = append(*faults, Fault{where + "." + name, "there is no such field" + Meant(name, names)})
	}
	return typed
}

func readElements(a spec.Attribute, elements []tftypes.Value, where string, faults *[]Fault) []tftypes.Value {
	typed := make([]tftypes.Value, 0, len(elements))
	had := map[string][]tftypes.Value{}
	for i, element := range elements {
		place := fmt.Sprintf("%s[%d]", where, i)
		if element.IsKnown() && element.IsNull() {
			*faults = append(*faults, Fault{place, fmt.Sprintf("this is null where %s is wanted", wanted(*a.Element))})
		}
		one := read(*a.Element, element, place, faults)
		if a.Type == spec.Set && one.IsFullyKnown() { // a set has each element once, as Terraform makes one of a list
			text := one.String()
			if slices.ContainsFunc(had[text], one.Equal) {
				continue
			}
			had[text] = append(had[text], one)
		}
		typed = append(typed, one)
	}
	return typed
}

// scalar is a scalar of another type than is wanted, turned as Terraform turns them: "5" is a number where one is wanted,
// and 5 a text.
func scalar(to spec.Type, value tftypes.Value) (any, bool) {
	var text string
	var truth bool
	var number big.Float
	switch {
	case value.Type().Is(tftypes.String) && value.As(&text) == nil:
		switch to {
		case spec.String:
			return text, true
		case spec.Bool:
			return text == "true", text == "true" || text == "false"
		}
		parsed, _, err := big.ParseFloat(text, 10, 512, big.ToNearestEven)
		return parsed, err == nil && !tooLarge(parsed) && (to == spec.Number || parsed.IsInt())
	case value.Type().Is(tftypes.Bool) && value.As(&truth) == nil:
		if to == spec.String {
			return strconv.FormatBool(truth), true
		}
		return truth, to == spec.Bool
	case value.Type().Is(tftypes.Number) && value.As(&number) == nil:
		if to == spec.String {
			return number.Text('f', -1), !tooLarge(&number)
		}
		return &number, to == spec.Number || (to == spec.Integer && number.IsInt())
	}
	return nil, false
}

// told is what a value is, in words, and wanted what should be there.
func told(value tftypes.Value) string {
	switch kind := value.Type(); {
	case kind.Is(tftypes.Object{}), kind.Is(tftypes.Map{}):
		return "an object"
	case kind.Is(tftypes.Tuple{}), kind.Is(tftypes.List{}), kind.Is(tftypes.Set{}):
		return "a list"
	}
	written, err := scalarToJSON(value)
	if err != nil {
		return "no value that gtm knows"
	}
	if text, ok := written.(string); ok {
		return fmt.Sprintf("the text %.40q", text)
	}
	return fmt.Sprintf("%v", written)
}

func wanted(a spec.Attribute) string {
	switch a.Type {
	case spec.Object:
		return "an object, `{ … }`,"
	case spec.List, spec.Set:
		return "a list, `[ … ]`,"
	case spec.Integer:
		return "a whole number"
	case spec.Number:
		return "a number"
	case spec.Bool:
		return "true or false"
	case spec.Dynamic:
		return "a text, a number, true or false"
	}
	return "a text"
}

// Meant says which of some names is probably meant by one that there is not, or else which there are.
func Meant(name string, known []string) string {
	nearest, least := "", len(name)/2+1
	for _, one := range known {
		if far := distance(name, one); far < least {
			nearest, least = one, far
		}
	}
	if nearest != "" {
		return fmt.Sprintf(": did you mean `%s`?", nearest)
	}
	return fmt.Sprintf("; there are `%s`", strings.Join(known, "`, `"))
}

// distance is how many characters have to be put in, taken out, replaced, or swapped with the next, to make one name of another.
func distance(one, other string) int {
	rows := make([][]int, len(one)+1)
	for i := range rows {
		rows[i] = make([]int, len(other)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := range len(one) {
		for j := range len(other) {
			cost := 1
			if one[i] == other[j] {
				cost = 0
			}
			rows[i+1][j+1] = min(rows[i][j+1]+1, rows[i+1][j]+1, rows[i][j]+cost)
			if i > 0 && j > 0 && one[i] == other[j-1] && one[i-1] == other[j] {
				rows[i+1][j+1] = min(rows[i+1][j+1], rows[i-1][j-1]+1)
			}
		}
	}
	return rows[len(one)][len(other)]
}

// Written is a nested attribute as one would write it: without what is null or control's default.
func Written(a spec.Attribute, typed tftypes.Value) (tftypes.Value, error) {
	if !typed.IsKnown() {
		return tftypes.NewValue(tftypes.DynamicPseudoType, tftypes.UnknownValue), nil
	}
	if typed.IsNull() {
		return tftypes.NewValue(tftypes.DynamicPseudoType, nil), nil
	}
	switch a.Type {
	case spec.Object:
		return writtenObject(a, typed)
	case spec.List, spec.Set:
		var elements []tftypes.Value
		if err := typed.As(&elements); err != nil {
			return typed, err
		}
		items, kinds := make([]tftypes.Value, len(elements)), make([]tftypes.Type, len(elements))
		for i, element := range elements {
			item, err := Written(*a.Element, element)
			if err != nil {
				return typed, err
			}
			items[i], kinds[i] = item, item.Type()
		}
		return tftypes.NewValue(tftypes.Tuple{ElementTypes: kinds}, items), nil
	}
	return typed, nil
}

func writtenObject(a spec.Attribute, typed tftypes.Value) (tftypes.Value, error) {
	var fields map[string]tftypes.Value
	if err := typed.As(&fields); err != nil {
		return typed, err
	}
	kinds, written := map[string]tftypes.Type{}, map[string]tftypes.Value{}
	for _, field := range a.Attributes {
		value := fields[field.Name]
		if value.IsKnown() && (value.IsNull() || usual(field, value)) {
			continue
		}
		one, err := Written(field, value)
		if err != nil {
			return typed, fmt.Errorf("%s: %w", field.Name, err)
		}
		kinds[field.Name], written[field.Name] = one.Type(), one
	}
	return tftypes.NewValue(tftypes.Object{AttributeTypes: kinds}, written), nil
}

// usual says whether a value is the one that control fills in.
func usual(a spec.Attribute, value tftypes.Value) bool {
	if !a.HasDefault() {
		return false
	}
	otherwise, err := fromDefault(a)
	if err != nil {
		return false
	}
	there, err := ToJSON(a, value)
	if err != nil {
		return false
	}
	filled, err := ToJSON(a, otherwise)
	return err == nil && canonicalText(a, there) == canonicalText(a, filled)
}

func canonicalText(a spec.Attribute, value any) string {
	return Canonical([]spec.Attribute{a}, map[string]any{a.Name: value})
}
