package values

import (
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"terraform-provider-gtm/internal/spec"
)

// random is a configuration's value of an attribute: what may be left out is so half of the time.
func random(r *rand.Rand, a spec.Attribute) tftypes.Value {
	kind := TypeOf(a)
	if !a.Required && a.Name != "" && r.IntN(2) == 0 {
		return tftypes.NewValue(kind, nil)
	}
	switch a.Type {
	case spec.String:
		return tftypes.NewValue(kind, []string{"", "a", "Ü \"x\"\n", "true", "5", "<&>"}[r.IntN(6)])
	case spec.Integer:
		return tftypes.NewValue(kind, r.Int64N(1<<40)-1<<39)
	case spec.Number:
		number, err := numberOf(json.Number([]string{"0.1", "-3", "1e21", "0.30000000000000004", "1e-7", "52.520008"}[r.IntN(6)]))
		if err != nil {
			panic(err)
		}
		return number
	case spec.Bool:
		return tftypes.NewValue(kind, r.IntN(2) == 0)
	case spec.Dynamic:
		return []tftypes.Value{tftypes.NewValue(tftypes.String, "x"), tftypes.NewValue(tftypes.Bool, true), tftypes.NewValue(tftypes.Number, 3)}[r.IntN(3)]
	case spec.Object:
		return randomObject(r, a.Attributes)
	}
	var elements []tftypes.Value
	for range r.IntN(4) {
		element := random(r, *a.Element)
		if a.Type == spec.List || !slices.ContainsFunc(elements, element.Equal) {
			elements = append(elements, element)
		}
	}
	return tftypes.NewValue(kind, elements)
}

func randomObject(r *rand.Rand, attributes []spec.Attribute) tftypes.Value {
	fields := map[string]tftypes.Value{}
	for _, a := range attributes {
		fields[a.Name] = random(r, a)
	}
	return tftypes.NewValue(ObjectType(attributes), fields)
}

// overTheWire is a document as control has it: written as JSON, and read again.
func overTheWire(t *testing.T, document map[string]any) (found map[string]any) {
	t.Helper()
	text, err := json.Marshal(document)
	if err == nil {
		err = Unmarshal(text, &found)
	}
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestThereAndBack is law 3, and that completing twice is completing once.
func TestThereAndBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, kind := range spec.Kinds() {
		for range 200 {
			given := randomObject(r, kind.Attributes)
			before := given.Copy()
			complete, err := CompleteAll(kind.Attributes, given)
			if err != nil {
				t.Fatal(err)
			}
			if !given.Equal(before) {
				t.Fatalf("%s: what is completed is changed itself: %s", kind.Name, given)
			}
			if twice, err := CompleteAll(kind.Attributes, complete); err != nil || !twice.Equal(complete) {
				t.Errorf("%s: completed twice, %s became %s", kind.Name, complete, twice)
			}
			document, err := ObjectToJSON(kind.Attributes, complete)
			if err != nil {
				t.Fatal(err)
			}
			again, err := ObjectFromJSON(kind.Attributes, overTheWire(t, document))
			if err != nil || !again.Equal(complete) {
				t.Errorf("%s: %s became %s (%v)", kind.Name, complete, again, err)
			}
		}
	}
}

// TestNothingIsLeftToControl: of all that is left out only that stays null which has no default.
func TestNothingIsLeftToControl(t *testing.T) {
	for _, kind := range spec.Kinds() {
		fields := map[string]tftypes.Value{}
		for _, a := range kind.Attributes {
			fields[a.Name] = tftypes.NewValue(TypeOf(a), nil)
		}
		complete, err := CompleteAll(kind.Attributes, tftypes.NewValue(ObjectType(kind.Attributes), fields))
		if err != nil {
			t.Fatal(err)
		}
		document, err := ObjectToJSON(kind.Attributes, complete)
		if err != nil {
			t.Fatal(err)
		}
		if read, err := ObjectFromJSON(kind.Attributes, map[string]any{}); err != nil || !read.Equal(complete) {
			t.Errorf("%s: of an older control, %s instead of %s (%v)", kind.Name, read, complete, err)
		}
		for _, a := range kind.Attributes {
			value, there := document[a.Name]
			if there != a.HasDefault() {
				t.Errorf("%s.%s: %v", kind.Name, a.Name, value)
			}
			if a.HasDefault() && a.Type != spec.Object {
				expected, _ := decode(a.Default)
				if number, ok := expected.(json.Number); ok { // 1.0 is 1
					float, _ := number.Float64()
					expected = json.Number(strconv.FormatFloat(float, 'f', -1, 64))
				}
				if !reflect.DeepEqual(value, expected) {
					t.Errorf("%s.%s: %v instead of %v", kind.Name, a.Name, value, expected)
				}
			}
		}
	}
}

