package values

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"terraform-provider-gtm/internal/spec"
)

var places = spec.Attribute{Name: "deny", Type: spec.Object, Default: []byte(`{}`), Attributes: []spec.Attribute{
	{Name: "regions", Type: spec.Set, Default: []byte(`[]`), Element: &spec.Attribute{Type: spec.String}},
	{Name: "port", Type: spec.Integer, Nullable: true},
}}

// object is an object as somebody writes it.
func object(fields map[string]tftypes.Value) tftypes.Value {
	kinds := map[string]tftypes.Type{}
	for name, value := range fields {
		kinds[name] = value.Type()
	}
	return tftypes.NewValue(tftypes.Object{AttributeTypes: kinds}, fields)
}

func texts(some ...string) tftypes.Value {
	var kinds []tftypes.Type
	var items []tftypes.Value
	for _, one := range some {
		kinds, items = append(kinds, tftypes.String), append(items, tftypes.NewValue(tftypes.String, one))
	}
	return tftypes.NewValue(tftypes.Tuple{ElementTypes: kinds}, items)
}

func TestFaultsNameWhatIsMeant(t *testing.T) {
	for name, wanted := range map[string]string{
		"region":  "deny.region: there is no such field: did you mean `regions`?",
		"rgeions": "deny.rgeions: there is no such field: did you mean `regions`?",
		"xyzzy":   "deny.xyzzy: there is no such field; there are `regions`, `port`",
	} {
		_, faults := Typed(places, object(map[string]tftypes.Value{name: texts("a")}))
		if len(faults) != 1 || faults[0].Error() != wanted {
			t.Errorf("%v, not %s", faults, wanted)
		}
	}
}

func TestWhatIsUnknownStaysSo(t *testing.T) {
	unknown := tftypes.NewValue(tftypes.DynamicPseudoType, tftypes.UnknownValue)
	typed, faults := Typed(places, object(map[string]tftypes.Value{"port": unknown, "regions": texts("a")}))
	if len(faults) > 0 || typed.IsFullyKnown() {
		t.Fatal(typed, faults)
	}
	if typed, faults = Typed(places, unknown); len(faults) > 0 || typed.IsKnown() {
		t.Fatal(typed, faults)
	}
}

func TestTheSameIsKept(t *testing.T) {
	resource := func(deny tftypes.Value) tftypes.Value {
		return tftypes.NewValue(WrittenType([]spec.Attribute{places}), map[string]tftypes.Value{"deny": deny})
	}
	had := resource(object(map[string]tftypes.Value{"regions": texts("a", "b")}))
	same := resource(object(map[string]tftypes.Value{"regions": texts("b", "a", "b"), "port": tftypes.NewValue(tftypes.Number, nil)}))
	other := resource(object(map[string]tftypes.Value{"regions": texts("a")}))
	if kept, err := Kept([]spec.Attribute{places}, had, same); err != nil || !kept.Equal(had) {
		t.Error(kept, err)
	}
	if kept, err := Kept([]spec.Attribute{places}, had, other); err != nil || !kept.Equal(other) {
		t.Error(kept, err)
	}
}
