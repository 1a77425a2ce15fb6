// Package spec is what the provider knows of gtm's resources: written from control's OpenAPI document by
// `make provider-spec`, and held against it by a test.
package spec

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"
)

//go:embed spec.json
var document []byte

// Cities are those that gtm knows: city, country, latitude and longitude, as CSV with a header.
//
//go:embed cities.csv
var Cities string

// Type of an attribute's value.
type Type string

// The types that there are. A Dynamic value is a string, a number or a bool.
const (
	String  Type = "string"
	Integer Type = "integer"
	Number  Type = "number"
	Bool    Type = "bool"
	Dynamic Type = "dynamic"
	List    Type = "list"
	Set     Type = "set"
	Object  Type = "object"
)

// Attribute is one field of a resource, or an element of a list or set (which has no Name).
type Attribute struct {
	Name        string          `json:"name"`
	Type        Type            `json:"type"`
	Description string          `json:"description"`
	Required    bool            `json:"required"`
	Nullable    bool            `json:"nullable"`
	Default     json.RawMessage `json:"default"`
	Element     *Attribute      `json:"element"`
	Attributes  []Attribute     `json:"attributes"`
	// Short names the field of an object that alone may stand for the whole: "a" for {"name": "a"}.
	Short     string   `json:"short"`
	Enum      []string `json:"enum"`
	Pattern   string   `json:"pattern"`
	Format    string   `json:"format"`
	Minimum   *float64 `json:"minimum"`
	Maximum   *float64 `json:"maximum"`
	Above     *float64 `json:"above"`
	MinLength *int     `json:"min_length"`
	MaxLength *int     `json:"max_length"`
	MinItems  *int     `json:"min_items"`
	MaxItems  *int     `json:"max_items"`
}

// HasDefault says whether control fills the attribute in where it is left out.
func (a Attribute) HasDefault() bool { return len(a.Default) > 0 }

// Kind is one kind of resource.
type Kind struct {
	// Field is what a policy calls its list of them: `residency_rules`.
	Field string `json:"field"`
	// Name is the Terraform resource's, behind `gtm_`.
	Name        string      `json:"name"`
	Path        string      `json:"path"`
	Description string      `json:"description"`
	Attributes  []Attribute `json:"attributes"`
}

// Kinds are all of them. The document is the program's own: one that cannot be read is a defect, and panics.
var Kinds = sync.OnceValue(func() []Kind {
	var read struct {
		Kinds []Kind `json:"kinds"`
	}
	if err := json.Unmarshal(document, &read); err != nil {
		panic(fmt.Sprintf("spec.json: %s", err))
	}
	return read.Kinds
})

// Find is the kind that a policy calls so; ok says whether there is one.
func Find(field string) (kind Kind, ok bool) {
	for _, one := range Kinds() {
		if one.Field == field {
			return one, true
		}
	}
	return Kind{}, false
}

// Nested says whether an attribute is made of objects. Terraform drops fields that an object's type does not have before a
// provider sees them, so that such attributes are dynamic to it, and the provider holds them against this.
func (a Attribute) Nested() bool {
	return a.Type == Object || (a.Element != nil && a.Element.Nested())
}