// TestOrderCountsInListsAlone is what Canonical is for.
func TestOrderCountsInListsAlone(t *testing.T) {
	attributes := []spec.Attribute{
		{Name: "set", Type: spec.Set, Element: &spec.Attribute{Type: spec.Object, Attributes: []spec.Attribute{
			{Name: "name", Type: spec.String}, {Name: "inner", Type: spec.Set, Element: &spec.Attribute{Type: spec.Integer}},
		}}},
		{Name: "list", Type: spec.List, Element: &spec.Attribute{Type: spec.String}},
	}
	read := func(text string) string {
		var found map[string]any
		if err := Unmarshal([]byte(text), &found); err != nil {
			t.Fatal(err)
		}
		return Canonical(attributes, found)
	}
	one := read(`{"set": [{"name": "a", "inner": [1, 2]}, {"name": "b"}], "list": ["x", "y"]}`)
	if other := read(`{"list": ["x", "y"], "set": [{"name": "b"}, {"inner": [2, 1], "name": "a"}]}`); other != one {
		t.Errorf("%s and %s", one, other)
	}
	for _, text := range []string{
		`{"set": [{"name": "a", "inner": [1, 2]}, {"name": "b"}], "list": ["y", "x"]}`, `{"set": [{"name": "a", "inner": [1]}, {"name": "b"}], "list": ["x", "y"]}`,
		`{"set": [{"name": "a", "inner": [1, 2]}], "list": ["x", "y"]}`, `{"list": ["x", "y"]}`,
	} {
		if other := read(text); other == one {
			t.Errorf("%s is the same", text)
		}
	}
}

func TestWhatIsNotKnownIsNamed(t *testing.T) {
	kind, _ := spec.Find("tenants")
	fields := map[string]tftypes.Value{}
	for _, a := range kind.Attributes {
		fields[a.Name] = tftypes.NewValue(TypeOf(a), nil)
	}
	fields["name"], fields["weight"] = tftypes.NewValue(tftypes.String, "a"), tftypes.NewValue(tftypes.Number, tftypes.UnknownValue)
	complete, err := CompleteAll(kind.Attributes, tftypes.NewValue(ObjectType(kind.Attributes), fields))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ObjectToJSON(kind.Attributes, complete); err == nil || !strings.Contains(err.Error(), "weight is not known") {
		t.Error(err)
	}
}

func TestWhatControlMayNotSay(t *testing.T) {
	for _, one := range []struct {
		a     spec.Attribute
		value any
	}{
		{spec.Attribute{Type: spec.String}, json.Number("5")}, {spec.Attribute{Type: spec.Number}, "5"}, {spec.Attribute{Type: spec.Bool}, "true"},
		{spec.Attribute{Type: spec.Object}, []any{}}, {spec.Attribute{Type: spec.Object}, "x"}, {spec.Attribute{Type: spec.Set, Element: &spec.Attribute{Type: spec.String}}, "x"},
		{spec.Attribute{Type: spec.List, Element: &spec.Attribute{Type: spec.String}}, []any{true}}, {spec.Attribute{Type: spec.Dynamic}, []any{}}, {spec.Attribute{Type: spec.Number}, json.Number("x")},
	} {
		if value, err := FromJSON(one.a, one.value); err == nil {
			t.Errorf("%s: %v became %s", one.a.Type, one.value, value)
		}
	}
	short := spec.Attribute{Type: spec.Object, Short: "name", Attributes: []spec.Attribute{{Name: "name", Type: spec.String}, {Name: "other", Type: spec.String}}}
	value, err := FromJSON(short, "a")
	long, err2 := FromJSON(short, map[string]any{"name": "a", "news": "of a later version"})
	if err != nil || err2 != nil || !value.Equal(long) {
		t.Errorf("%s, %s", value, long)
	}
}

// TestNumbersAreAsPreciseAsTerraforms: 0.1 of control is 0.1 of a configuration, which Terraform parses with 512 bits.
func TestNumbersAreAsPreciseAsTerraforms(t *testing.T) {
	for _, text := range []string{"0.1", "52.520008", "1e-7"} {
		expected, _, err := big.ParseFloat(text, 10, 512, big.ToNearestEven)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := numberOf(json.Number(text)); err != nil || !got.Equal(tftypes.NewValue(tftypes.Number, expected)) {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

func FuzzNumbers(f *testing.F) {
	for _, text := range []string{"0", "-0", "0.1", "1e21", "1e-7", "123456789012345678", "0.30000000000000004", "1.7976931348623157e308", "5e-324", "1e400", "1e1111111111", "-1e99999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) || len(text) > 400 || strings.ContainsAny(text, "\"{[tfn \n\t\r") {
			return
		}
		value, err := numberOf(json.Number(text))
		if err != nil {
			return
		}
		said, err := scalarToJSON(value)
		if err != nil {
			t.Fatal(err)
		}
		if written, err := json.Marshal(said); err != nil {
			t.Errorf("%s became %v, which is no JSON: %s (%v)", text, said, written, err)
		}
	})
}
